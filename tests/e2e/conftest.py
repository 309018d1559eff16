"""A cluster, its image, and a namespace for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import site as sites
from tests.e2e.site import Site


@pytest.fixture(scope="session")
def image() -> str:
    return sites.prepare()


@pytest.fixture(scope="session")
def next_image(image: str) -> str:
    """Of the version after that of ``image``."""
    made = sites.prepare_next(image)
    if not made:
        pytest.skip("no image of the next version: set SCAR_NEXT_IMAGE, or use kind; NO UPGRADE WAS TESTED")
    return made


@pytest.fixture(scope="session")
def later_image(next_image: str) -> str:
    """Of a version that serves no members of ``image`` any more."""
    made = sites.prepare_next(next_image, "later")
    if not made:
        pytest.skip("no image of a later version: set SCAR_LATER_IMAGE, or use kind; NO UPGRADE WAS HELD")
    return made


@pytest.fixture(scope="module")
def site(image: str) -> Iterator[Site]:
    with sites.settled(image) as site:
        yield site
