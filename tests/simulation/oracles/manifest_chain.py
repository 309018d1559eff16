"""Manifests as they are created: a chain, whose last ones name only objects that are there (G5, G6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.store.layout import manifest_key


class ManifestHistory:
    """``manifests``: those that exist, by number; ``damaged``: numbers of those that a fault has changed;
    ``keep``: how many stay restorable.
    """

    def __init__(self, keep: int) -> None:
        self.manifests: dict[int, Manifest] = {}
        self.damaged: set[int] = set()
        self._keep = keep
        self._newest = 0
        self._collected: set[int] = set()  # numbers of manifests that have been deleted
        self._reused: set[int] = set()  # of which somebody who had slept has made others

    @property
    def last(self) -> list[Manifest]:
        """The last K, less those that nobody can read any more."""
        numbers = sorted(self.manifests)[-self._keep :]
        return [self.manifests[number] for number in numbers if number not in self.damaged]

    @property
    def needed(self) -> set[str]:
        """Keys of objects that the last K name."""
        return {ref.key for manifest in self.last for ref in manifest.objects}

    def add(self, manifest: Manifest, epoch: int, damaged: Collection[str] = ()) -> list[str]:
        """What is wrong with one that has just been created, while this epoch is the newest. ``damaged``:
        keys of the job that a fault has changed.
        """
        number = manifest.number
        parent = manifest.parent
        found = []
        if number <= self._newest:
            # a number that was collected means nothing, as long as nobody continues what has it now
            if number > self._newest - self._keep or number not in self._collected:
                found.append(f"manifest {number} comes after manifest {self._newest}")
            self._reused.add(number)
        if parent in self._reused and number > self._newest:
            found.append(f"manifest {number} continues {parent}, whose number was used twice")
        skipped = set(range(parent + 1, number)) - set(manifest.passed_over)
        skipped = {one for one in skipped if manifest_key(one) not in damaged}
        if parent >= number or skipped:
            found.append(f"manifest {number} continues {parent}, and not {sorted(skipped)}")
        if manifest.epoch > epoch:
            found.append(f"manifest {number} is of epoch {manifest.epoch}, and the newest one is {epoch}")
        before = self.manifests.get(parent)
        if before is not None and manifest.round < before.round:
            found.append(f"manifest {number} is of round {manifest.round}, its parent of {before.round}")
        self.manifests[number] = manifest
        self._newest = max(self._newest, number)
        return found

    def remove(self, number: int) -> list[str]:
        """One has been deleted."""
        needed = {manifest.number for manifest in self.last}
        self.manifests.pop(number, None)
        self._collected.add(number)
        return [f"manifest {number} was deleted, and is one of the last {self._keep}"] * (number in needed)

    def missing(self, sizes: Mapping[str, int], damaged: Collection[str] = ()) -> list[str]:
        """Objects of the last K that are not there, or not whole. ``sizes``: of the job's objects, by key."""
        refs = {ref.key: ref.bytes for manifest in self.last for ref in manifest.objects}
        wrong = [key for key, size in refs.items() if sizes.get(key) != size and key not in damaged]
        return [f"{key} is needed, and has {sizes.get(key, 'no')} bytes" for key in sorted(wrong)]
