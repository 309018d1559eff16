"""The chart as both versions of Helm render it."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable

import pytest

from tests.helm.chart import EVERYTHING, ROOT, Object, Render, program, template


@pytest.fixture(params=["helm", "helm3"])
def helm(request: pytest.FixtureRequest) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run helm with these arguments; its exit code and output."""
    path = program(request.param)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([path, *arguments], capture_output=True, text=True, timeout=60)

    return run


@pytest.fixture(scope="session")
def render() -> Render:
    """Objects as the newest Helm renders them."""
    path = program("helm")
    return lambda *values, **more: template(path, *values, **more)


@pytest.fixture(scope="session")
def rendered(render: Render) -> list[Object]:
    """Every object that the chart can make, with a training. Nobody may change them: see `everything`."""
    return render(*EVERYTHING, files=(f"training.file={ROOT / 'examples' / 'mlr.py'}",))


@pytest.fixture
def everything(rendered: list[Object]) -> list[Object]:
    """A copy of every object for each test, as some take parts away before they compare."""
    return copy.deepcopy(rendered)
