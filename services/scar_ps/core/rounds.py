"""The shard's part in checkpoint rounds: what is saved, and what became of it (docs/protocol.md §10)."""

from __future__ import annotations

from dataclasses import dataclass

from scar_ps.core.actions import ReportAbandonedRound
from scar_ps.core.admission import Admission
from scar_ps.core.block_data import CopiedBlocks
from scar_ps.core.block_snapshot import PieceCopy
from scar_ps.core.checkpoint_round import Candidates
from scar_ps.core.clocks import ClockHandler
from scar_ps.core.core_state import CoreState
from scar_ps.core.transfer_events import (
    BlocksChosen,
    CandidatesMeasured,
    CandidatesRequested,
    CopyContinued,
    InstallContinued,
    ObjectUploaded,
    RoundFinished,
    RoundStarted,
    UploadFailed,
)

# for which training waits for a checkpoint, where it waits for them at all: its coordinator may be dead, or
# the store away
HOLD_SECONDS = 30.0


@dataclass(frozen=True, eq=False, slots=True)
class StartedRound:
    """What may be saved, and whose distances are to be measured; the open clock."""

    candidates: list[Candidates]
    clock: int


class RoundHandler:
    """Of one shard. ``saved_at``: when a round was last committed with an object of this shard."""

    def __init__(self, state: CoreState, admission: Admission, clocks: ClockHandler) -> None:
        self._state = state
        self._admission = admission
        self._clocks = clocks
        self._started_at = 0.0  # the last round
        self.saved_at: float | None = None

    def start_round(self, event: RoundStarted) -> StartedRound:
        state = self._state
        self._admission.check_epoch(event.epoch)
        self._admission.require_clock(event.min_clock)
        candidates = state.round.start_round(
            event.number, state.ownership, state.chain.updates, event.author, event.by_distance
        )
        self._started_at = state.now
        state.story.note(clock=state.clock)
        return StartedRound(candidates, state.clock)

    def record_distances(self, event: CandidatesMeasured) -> None:
        self._admission.check_epoch(event.epoch)
        self._state.round.record_distances(event.candidates)

    def find_candidates(self, event: CandidatesRequested) -> list[Candidates]:
        """With as few origins as there can be, as a copy is made for each."""
        state = self._state
        workers = [worker.key for worker in self._admission.check_epoch(event.epoch).workers]
        state.ownership.forget_overtaken(state.sequences.watermark, workers)
        return state.round.measured_candidates(event.number)

    def copy_blocks(self, event: BlocksChosen) -> list[CopiedBlocks]:
        """Begin to copy these blocks as they are now."""
        state = self._state
        self._admission.check_epoch(event.epoch)
        own = state.sequences.watermark
        with event.timer:
            copied = state.round.begin_copy(
                event.number,
                state.clock,
                event.chosen,
                lambda origin: state.ownership.watermark_of(origin, own),
                event.timer,
                event.baselines,
            )
        state.story.note(blocks=sum(len(one.state.ids) for one in copied))
        return copied

    def next_piece(self, event: CopyContinued) -> PieceCopy | None:
        return self._state.round.next_piece(event.copied)

    def install_piece(self, _: InstallContinued) -> bool:
        return self._state.round.install_piece()

    def record_upload(self, event: ObjectUploaded) -> None:
        """Raises :class:`StaleEpoch` when the epoch has changed: this shard misses the round."""
        self._admission.check_epoch(event.epoch)
        self._state.round.record_upload(event.copied, event.object)
        self._state.story.note(round=self._state.round.number)

    def record_failure(self, event: UploadFailed) -> None:
        self._state.round.record_failure(event.copied)
        self._state.story.note(round=self._state.round.number)
        self._clocks.advance_clock()

    def finish_round(self, event: RoundFinished) -> bool:
        saved = self._state.round.finish_round(event.number, event.committed, event.author, event.object_key)
        self._state.story.note(saved=saved)
        if saved:
            self.saved_at = self._state.now
        self._clocks.advance_clock()
        return saved

    def abandon_overdue(self) -> None:
        """End a round on which training has waited too long."""
        state = self._state
        if state.is_stalled and state.now > self._started_at + HOLD_SECONDS:
            state.actions.append(ReportAbandonedRound(state.round.number, HOLD_SECONDS))
            state.round.abandon_round()
            self._clocks.advance_clock()
