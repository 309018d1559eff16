"""Every error that SCAR raises. The class decides the gRPC code and what the caller should do.

ScarError
  x InvalidRequest            INVALID_ARGUMENT     fix the call
    · UnknownTable            NOT_FOUND
    · ShapeMismatch           INVALID_ARGUMENT
    · BlockOutOfRange         OUT_OF_RANGE
    · NonFinite               INVALID_ARGUMENT
    · TooLarge                INVALID_ARGUMENT
  x ConfigError               INVALID_ARGUMENT     fix the named setting
  x JobExists                 ALREADY_EXISTS       choose another name, or resume
  x JobNotFound               NOT_FOUND
  x TrainingFailed            ABORTED              a worker's function has raised: correct it, and resume
  x StaleEpoch                ABORTED              refresh the placement, send again (the SDK does)
  x OutOfOrder                FAILED_PRECONDITION  a gap in a worker's pushes: a bug or a lost worker
  x Fenced                    FAILED_PRECONDITION  this incarnation was declared dead: stop
  x Temporary                 UNAVAILABLE          retry the same call (the SDK does, until its deadline)
    · NotServing                                   the shard's lease ran out, or it has no epoch yet
    · Unreachable                                  no connection
    · StoreUnavailable
    · LivenessUnavailable
    · Busy                    RESOURCE_EXHAUSTED
  x DeadlineExceeded          DEADLINE_EXCEEDED
  x PermissionDenied          PERMISSION_DENIED    use a certificate of a role that may call it
  x ProtocolMismatch          FAILED_PRECONDITION  versions that do not understand each other: upgrade one
  x StoreError                INTERNAL
    · AlreadyExists           ALREADY_EXISTS       somebody else created the numbered object first
    · ObjectNotFound          NOT_FOUND
    · CorruptCheckpoint       DATA_LOSS            fall back to an older manifest
        · ForgedRecord        DATA_LOSS            the same; find out who writes to the store
    · WrongJob                FAILED_PRECONDITION  the object belongs to another job
    · StoreFull               RESOURCE_EXHAUSTED
    · UnsafeStore             FAILED_PRECONDITION  the store ignores conditional puts
  x Internal                  INTERNAL             report it, with the log of the service
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

import grpc

NAME_KEY = "scar-error"
NEXT_KEY = "scar-next"
EPOCH_KEY = "scar-epoch"


class ScarError(Exception):
    """Root of the tree. ``next_step`` tells a person what to do; ``str(error)`` contains both."""

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL
    default_next: ClassVar[str] = ""

    def __init__(self, message: str, next_step: str = "") -> None:
        self.message = message
        self.next_step = next_step or self.default_next
        super().__init__(f"{message}. {self.next_step}" if self.next_step else message)


class InvalidRequest(ScarError):
    code = grpc.StatusCode.INVALID_ARGUMENT
    default_next = "Correct the call; nothing was changed"


class UnknownTable(InvalidRequest):
    code = grpc.StatusCode.NOT_FOUND
    default_next = "Use one of the job's tables"


class ShapeMismatch(InvalidRequest):
    default_next = "Send the table's dtype and shape; nothing was changed"


class BlockOutOfRange(InvalidRequest):
    code = grpc.StatusCode.OUT_OF_RANGE
    default_next = (
        "ids are blocks, from 0 to table.blocks - 1; a block can be several rows; nothing was changed"
    )


class NonFinite(InvalidRequest):
    default_next = (
        "Lower the learning rate or clip; Table(allow_nonfinite=True) accepts such values; nothing was"
        " changed"
    )


class TooLarge(InvalidRequest):
    default_next = "Send less at once; nothing was changed"


class ConfigError(ScarError):
    code = grpc.StatusCode.INVALID_ARGUMENT


class JobExists(ScarError):
    code = grpc.StatusCode.ALREADY_EXISTS
    default_next = "Choose another name by `--name`, or continue this one by `--resume`"


class JobNotFound(ScarError):
    code = grpc.StatusCode.NOT_FOUND
    default_next = "Start a job with `scar train FILE`"


class TrainingFailed(ScarError):
    """A training ended before its work was done; the message has the traceback of the user's function."""

    code = grpc.StatusCode.ABORTED
    default_next = "Correct the function, and go on by resume=True"


class Diverged(ScarError):
    """The loss is no number, and the user has asked to end then."""

    code = grpc.StatusCode.ABORTED
    default_next = (
        "Lower the learning rate, or look at the data of that clock; then start anew, or continue by --resume"
        " if the newest manifest is older"
    )


class StaleEpoch(ScarError):
    """The placement has moved on. ``epoch`` is the shard's; the caller fetches it and sends again what was
    not acknowledged.
    """

    code = grpc.StatusCode.ABORTED
    default_next = "Fetch the newest epoch and send again"

    def __init__(self, message: str, next_step: str = "", *, epoch: int = 0) -> None:
        super().__init__(message, next_step)
        self.epoch = epoch


class OutOfOrder(ScarError):
    code = grpc.StatusCode.FAILED_PRECONDITION
    default_next = "Restart this worker: it joins again as a new incarnation"


class Fenced(ScarError):
    code = grpc.StatusCode.FAILED_PRECONDITION
    default_next = "Stop this process; a new incarnation may join"


