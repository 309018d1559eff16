"""A cluster, its image, and a namespace for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import site as sites
from tests.e2e.site import Site


@pytest.fixture(scope="session")
def image() -> str:
    return sites.prepare()


@pytest.fixture(scope="module")
def site(image: str) -> Iterator[Site]:
    with sites.settled(image) as site:
        yield site
