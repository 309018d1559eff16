"""Epochs as they are created: a chain without gaps that remembers fences, by one leader after the other."""

from __future__ import annotations

from scar.errors import InvalidRequest
from scar.placement import Epoch
from scar.tables import Job
from scar_recovery.recovery_store import EPOCHS_LEAST


class EpochChain:
    """``epochs``: all that ever were, by number."""

    def __init__(self, job: Job) -> None:
        self.epochs: dict[int, Epoch] = {}
        self._job = job
        self._last_epochs: dict[int, int] = {}  # leadership -> the last epoch that it has written

    @property
    def newest(self) -> Epoch | None:
        return self.epochs[max(self.epochs)] if self.epochs else None

    def add(self, epoch: Epoch, leadership: int) -> list[str]:
        """What is wrong with an epoch that has just been created. ``leadership``: a number of its author's
        session.
        """
        newest = self.newest
        number = newest.number if newest is not None else 0
        found = []
        if epoch.number != number + 1:
            found.append(f"epoch {epoch.number} comes after epoch {number}")
        if self._last_epochs.get(leadership, number) != number:
            last = self._last_epochs[leadership]
            found.append(
                f"{epoch.author} wrote epoch {last}, was replaced, and has written {epoch.number} since"
            )
        if newest is not None and set(newest.fenced) - set(epoch.fenced):
            found.append(f"epoch {epoch.number} has forgotten fences of epoch {newest.number}")
        found += self._check_members(epoch)
        self.epochs[epoch.number] = epoch
        self._last_epochs[leadership] = epoch.number
        return found

    def _check_members(self, epoch: Epoch) -> list[str]:
        members = [*epoch.shards, *epoch.workers]
        fenced = [one.key for one in members if {one.key, one.incarnation} & set(epoch.fenced)]
        found = [f"epoch {epoch.number} has the fenced member {key}" for key in fenced]
        try:
            epoch.ensure_valid(self._job)
        except InvalidRequest as error:
            found.append(str(error))
        return found

    def remove(self, number: int) -> list[str]:
        """One has been deleted."""
        kept = max(self.epochs) - EPOCHS_LEAST
        return [f"epoch {number} was deleted, {kept + 1} and later are needed"] if number > kept else []
