"""How a shard speaks to the recovery coordinator and looks at the store.

One thread that does what the shard asks for, one thing after the other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event

from scar.errors import Fenced, ScarError
from scar.v1 import recovery_pb2, recovery_pb2_grpc
from scar.wire import codec
from scar.wire.timing import TIMING
from scar.wire.transport import RECOVERY, Link
from scar_ps.apply_thread import ApplyThread
from scar_ps.core.actions import JoinCluster, ShardAction
from scar_ps.core.core_state import CoreState
from scar_ps.core.events import JoinAnswered, StoreChecked
from scar_ps.epoch_sync import EpochSync
from scar_ps.wire.shared_memory_pool import SharedMemoryPool

CALL_SECONDS = 2.0
WATCH_SECONDS = 0.2  # between looks at shared memory that its process has dropped
IDLE_SECONDS = 10 * TIMING.look_every  # the same, while there is none

_log = logging.getLogger(__name__)


class MembershipThread:
    """``recovery``: address of the recovery coordinator; empty: there is none. ``secret``: of this
    shard, see :mod:`scar.member_secrets`.

    ``is_idle``: recovery has heard of this shard, and has no job for it.
    """

    def __init__(
        self,
        state: CoreState,
        recovery: str,
        secret: bytes,
        apply_thread: ApplyThread,
        epochs: EpochSync,
        shared: SharedMemoryPool,
    ) -> None:
        self._state = state
        self._message = codec.member_to_proto(state.member)
        self._secret = secret
        self._recovery = Link(recovery, "recovery", RECOVERY) if recovery else None
        self._apply_thread = apply_thread
        self._epochs = epochs
        self._shared = shared
        self._actions: SimpleQueue[ShardAction] = SimpleQueue()
        self._problem = ""  # the last one that was logged
        self.is_idle = False

    def request(self, action: ShardAction) -> None:
        """Have it carried out; returns at once."""
        self._actions.put(action)

    def run(self, stopped: Event) -> None:
        """Body of the thread."""
        while not stopped.is_set():
            self._shared.drop_released()
            try:
                action = self._actions.get(timeout=IDLE_SECONDS if self._shared.is_empty else WATCH_SECONDS)
            except Empty:
                continue
            if isinstance(action, JoinCluster):
                failed = self._attempt(self._join)
                self._apply_thread.post(JoinAnswered(_reason(failed), isinstance(failed, Fenced)))
            else:
                self._apply_thread.post(StoreChecked(_reason(self._attempt(self._check_store))))

    def close(self) -> None:
        if self._recovery is not None:
            self._recovery.close()

    def _attempt(self, work: Callable[[], None]) -> ScarError | None:
        """Why it failed; None: it did not."""
        try:
            work()
        except ScarError as error:
            self._log_problem("membership.waiting", error)
            return error
        self._problem = ""
        return None

    def _log_problem(self, event: str, error: ScarError) -> None:
        if error.message != self._problem:
            self._problem = error.message
            _log.warning(event, extra={"reason": str(error)})

    def _join(self) -> None:
        if self._recovery is not None:
            stub = recovery_pb2_grpc.RecoveryStub(self._recovery.channel)
            request = codec.join_request(self._state.member, self._secret)
            self.is_idle = self._recovery.call(stub.Join, request, CALL_SECONDS).epoch == 0

    def _check_store(self) -> None:
        self._epochs.catch_up(CALL_SECONDS)

    def leave(self, end: float) -> None:
        """Ask to go until no block is left here, or the time (of ``time.monotonic``) is over.

        For another thread.

        A coordinator that has not read our epoch yet knows of no block of ours: its answer says nothing.
        """
        if self._recovery is None:
            return
        stub = recovery_pb2_grpc.RecoveryStub(self._recovery.channel)
        request = recovery_pb2.LeaveRequest(member=self._message, secret=self._secret)
        while time.monotonic() < end and not self._state.dismissed:
            try:
                timeout = min(CALL_SECONDS, max(0.01, end - time.monotonic()))
                reply = self._recovery.call(stub.Leave, request, timeout)
                if reply.remaining == 0 and reply.epoch >= self._state.number:
                    return
            except ScarError as error:
                self._log_problem("leave.waiting", error)
            time.sleep(WATCH_SECONDS)


def _reason(failed: ScarError | None) -> str:
    return "" if failed is None else failed.message
