"""A function of a running program becomes a training file that does the same."""

from __future__ import annotations

import functools
import linecache
import math
import sys
import traceback
import xml
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scar
from scar.errors import ConfigError
from scar.jobfile import load_function
from scar.wire import codec
from scar_local.function_source import FunctionSource, function_source

RATE = 0.5
NAMES = ("a", {"b": [1, None, True]})
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)
SCALE = np.float32(2)
HERE = Path(__file__).parent
GENERATOR = np.random.default_rng(1)
NOT_A_NUMBER = math.nan
named = lambda worker: worker  # noqa: E731


def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def twice(*values: Any) -> Any:
        return 2 * function(*values)

    return twice


def made(rate: float) -> Callable[[float], float]:
    def step(value: float) -> float:
        return rate * value

    return step


class Scaled:
    factor = SCALE

    def scale(self, value: float) -> float:
        return self.factor * value


@doubled
def helper(value: float, by: float = RATE) -> float:
    return Scaled().scale(value) * by if value else helper(1.0)


again = helper
wrapped = doubled(made)
step_of_half = made(0.5)


def uses_all(worker: scar.Worker) -> list[object]:
    """Its parts have their own frames and lines."""

    def inner() -> float:
        return RATE

    worker.append(xml.etree.ElementTree.XML("<a/>").tag)  # type: ignore[attr-defined]
    return [helper(3.0), again(3.0), inner(), NAMES, ROWS.sum(), HERE, codec.__name__, __name__ != "", worker]


def fails(worker: scar.Worker) -> None:
    helper(RATE)
    raise ValueError("meant")


def sent(function: Callable[..., Any], folder: Path) -> tuple[FunctionSource, Path, Callable[..., Any]]:
    source = function_source(function)
    file = source.write_to(folder / "function")
    return source, file, load_function(str(file), source.name, ())


def test_what_it_uses_of_its_module_goes_along(tmp_path: Path) -> None:
    assert sent(uses_all, tmp_path)[2]([]) == uses_all([])  # type: ignore[arg-type]


def test_a_function_of_a_function_takes_its_variables_along(tmp_path: Path) -> None:
    rows = ROWS * 2
    limit = 7

    def local(worker: object) -> object:
        return rows.sum() + limit

    assert sent(local, tmp_path)[2](None) == local(None)


def test_a_cell_of_a_notebook(tmp_path: Path) -> None:
    """As ipykernel does it: the source of a cell is in linecache alone, its module is __main__."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(
        ["import numpy as np\nrate = 3\n", "def train(worker):\n    return rate * np.ones(2)[0] + worker\n"]
    ):
        file = f"/tmp/ipykernel_1/{number}.py"
        linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
        exec(compile(cell, file, "exec"), names)  # noqa: S102
    assert sent(names["train"], tmp_path)[2](1) == 4


def test_a_traceback_names_the_users_own_lines(tmp_path: Path) -> None:
    source, file, function = sent(fails, tmp_path)
    with pytest.raises(ValueError, match="meant") as caught:
        function(None)
    text = source.restore_places("".join(traceback.format_exception(caught.value)), file)
    line = fails.__code__.co_firstlineno + 2
    assert f'File "{__file__}", line {line}, in fails' in text
    assert str(file) not in text


def uses_a_generator(worker: object) -> object:
    return GENERATOR.normal()


def uses_nan(worker: object) -> object:
    return NOT_A_NUMBER


def uses_a_lambda(worker: object) -> object:
    return named(worker)


def uses_a_wrapped_one(worker: object) -> object:
    return wrapped(worker)


def uses_a_made_one(worker: object) -> object:
    return step_of_half(1.0)


def without_source() -> Callable[..., Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def train(worker): pass", names)  # noqa: S102
    function: Callable[..., Any] = names["train"]
    return function


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (uses_a_generator, "GENERATOR is of type Generator, which cannot be written as source"),
        (uses_nan, "NOT_A_NUMBER is of type float"),
        (uses_a_lambda, "<lambda> is not what `def` or `class` has made"),
        (uses_a_wrapped_one, "made is not what `def`"),
        (wrapped, "made is not what `def`"),
        (uses_a_made_one, "step is not what `def`"),
        (without_source(), "train has no source of its own"),
        (lambda worker: worker, "is no function"),
        (functools.partial(fails, None), "is no function"),
    ],
)
def test_what_cannot_be_sent_is_named(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        function_source(function)


def test_without_the_services_local_cluster_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scar_local", None)
    with pytest.raises(ConfigError, match=r"needs the services.*pip install 'scar-ps\[cli\]'"):
        _ = scar.LocalCluster
    with pytest.raises(AttributeError, match="LocalClusters"):
        _ = scar.LocalClusters  # type: ignore[attr-defined]
