"""The newest running checkpoint, and how the next manifest continues it."""

from __future__ import annotations

from dataclasses import replace

from scar.placement import Epoch
from scar.tables import Job
from scar_checkpoint.core.rounds import ActiveRound, Rewrite
from scar_runtime.checkpoint.manifest import Manifest, RoundPlan
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint


class ManifestChain:
    """``running``: what the newest manifest says; ``number``: of the highest manifest that exists;
    ``rewrite``: a compaction that waits for the next one.
    """

    def __init__(self, job: Job, author: str) -> None:
        self.running = RunningCheckpoint(job)
        self.number = 0
        self.rewrite: Rewrite | None = None
        self.committed_at: float | None = None
        self._job = job
        self._author = author

    def follow_manifest(self, running: RunningCheckpoint, number: int) -> None:
        """Go on from somebody else's manifest, or from one of an earlier life."""
        self.running = running
        self.rewrite = None
        self.number = max(number, running.manifest.number)

    def accept_commit(self, current: ActiveRound, running: RunningCheckpoint, now: float) -> None:
        """The manifest that :meth:`build_next` made exists."""
        if self.rewrite is current.rewrite:  # it is listed now, or did not fit
            self.rewrite = None
        self.running = running
        self.number = running.manifest.number
        self.committed_at = now

    def build_next(
        self, current: ActiveRound, epoch: Epoch, plan: RoundPlan | None = None
    ) -> RunningCheckpoint:
        """The running checkpoint with what the round has saved, and its manifest. ``plan``: of rounds."""
        found = current.objects
        clocks = {ref.clock for ref, _ in found}
        manifest = Manifest(
            number=self.number + 1,
            parent=self.running.manifest.number,
            job=self._job.name,
            author=self._author,
            epoch=epoch.number,
            round=current.number,
            selection=current.selection,
            clock=min(clocks),
            plan=plan,
            passed_over=tuple(sorted(self.running.passed_over)),
        )
        parent = self.running
        current.rewrite = self.rewrite
        if self.rewrite is not None:
            rewritten = self.rewrite.apply_to(parent, self.number)
            needed = {key for _, header in found for key in header.baselines}
            if rewritten is not None and rewritten.lists_all(needed):
                parent = rewritten
        running = parent.extended(found, manifest)
        whole = current.selection == "full" and running.covered_by({ref.key for ref, _ in found})
        # BSP: one clock, or no consistent state while anybody pushes
        full = whole and (self._job.consistency != "bsp" or len(clocks) == 1 or epoch.finished > 0)
        running.manifest = replace(manifest, full=full, objects=tuple(running.objects))
        return running

    def age(self, now: float) -> float:
        """Seconds since the last commit; -1: none yet."""
        return -1.0 if self.committed_at is None else max(0.0, now - self.committed_at)