class ClockPassed(ScarError):
    """Values of a clock are wanted that is closed: they have changed since."""

    code = grpc.StatusCode.OUT_OF_RANGE
    default_next = "Ask for a later clock"


class Temporary(ScarError):
    code = grpc.StatusCode.UNAVAILABLE
    default_next = "Try again; see `scar status` for what is down"


class NotServing(Temporary):
    pass


class Unreachable(Temporary):
    default_next = (
        "Check that the service runs and the address is right; a refused TLS handshake looks the same"
    )


class StoreUnavailable(Temporary):
    default_next = "Check the object store; training continues, checkpoints and recovery wait for it"


class LivenessUnavailable(Temporary):
    default_next = "Check Redis; training continues, no recovery is started by its absence"


class Busy(Temporary):
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class DeadlineExceeded(ScarError):
    code = grpc.StatusCode.DEADLINE_EXCEEDED
    default_next = "See `scar status` for what the cluster waits for, or raise the timeout"


class PermissionDenied(ScarError):
    code = grpc.StatusCode.PERMISSION_DENIED
    default_next = "Use a certificate of a role that may call it (docs/security.md)"


class ProtocolMismatch(ScarError):
    code = grpc.StatusCode.FAILED_PRECONDITION
    default_next = "Run versions of SCAR that speak the same protocol; docs/operations.md has how to upgrade"


class StoreError(ScarError):
    pass


class AlreadyExists(StoreError):
    code = grpc.StatusCode.ALREADY_EXISTS
    default_next = "Read the object and continue from it"


class ObjectNotFound(StoreError):
    code = grpc.StatusCode.NOT_FOUND


class CorruptCheckpoint(StoreError):
    code = grpc.StatusCode.DATA_LOSS
    default_next = "Run `scar checkpoints verify`; older manifests stay restorable"


class ForgedRecord(CorruptCheckpoint):
    default_next = (
        "Find out who else writes to the store, or give SCAR_STORE_KEY the key that the job was begun with"
    )


class WrongJob(StoreError):
    code = grpc.StatusCode.FAILED_PRECONDITION
    default_next = "Give each job its own name or bucket prefix"


class StoreFull(StoreError):
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    default_next = "Free space in the store; training continues, the checkpoint grows old"


class UnsafeStore(StoreError):
    code = grpc.StatusCode.FAILED_PRECONDITION
    default_next = "Use a store with conditional puts, such as AWS S3, MinIO or SeaweedFS"


class Internal(ScarError):
    code = grpc.StatusCode.INTERNAL
    default_next = "See the service's log"


def use_one_of(name: str, known: Iterable[str]) -> str:
    """Next step for a name that is not known: what may have been meant, and what there is."""
    names = list(known)
    folded = {one.casefold(): one for one in names}
    close = difflib.get_close_matches(name.casefold(), folded, 1)
    meant = f"Did you mean {folded[close[0]]!r}? " if close else ""
    return f"{meant}Use one of {', '.join(names)}"


def _collect_errors(root: type[ScarError]) -> dict[str, type[ScarError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found.update(_collect_errors(child))
    return found


ERRORS: dict[str, type[ScarError]] = _collect_errors(ScarError)

# What a bare gRPC code means when no SCAR service wrote the error (a proxy, a dead host, a client deadline).
_BY_CODE: dict[grpc.StatusCode, type[ScarError]] = {
    grpc.StatusCode.UNAVAILABLE: Unreachable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Unreachable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Busy,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
}

# What gRPC itself says, whatever its code: words of its details. A stream that a proxy resets, and an answer
# that was garbled on its way, are INTERNAL like a bug, but only the way is to blame.
_BY_DETAILS: dict[str, type[ScarError]] = {
    "larger than max": TooLarge,
    "RST_STREAM": Unreachable,
    "Stream removed": Unreachable,
    "deserializing response": Unreachable,
}


def to_metadata(error: ScarError) -> tuple[tuple[str, str], ...]:
    """Trailing metadata that carries the class and the next step over the wire (ASCII only)."""
    pairs = [
        (NAME_KEY, type(error).__name__),
        (NEXT_KEY, error.next_step.encode("ascii", "replace").decode()),
    ]
    if isinstance(error, StaleEpoch):
        pairs.append((EPOCH_KEY, str(error.epoch)))
    return tuple(pairs)


def from_rpc(error: grpc.RpcError, target: str = "") -> ScarError:
    """The typed error behind a ``grpc.RpcError``; never raises. ``target`` names the peer in the message."""
    trailing = getattr(error, "trailing_metadata", lambda: None)() or ()
    metadata = {key: value for key, value in trailing if isinstance(value, str)}
    code = getattr(error, "code", lambda: None)() or grpc.StatusCode.UNKNOWN
    details = getattr(error, "details", lambda: None)() or code.name
    known = ERRORS.get(metadata.get(NAME_KEY, ""))
    if known is None:
        where = f"{target}: " if target else ""
        said = (_BY_DETAILS[words] for words in _BY_DETAILS if words in details)
        return next(said, _BY_CODE.get(code, Internal))(f"{where}{details}")
    if issubclass(known, StaleEpoch):
        epoch = metadata.get(EPOCH_KEY, "0")
        return known(
            details,
            metadata.get(NEXT_KEY, ""),
            epoch=int(epoch) if epoch.isdecimal() and len(epoch) < 20 else 0,
        )
    return known(details, metadata.get(NEXT_KEY, ""))
