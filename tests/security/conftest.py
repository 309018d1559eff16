"""One cluster for all attacks: none of them is to leave a mark on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.scene import Intruder, Victim, make_intruders, trained


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with trained(tmp_path_factory.mktemp("victim")) as found:
        yield found


@pytest.fixture(scope="module")
def intruders(victim: Victim, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Intruder]:
    return make_intruders(tmp_path_factory.mktemp("intruders"), victim.cluster.directory / "tls")
