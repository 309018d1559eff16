"""The running checkpoint: for each block the newest listed object that holds it; a block in none is at x(0).
Of a block of which that one has changed rows alone the others are in an older object, which stays listed.

    running = load_newest(store, job)                       # or load_running(store, job, manifest)
    for origin in running.origins("w", lost):               # where each block comes from
        ...

:class:`RunningCheckpoint` is pure; the functions below it read manifests and headers. Objects are never
changed, so headers are cached by key for as long as a manifest names them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from scar.blocks import BlockState, Ids, positions_of
from scar.errors import CorruptCheckpoint, ObjectNotFound
from scar.tables import Job
from scar_runtime.checkpoint.block_records import block_format
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.manifest_codec import read_manifest
from scar_runtime.checkpoint.objects import ObjectHeader
from scar_runtime.store import Store
from scar_runtime.store.layout import MANIFESTS
from scar_runtime.store.records import numbers, reread

CHANGES_DEAD = 8  # times its live blocks, whole, that an object of changed rows has to have: they soon go
FEW = 8  # mostly dead objects that are worth rewriting
MANY = 128  # objects that make a manifest long
REREAD_SECONDS = 0.2  # before a damaged header is read again
REWRITE_BYTES = 64 << 20  # live bytes that one compaction may hold in memory

SourceIndex = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class CheckpointOrigin:
    """Blocks that come from one group of one object (``index`` into :attr:`RunningCheckpoint.objects`), or
    from x(0) (-1).
    """

    index: int
    group: BlockState


class RunningCheckpoint:
    """What a manifest says about every block of ``job``. ``manifest`` is the one it was read from; number 0:
    only x(0).

    ``passed_over``: numbers of newer manifests that were damaged when it was read. ``unreadable``: keys of
    objects that the manifest names and that hold nothing here, since their headers are damaged or gone.
    """

    def __init__(self, job: Job, manifest: Manifest | None = None) -> None:
        self.job = job
        self.manifest = manifest or Manifest(job=job.name)
        self.passed_over: list[int] = []
        self.unreadable: list[str] = []
        self.objects: list[ObjectRef] = []
        self.headers: list[ObjectHeader] = []
        self._source: dict[str, SourceIndex] = {
            table.name: np.full(table.blocks, -1, np.int32) for table in job.tables
        }

    def append(self, ref: ObjectRef, header: ObjectHeader) -> None:
        """A newer object: it wins for every block that it holds."""
        for group in header.groups:
            self._source[group.table][group.ids] = len(self.objects)
        self.objects.append(ref)
        self.headers.append(header)

    def extended(
        self, found: Iterable[tuple[ObjectRef, ObjectHeader]], manifest: Manifest
    ) -> RunningCheckpoint:
        """A copy with newer objects and without those that hold no live block any more; ``manifest``
        becomes its manifest.
        """
        wider = RunningCheckpoint(self.job, manifest)
        wider.objects = list(self.objects)
        wider.headers = list(self.headers)
        wider._source = {table: source.copy() for table, source in self._source.items()}
        for ref, header in found:
            wider.append(ref, header)
        wider._drop_garbage()
        return wider

    def listed_by(self, manifest: Manifest) -> RunningCheckpoint:
        """The same objects, which this manifest lists."""
        same = copy(self)
        same.manifest = manifest
        same.passed_over = []
        same.unreadable = []
        return same

    def sources(self, table: str, ids: Ids) -> SourceIndex:
        """For each block the index of its object; -1: x(0)."""
        return self._source[table][ids]

    def origins(self, table: str, ids: Ids) -> list[CheckpointOrigin]:
        """``ids`` (ascending) by where they come from, with clock and watermark; x(0) first, then older
        objects first.
        """
        source = self.sources(table, ids)
        found = []
        order = np.argsort(source, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(source[order])) + 1):
            if not len(part):
                continue
            index = int(source[part[0]])
            mine = ids[part]
            if index < 0:
                found.append(CheckpointOrigin(-1, BlockState(table, mine, 0, {}, "")))
                continue
            for group in self.headers[index].groups:
                inside = mine[positions_of(group.ids, mine) >= 0] if group.table == table else mine[:0]
                if len(inside):
                    found.append(
                        CheckpointOrigin(
                            index, BlockState(table, inside, group.clock, group.watermark, group.owner)
                        )
                    )
        return found

    def lists_all(self, keys: Iterable[str]) -> bool:
        return set(keys) <= {ref.key for ref in self.objects}

    def live(self) -> NDArray[np.int64]:
        """Blocks of each object that are still the newest copy."""
        return self._sum_by_object(lambda _: None).astype(np.int64)

    def live_bytes(self) -> NDArray[np.int64]:
        """Bytes of those blocks, whole."""
        tables = {table.name: table for table in self.job.tables}
        return self._sum_by_object(
            lambda name: block_format(tables[name]).record_sizes(tables[name].layout.sizes)
        ).astype(np.int64)

    def baselines(self) -> set[str]:
        """Keys of objects of which the newest copy of some block has only what has changed since."""
        return {key for key, _, _ in self._pins()}

    def _pins(self) -> Iterator[tuple[str, int, int]]:
        """Of each such object the index of one that has its changes, and whole bytes of their blocks."""
        for index, header in enumerate(self.headers):
            for section in header.sections:
                if section.baseline is not None:
                    group = section.group
                    live = group.ids[self._source[group.table][group.ids] == index]
                    if len(live):
                        yield section.baseline.key, index, self._whole_bytes(group.table, live)

    def _whole_bytes(self, table: str, ids: Ids) -> int:
        of = self.job.table(table)
        return int(block_format(of).record_sizes(of.layout.sizes[ids]).sum())

    def covered_by(self, keys: set[str]) -> bool:
        """True when every block comes from one of these objects."""
        # index -1, x(0), is never inside
        inside = np.array([ref.key in keys for ref in self.objects] + [False])
        return all(bool(inside[source].all()) for source in self._source.values())

    def plan_compaction(self, limit: int = REWRITE_BYTES) -> list[int]:
        """Objects whose live blocks should be rewritten as one, whole, by index, ascending; empty: nothing to
        do.

        Mostly dead objects when there are enough of them, and those that have changes of one that is mostly
        dead; else, when the manifest is long, its smaller half. Never more than ``limit`` live bytes, and
        none that stays listed, as others have only what has changed since.
        """
        live = self.live_bytes()
        pins = list(self._pins())
        picked = self._mostly_dead(live, pins)
        if len(picked) < FEW:
            picked = np.flatnonzero(live > 0)
            half = len(picked) // 2 if len(self.objects) > MANY else 0
            picked = picked[np.argsort(live[picked], kind="stable")][:half]
        picked = picked[np.argsort(live[picked], kind="stable")]
        chosen = set(picked[np.cumsum(live[picked]) <= limit].tolist())
        kept = {key for key, index, _ in pins if index not in chosen}
        found = [index for index in sorted(chosen) if self.objects[index].key not in kept]
        return found if len(found) > 1 else []

    def _mostly_dead(self, live: NDArray[np.int64], pins: list[tuple[str, int, int]]) -> NDArray[np.intp]:
        """Those with live blocks, whose bytes are ``live``; and what has changes of one that is mostly dead,
        which goes when they do.
        """
        at = {ref.key: index for index, ref in enumerate(self.objects)}
        pins = [pin for pin in pins if pin[0] in at]
        used = live.copy()
        for key, _, needed in pins:
            used[at[key]] += needed
        size = np.array([ref.bytes - ref.header_bytes for ref in self.objects], dtype=np.int64)
        times = np.array([CHANGES_DEAD if header.has_changes else 2 for header in self.headers])
        dead = (used > 0) & (times * used < size)
        dead[[index for key, index, _ in pins if dead[at[key]]]] = True
        return np.flatnonzero(dead & (live > 0))

    def rewritten(
        self, old: set[str], base: set[str], ref: ObjectRef, header: ObjectHeader
    ) -> RunningCheckpoint:
        """A copy in which the object ``ref`` stands for the objects ``old`` (keys) of the manifest that
        listed ``base``.

        It takes the place after the rest of ``base`` and before everything newer, so it wins where the old
        ones were the newest, and only there. Old ones of which a newer object has only what has changed since
        stay. Raises :class:`CorruptCheckpoint` if a block would get lost, or
        newer: who found an old one damaged has listed the rest without it, and put older copies back.
        """
        listed = list(zip(self.objects, self.headers, strict=True))
        after = RunningCheckpoint(self.job, self.manifest)
        needed = {key for one, header in listed if one.key not in old for key in header.baselines}
        for entry in [
            *(one for one in listed if one[0].key in base and one[0].key not in old - needed),
            (ref, header),
            *(one for one in listed if one[0].key not in base),
        ]:
            after.append(*entry)
        replaced = np.array([one.key in old for one in self.objects] + [False])
        stands = np.array([one.key == ref.key for one in after.objects] + [False])
        if any(
            (replaced[self._source[table]] != stands[after._source[table]]).any() for table in self._source
        ):
            raise CorruptCheckpoint(f"{ref.key} does not hold just the blocks of what it replaces")
        after._drop_garbage()
        return after

    def _sum_by_object(self, weights: Callable[[str], NDArray[np.int64] | None]) -> NDArray[np.float64]:
        total = np.zeros(len(self.objects) + 1, dtype=np.float64)
        for table, source in self._source.items():
            total += np.bincount(source + 1, weights=weights(table), minlength=len(total))
        return total[1:]

    def _drop_garbage(self) -> None:
        baselines = self.baselines()
        needed = np.array([ref.key in baselines for ref in self.objects], np.bool_)
        keep = np.flatnonzero((self.live() > 0) | needed)
        renumber = np.full(len(self.objects) + 1, -1, dtype=np.int32)
        renumber[keep] = np.arange(len(keep), dtype=np.int32)  # the last entry serves index -1
        self.objects = [self.objects[index] for index in keep]
        self.headers = [self.headers[index] for index in keep]
        self._source = {table: renumber[source] for table, source in self._source.items()}


def newest_manifest(store: Store, full: bool = False) -> Manifest | None:
    """The newest manifest that can be read; ``full``: of those that are a consistent state. None: there is no
    manifest at all.

    Raises :class:`CorruptCheckpoint` when manifests exist and none can be read.
    """
    failure: CorruptCheckpoint | None = None
    for number in reversed(numbers(store, MANIFESTS)):
        try:
            manifest = reread(partial(read_manifest, store, number))
        except CorruptCheckpoint as error:
            failure = failure or error
            continue
        except ObjectNotFound:  # collected in between
            continue
        if manifest.full or not full:
            return manifest
    if failure is not None:
        raise failure
    return None


def load_running(
    store: Store, job: Job, manifest: Manifest | int, headers: HeaderCache | None = None
) -> RunningCheckpoint:
    """The running checkpoint of this manifest (0: only x(0)). ``store`` is the job's.

    Raises what :func:`read_manifest` and :func:`scar_runtime.checkpoint.header_reader.read_header` raise.
    """
    if isinstance(manifest, int):
        manifest = read_manifest(store, manifest) if manifest else Manifest(job=job.name)
    running = RunningCheckpoint(job, manifest)
    for ref, header in zip(
        manifest.objects, (headers or HeaderCache(store, job)).get(manifest.objects), strict=True
    ):
        running.append(ref, header)
    return running


def load_readable(store: Store, job: Job, headers: HeaderCache, seconds: float) -> RunningCheckpoint:
    """What can be read of the newest running checkpoint; the owner of ``headers`` goes on from it.

    A block whose newest object has a damaged header is as an older object has it: that loses less than an
    older manifest, and nobody goes back behind a manifest by which a recovery has put blocks back. Damage is
    believed when it is still there after ``seconds``. Raises as :func:`load_newest` does, also when no object
    at all can be read.
    """
    deadline = time.monotonic() + seconds
    while True:
        running = load_newest(store, job, headers, read=_load_readable_objects)
        if not running.unreadable or time.monotonic() >= deadline:
            return running
        time.sleep(REREAD_SECONDS)


def _load_readable_objects(
    _store: Store, job: Job, manifest: Manifest, headers: HeaderCache
) -> RunningCheckpoint:
    running = RunningCheckpoint(job, manifest)
    for ref, header in zip(manifest.objects, headers.get_readable(manifest.objects), strict=True):
        if header is None:
            running.unreadable.append(ref.key)
        elif header.baselines.isdisjoint(running.unreadable):  # else what has not changed is missing
            running.append(ref, header)
    if running.unreadable and not running.objects:
        raise CorruptCheckpoint(f"no object of manifest {manifest.number} can be read")
    return running


def load_newest(
    store: Store,
    job: Job,
    headers: HeaderCache | None = None,
    full: bool = False,
    avoid: Container[int] = (),
    read: Callable[[Store, Job, Manifest, HeaderCache], RunningCheckpoint] = load_running,
) -> RunningCheckpoint:
    """The newest running checkpoint that is whole: damaged manifests and manifests with damaged objects are
    passed over, and those with a number in ``avoid``.

    Without any manifest it is x(0). Raises :class:`CorruptCheckpoint` or :class:`ObjectNotFound` when none is
    whole.
    """
    passed_over: list[int] = []
    headers = headers or HeaderCache(store, job)
    failure: CorruptCheckpoint | ObjectNotFound | None = None
    for number in reversed(numbers(store, MANIFESTS)):
        try:
            manifest = reread(partial(read_manifest, store, number))
            if (manifest.full or not full) and number not in avoid:
                running = reread(partial(read, store, job, manifest, headers))
                running.passed_over = passed_over
                return running
        except (CorruptCheckpoint, ObjectNotFound) as error:
            passed_over.append(number)
            failure = failure or error
    if failure is not None:
        raise failure
    return RunningCheckpoint(job)
