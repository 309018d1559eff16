"""Every class of the tree crosses the wire and comes back as itself."""

from __future__ import annotations

import grpc
import pytest

from scar import errors
from scar.errors import ERRORS, ScarError, StaleEpoch, from_rpc, to_metadata


class Rpc(grpc.RpcError):
    """What gRPC raises in a client."""

    def __init__(
        self, code: grpc.StatusCode, details: str, metadata: tuple[tuple[str, str | bytes], ...] = ()
    ) -> None:
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
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.Busy),
        (grpc.StatusCode.INTERNAL, errors.Internal),
        (grpc.StatusCode.UNKNOWN, errors.Internal),
        (grpc.StatusCode.DATA_LOSS, errors.Internal),
    ],
)
def test_a_bare_code_gets_a_class_and_names_the_peer(code: grpc.StatusCode, kind: type[ScarError]) -> None:
    back = from_rpc(Rpc(code, "socket closed"), "ps-1")
    assert type(back) is kind
    assert back.message == "ps-1: socket closed"


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "CLIENT: Received message larger than max (9 vs. 4)",
            errors.TooLarge,
        ),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received RST_STREAM with error code 11", errors.Unreachable),
        (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2", errors.Unreachable),
        (grpc.StatusCode.INTERNAL, "Exception deserializing response!", errors.Unreachable),
        (grpc.StatusCode.UNKNOWN, "Stream removed", errors.Unreachable),
        (grpc.StatusCode.INTERNAL, "Exception serializing request!", errors.Internal),
    ],
)
def test_what_the_way_did_to_a_call_is_tried_again_and_a_bug_is_not(
    code: grpc.StatusCode, details: str, kind: type[ScarError]
) -> None:
    assert type(from_rpc(Rpc(code, details))) is kind


@pytest.mark.parametrize("metadata", [((errors.NAME_KEY, "os.system"),), ((errors.NAME_KEY, b"Fenced"),), ()])
def test_a_peer_cannot_choose_another_class(metadata: tuple[tuple[str, str | bytes], ...]) -> None:
    assert type(from_rpc(Rpc(grpc.StatusCode.INTERNAL, "x", metadata))) is errors.Internal


def test_nonsense_in_the_epoch_is_zero() -> None:
    pairs = ((errors.NAME_KEY, "StaleEpoch"), (errors.EPOCH_KEY, "1e9"))
    back = from_rpc(Rpc(grpc.StatusCode.ABORTED, "x", pairs))
    assert isinstance(back, StaleEpoch)
    assert back.epoch == 0


@pytest.mark.parametrize("epoch", ["9" * 5000, "-1", "x", "²"])
def test_a_forged_epoch_is_no_epoch(epoch: str) -> None:
    back = from_rpc(
        Rpc(grpc.StatusCode.ABORTED, "old", (("scar-error", "StaleEpoch"), ("scar-epoch", epoch)))
    )
    assert isinstance(back, StaleEpoch)
    assert back.epoch == 0
