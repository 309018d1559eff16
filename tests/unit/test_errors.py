"""Every class of the tree crosses the wire and comes back as itself."""

from __future__ import annotations

import grpc
import pytest

from scar import errors
from scar.errors import ERRORS, ScarError, StaleEpoch, from_rpc, to_metadata


class Rpc(grpc.RpcError):
    """What gRPC raises in a client."""

    def __init__(self, code: grpc.StatusCode, details: str, metadata: tuple[tuple[str, str | bytes], ...] = ()) -> None:
        self._code, self._details, self._metadata = code, details, metadata

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self._metadata


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_class_and_advice_survive_the_wire(name: str) -> None:
    error = ERRORS[name]("table w is not here", "Look elsewhere")
    back = from_rpc(Rpc(error.code, error.message, to_metadata(error)))
    assert type(back) is ERRORS[name]
    assert (back.message, back.next_step) == ("table w is not here", "Look elsewhere")
    assert str(back) == "table w is not here. Look elsewhere"


def test_stale_epoch_carries_the_shard_s_epoch() -> None:
    error = StaleEpoch("old", epoch=7)
    back = from_rpc(Rpc(error.code, error.message, to_metadata(error)))
    assert isinstance(back, StaleEpoch)
    assert back.epoch == 7


def test_every_class_says_what_to_do_or_is_given_it_when_raised() -> None:
    silent = {name for name, kind in ERRORS.items() if not kind.default_next}
    assert silent <= {"ScarError", "ConfigError", "StoreError", "ObjectNotFound"}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.Unreachable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineExceeded),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.TooLarge),
        (grpc.StatusCode.UNKNOWN, errors.Internal),
        (grpc.StatusCode.DATA_LOSS, errors.Internal),
    ],
)
def test_a_bare_code_gets_a_class_and_names_the_peer(code: grpc.StatusCode, kind: type[ScarError]) -> None:
    back = from_rpc(Rpc(code, "socket closed"), "ps-1")
    assert type(back) is kind
    assert back.message == "ps-1: socket closed"


@pytest.mark.parametrize("metadata", [((errors.NAME_KEY, "os.system"),), ((errors.NAME_KEY, b"Fenced"),), ()])
def test_a_peer_cannot_choose_another_class(metadata: tuple[tuple[str, str | bytes], ...]) -> None:
    assert type(from_rpc(Rpc(grpc.StatusCode.INTERNAL, "x", metadata))) is errors.Internal


def test_nonsense_in_the_epoch_is_zero() -> None:
    pairs = ((errors.NAME_KEY, "StaleEpoch"), (errors.EPOCH_KEY, "1e9"))
    back = from_rpc(Rpc(grpc.StatusCode.ABORTED, "x", pairs))
    assert isinstance(back, StaleEpoch)
    assert back.epoch == 0
