"""For all tests: how slow this machine is decides nothing. And who this process is, for those that ask."""

from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings

from scar.wire.credentials import active_credentials, restore_credentials, use_certificate

settings.register_profile("any-machine", deadline=None)
# for scripts.break_contracts: that an example fails is all it wants to know
settings.register_profile("unshrunk", deadline=None, phases=[Phase.explicit, Phase.generate])
settings.load_profile("any-machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", default="1/1", metavar="K/N", help="of all tests the K-th, and every N-th after it"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, parts = (int(word) for word in config.getoption("--part").split("/"))
    if parts > 1:
        config.hook.pytest_deselected(items=[item for at, item in enumerate(items) if at % parts != part - 1])
        items[:] = items[part - 1 :: parts]


@pytest.fixture(autouse=True, scope="module")
def _same_as_before() -> Iterator[None]:
    """After a module this process is who it was before, whichever cluster its tests have called."""
    before = active_credentials()
    yield
    restore_credentials(before)


@pytest.fixture
def nobody() -> Iterator[None]:
    """This process has neither certificate nor token; after the test it is who it was before."""
    before = active_credentials()
    use_certificate(None)
    yield
    restore_credentials(before)
