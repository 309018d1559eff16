"""Rows that have changed are saved alone; blocks come back from them as they were copied (docs/adr/029)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar import tables
from scar.blocks import Ids
from scar.errors import CorruptCheckpoint, ObjectNotFound
from scar.keyed_rows import mix_keys
from scar.placement import BlockSource, Epoch
from scar.tables import Job, Table
from scar_checkpoint.compactor import Compactor
from scar_ps.core import events
from scar_ps.core.block_data import BlockContents, CopiedBlocks
from scar_ps.core.block_store import BlockStore, Mask, StoreSlice
from scar_ps.core.distances import block_distances
from scar_ps.core.requests import StagedPush
from scar_ps.core.row_changes import INITIAL, MOST_ROUNDS, UNKNOWN
from scar_ps.epoch_sync import prepare_memory
from scar_ps.wire.saved_payloads import split_payloads
from scar_runtime.checkpoint import object_reader
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.header_reader import read_header
from scar_runtime.checkpoint.initial_arrays import initial_contents
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.manifest_codec import create_manifest
from scar_runtime.checkpoint.object_reader import damaged_blocks, read_blocks, verify_object
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, ObjectHeader, object_ref
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint, load_readable
from scar_runtime.store import Store, open_store
from tests.unit.ps_support import ME, DrivenShard, first_epoch, group, next_epoch, sender

UNIFORM = tables.uniform(-1, 1)
TABLES = [
    Table("w", (26, 3), rule=tables.adagrad(0.1, rowwise=True), init=UNIFORM, blocks=tables.rows(4)),
    Table("w", (24, 2), rule=tables.momentum(0.1, 0.9), init=UNIFORM, blocks=tables.rows(8)),
    Table("w", (12, 5), dtype="float64", rule=tables.sgd(0.1), blocks=tables.ragged([0, 3, 4, 9, 12])),
    Table("w", (20,), dtype="int64", rule=tables.add(), blocks=tables.rows(6)),
    Table(
        "w", keys=tables.keys(max_age=9), dim=3, capacity=200, rule=tables.momentum(0.1, 0.9), init=UNIFORM
    ),
]


class Saving:
    """A shard that trains, and the running checkpoint of its rounds, in a store. ``expected``: what that has
    of each block.
    """

    def __init__(self, table: Table, folder: Path, lasting: bool) -> None:
        self.job = Job("test", [table], seed=3, consistency="asp")
        self.table = table
        self.store: Store = open_store(f"file://{folder}").under("test")
        self.running = RunningCheckpoint(self.job)
        self.expected = [self.initial(block) for block in range(table.blocks)]
        self.shard = DrivenShard(ME)
        self._lasting = lasting
        self._seq = 0
        self._round = 0
        self._compactions = 0
        self.epoch = first_epoch(self.job)
        self.adopt(self.epoch)

    def initial(self, block: int) -> BlockPayload:
        found = initial_contents(self.store, self.job, "w", np.array([block], np.uint32))
        return BlockPayload(*found, np.zeros(1, np.int64))

    @property
    def blocks(self) -> BlockStore:
        return self.shard.ownership.tables["w"]

    def adopt(self, epoch: Epoch) -> None:
        ids = epoch.owned("w", 0)
        held = self.shard.ownership.tables.get("w")
        memories = {"w": prepare_memory(self.table, ids, held)} if self._lasting else {}
        self.shard.handle(events.EpochReceived(epoch, self.job, complete=True, memories=memories))
        for load in self.shard.started_loads():
            if load.source is BlockSource.INITIAL:
                contents = BlockContents(self.table.initial(self.job.seed, load.ids))
            else:
                contents = self.saved_contents(load.ids)
            self.shard.install(load, contents)
        self.shard.settle(sender(0), epoch.number)
        self.epoch = epoch

    def saved_contents(self, ids: Ids) -> BlockContents:
        found = [self.expected[block] for block in ids.tolist()]
        slots = {name: np.concatenate([one.slots[name] for one in found]) for name in self.table.slots}
        return BlockContents(np.concatenate([one.values for one in found]), slots, np.zeros(len(ids), int))

    def push(self, part: StoreSlice) -> None:
        self._seq += 1
        parts = {"w": part}
        self.shard.push(StagedPush(sender(0), self.shard.number, self._seq, self._seq, self._round, parts))

    def push_rows(self, drawn: np.random.Generator) -> None:
        store = self.blocks
        if self.table.keys is None:
            rows = np.unique(drawn.integers(0, store.row_counts.elements, drawn.integers(1, 5)))
        else:
            rows = np.unique(mix_keys(drawn.integers(0, 300, drawn.integers(1, 40))))
            rows = rows[store.find_row_blocks(rows) >= 0]
        positions = np.unique(store.find_row_blocks(rows))
        at = None if len(positions) == len(store) else positions
        pushed = drawn.integers(1, 9, len(rows) * self.table.row_elements).astype(self.table.dtype)
        self.push(StoreSlice(store, at, pushed, rows))

    def push_block(self, drawn: np.random.Generator) -> None:
        if self.table.keys is not None:
            return self.push_rows(drawn)
        store = self.blocks
        at = np.array([drawn.integers(len(store))])
        pushed = drawn.integers(1, 9, store.layout.count_elements(at)).astype(self.table.dtype)
        return self.push(StoreSlice(store, None if len(store) == 1 else at, pushed))

    def begin_round(self, chosen: set[int] | None, changed_rows: bool = True) -> list[CopiedBlocks]:
        """The copy of those that have changed; empty: of none."""
        self._round += 1
        number = self._round
        candidates = self.shard.begin_round(self.shard.number, number, 0, by_distance=True)
        for one in candidates:
            one.distances = block_distances(one.store, one.positions)
        self.shard.measured(self.shard.number, candidates)
        found = self.shard.candidates(self.shard.number, number)
        wanted = [(one.store, one.positions[self.is_wanted(one.ids, chosen)]) for one in found]
        listed = frozenset(ref.key for ref in self.running.objects if ref.owner == ME.key)
        return self.shard.begin_copy(self.shard.number, number, wanted, listed if changed_rows else None)

    @staticmethod
    def is_wanted(ids: Ids, chosen: set[int] | None) -> Mask:
        return np.ones(len(ids), bool) if chosen is None else np.isin(ids, list(chosen))

    def finish(self, copied: list[CopiedBlocks], end: str) -> ObjectRef | None:
        while self.shard.copy_piece(copied):
            pass
        if end == "miss":
            self.shard.miss_round(copied)
            return None
        groups = [pair for one in copied for pair in split_payloads(self.table, one)]
        groups = [(replace(state, owner=ME.key), payload) for state, payload in groups]
        if not sum(len(state.ids) for state, _ in groups):
            self.shard.finish_round(self._round, False)
            return None
        encoded = EncodedObject(self.job, groups)
        key = f"objects/{self._round:04d}"
        self.store.put_pieces(key, encoded.pieces())
        ref = object_ref(key, encoded, [state for state, _ in groups], ME.key, self.epoch.number, self._round)
        self.shard.uploaded(self.shard.number, copied, saved=ref)
        if end == "commit":
            self.commit(ref, copied)
        self.shard.finish_round(self._round, end == "commit", object_key=key)
        return ref

    def commit(self, ref: ObjectRef, copied: list[CopiedBlocks]) -> None:
        header = HeaderCache(self.store, self.job).find(ref)
        assert self.running.lists_all(header.baselines)
        self.running = self.running.extended([(ref, header)], Manifest(self._round, job="test"))
        for one in copied:
            layout = self.table.layout.take(one.state.ids.astype(np.int64))
            slots = {
                name: (slot, self.table.slot_layout(name).take(one.state.ids.astype(np.int64)))
                for name, slot in one.contents.slots.items()
            }
            for position, block in enumerate(one.state.ids.tolist()):
                at = np.array([position])
                self.expected[block] = BlockPayload(
                    layout.gather(one.contents.values, at),
                    {name: of.gather(slot, at) for name, (slot, of) in slots.items()},
                    np.zeros(1, np.int64),
                )

    def compact(self, drawn: np.random.Generator) -> None:
        """Objects are rewritten, and what is not listed any more goes."""
        free = [
            index for index, ref in enumerate(self.running.objects) if ref.key not in self.running.baselines()
        ]
        picked = sorted(drawn.permutation(free)[:2].tolist())
        if not picked:
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.running, "plan_compaction", lambda: picked)
            rewrite = Compactor(self.store, self.job, "me@aa").compact_objects(self.running, 1)
        assert rewrite is not None
        self._compactions += 1
        rewrite = replace(rewrite, ref=replace(rewrite.ref, key=f"objects/compact-{self._compactions}"))
        raw = self.store.get(f"objects/compact-{self.running.manifest.number:08d}-me@aa")
        self.store.put(rewrite.ref.key, raw)
        after = rewrite.apply_to(self.running, self.running.manifest.number)
        assert after is not None
        self.running = after
        listed = {ref.key for ref in after.objects}
        for key in self.store.list("objects/"):
            if key not in listed:
                self.store.delete(key)

    def move(self, drawn: np.random.Generator) -> None:
        """A block leaves, or comes back as it was saved."""
        block = np.array([drawn.integers(self.table.blocks)], np.uint32)
        if self.epoch.owners["w"][block[0]] == 0:
            self.adopt(next_epoch(self.epoch, lost={"w": block}))
        else:
            moved = [group("w", block, source=BlockSource.OBJECT)]
            self.adopt(next_epoch(self.epoch, {"w": block}, moved=moved))

    def check(self) -> None:
        """What is read is what was copied."""
        every = np.arange(self.table.blocks, dtype=np.uint32)
        for origin in self.running.origins("w", every):
            if origin.index < 0:
                continue
            ref = self.running.objects[origin.index]
            header = self.running.headers[origin.index]
            found = read_blocks(self.store, ref, header, self.job, "w", origin.group.ids)
            expected = [self.expected[block] for block in origin.group.ids.tolist()]
            assert found.values.tobytes() == np.concatenate([one.values for one in expected]).tobytes()
            for name in self.table.slots:
                together = np.concatenate([one.slots[name] for one in expected])
                assert found.slots[name].tobytes() == together.tobytes()


STEPS = [
    *["rows"] * 6, "block", "commit", "commit", "commit", "whole", "miss", "lose", "compact", "move",
    "move in between", "forget",
]  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(
    table=st.sampled_from(TABLES),
    lasting=st.booleans(),
    steps=st.lists(st.sampled_from(STEPS), min_size=5, max_size=40),
    seed=st.integers(0, 1 << 30),
)
def test_blocks_come_back_as_they_were_copied_whatever_happens_between(
    tmp_path_factory: pytest.TempPathFactory, table: Table, lasting: bool, steps: list[str], seed: int
) -> None:
    drawn = np.random.default_rng(seed)
    saving = Saving(table, tmp_path_factory.mktemp("store"), lasting)
    for step in steps:
        if step in ("rows", "block") and len(saving.blocks):
            saving.push_rows(drawn) if step == "rows" else saving.push_block(drawn)
        elif step == "forget":
            saving.shard.ownership.forget_saved()
        elif step == "compact":
            saving.compact(drawn)
        elif step == "move":
            saving.move(drawn)
        elif step not in ("rows", "block"):
            chosen = set(drawn.integers(0, table.blocks, 3).tolist()) if drawn.random() < 0.5 else None
            copied = saving.begin_round(chosen, step != "whole")
            if len(saving.blocks) and drawn.random() < 0.5:
                saving.push_rows(drawn)
            if step == "move in between":
                saving.move(drawn)
                continue
            saving.finish(copied, {"miss": "miss", "lose": "lose"}.get(step, "commit"))
        saving.check()


def saved_rows(saving: Saving, ref: ObjectRef) -> list[tuple[list[int], list[int] | None]]:
    """Blocks of each group, and how many rows of each; None: whole."""
    header = HeaderCache(saving.store, saving.job).find(ref)
    return [
        (one.group.ids.tolist(), None if one.counts is None else one.counts.tolist())
        for one in header.sections
    ]


def round_of(saving: Saving, *rows: int, end: str = "commit", changed_rows: bool = True) -> ObjectRef:
    store = saving.blocks
    at = np.array(rows, np.int64)
    saving.push(
        StoreSlice(
            store,
            np.unique(store.find_row_blocks(at)),
            np.ones(len(at) * saving.table.row_elements, saving.table.dtype),
            at,
        )
    )
    ref = saving.finish(saving.begin_round(None, changed_rows), end)
    assert ref is not None
    return ref


@pytest.fixture
def saving(tmp_path: Path) -> Saving:
    return Saving(TABLES[0], tmp_path, lasting=True)  # rows 0 to 3 are block 0, 4 to 7 block 1, and so on


def test_rows_that_changed_are_saved_alone_until_that_takes_as_much_as_their_block(saving: Saving) -> None:
    assert saved_rows(saving, round_of(saving, 0, 5, 6)) == [([0, 1], [1, 2])]
    assert saved_rows(saving, round_of(saving, 1)) == [([0], [2])], "and those that were saved before"
    assert saved_rows(saving, round_of(saving, 2)) == [([0], None)], "one, two and three rows are six of four"
    assert saved_rows(saving, round_of(saving, 3, 4)) == [([1], None), ([0], [1])]
    saving.check()


def test_however_few_rows_change_a_block_is_saved_whole_now_and_then(tmp_path: Path) -> None:
    """So that what is damaged in the store is not built on for ever."""
    table = Table("w", (2048, 1), rule=tables.add(), blocks=tables.rows(1024))
    saving = Saving(table, tmp_path, lasting=False)
    rounds = range(3 * MOST_ROUNDS)
    assert all(saved_rows(saving, round_of(saving, 5)) == [([0], [1])] for _ in rounds), "x(0) is safe"
    round_of(saving, *range(1024))
    whole = [saved_rows(saving, round_of(saving, 5)) == [([0], None)] for _ in rounds]
    assert 2 <= sum(whole) <= 4
    assert np.diff(np.flatnonzero([True, *whole])).max() <= MOST_ROUNDS


def test_a_round_that_came_to_nothing_is_no_baseline_and_rows_that_it_had_are_saved_again(
    saving: Saving,
) -> None:
    round_of(saving, 0)
    round_of(saving, 4, 5, 6, 7)
    assert saved_rows(saving, round_of(saving, 1, 4, end="lose")) == [([0], [2]), ([1], [1])]
    assert saved_rows(saving, round_of(saving, 8)) == [([0], None), ([2], [1]), ([1], [1])]
    assert saved_rows(saving, round_of(saving, 12, 13, 14, 15, end="lose")) == [([3], None)]
    assert saved_rows(saving, round_of(saving, 16)) == [([3], None), ([4], [1])]
    saving.check()


def test_where_whole_blocks_are_wanted_they_are_saved(saving: Saving) -> None:
    assert saved_rows(saving, round_of(saving, 0, changed_rows=False)) == [([0], None)]
    assert saved_rows(saving, round_of(saving, 1)) == [([0], [1])], "which the next has for a baseline"


def test_what_is_put_in_its_place_has_no_baseline(saving: Saving) -> None:
    store = saving.blocks
    assert store.row_changes is not None
    at = np.array([1, 3])
    store.install_blocks(at, store.copy_blocks(at))
    assert store.row_changes.baselines.tolist() == [INITIAL, UNKNOWN, INITIAL, UNKNOWN, *[INITIAL] * 3]


def test_what_is_listed_no_more_is_no_baseline(saving: Saving) -> None:
    round_of(saving, 0, 1, 2, 3)
    assert saved_rows(saving, round_of(saving, 0)) == [([0], [1])]
    saving.running = RunningCheckpoint(saving.job)
    assert saved_rows(saving, round_of(saving, 1)) == [([0], None)]


def test_a_baseline_stays_listed_while_a_block_needs_it_and_no_longer(saving: Saving) -> None:
    baseline = round_of(saving, 0, 1, 2, 3)
    changed = round_of(saving, 0)
    assert [ref.key for ref in saving.running.objects] == [baseline.key, changed.key]
    assert saving.running.live().tolist() == [0, 1]
    whole = round_of(saving, 1, 2, 3)
    assert [ref.key for ref in saving.running.objects] == [whole.key]


def test_a_compaction_leaves_what_a_newer_round_needs(saving: Saving) -> None:
    first = round_of(saving, 0, 1, 2, 3, 4, 5, 6, 7)
    second = round_of(saving, 8, 9, 10, 11)
    before = saving.running
    newest = round_of(saving, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(before, "plan_compaction", lambda: [0, 1])
        rewrite = Compactor(saving.store, saving.job, "me@aa").compact_objects(before, 1)
    assert rewrite is not None
    after = rewrite.apply_to(saving.running, 3)
    assert after is not None
    assert [ref.key for ref in after.objects] == [first.key, rewrite.ref.key, newest.key]
    assert second.key not in {ref.key for ref in after.objects}
    saving.running = after
    saving.check()
    assert 0 not in after.plan_compaction()


def test_a_compaction_reads_a_baseline_once_and_does_not_keep_it(
    saving: Saving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator has the headers of all objects for as long as they are listed."""
    baseline = round_of(saving, *range(8))
    round_of(saving, 0)
    round_of(saving, 4)
    read, headers = object_reader.read_header, list[str]()

    def counted(store: Store, ref: ObjectRef, job: Job) -> ObjectHeader:
        headers.append(ref.key)
        return read(store, ref, job)

    monkeypatch.setattr(object_reader, "read_header", counted)
    monkeypatch.setattr(saving.running, "plan_compaction", lambda: [1, 2])
    assert Compactor(saving.store, saving.job, "me@aa").compact_objects(saving.running, 1) is not None
    assert headers == [baseline.key]
    assert [one.baseline_headers for one in saving.running.headers] == [{}, {}, {}]


def test_changes_of_what_has_a_damaged_header_hold_nothing(saving: Saving) -> None:
    whole = [round_of(saving, *range(4 * block, 4 * block + 4)) for block in (0, 1)]
    round_of(saving, 0, 16)
    manifest = replace(saving.running.manifest, number=1, objects=(whole[0], *saving.running.objects[1:]))
    create_manifest(saving.store, manifest)
    raw = bytearray(saving.store.get(whole[0].key))
    raw[20] ^= 1
    saving.store.delete(whole[0].key)
    saving.store.put(whole[0].key, bytes(raw))
    found = load_readable(saving.store, saving.job, HeaderCache(saving.store, saving.job), seconds=0)
    assert found.unreadable == [whole[0].key]
    assert [ref.key for ref in found.objects] == [whole[1].key]


@pytest.mark.parametrize("gone", [False, True])
def test_a_block_whose_baseline_is_damaged_is_damaged(saving: Saving, gone: bool) -> None:
    first = round_of(saving, 0, 1, 2, 3)
    ref = round_of(saving, 0, 4)
    header = HeaderCache(saving.store, saving.job).find(ref)
    raw = bytearray(saving.store.get(first.key))
    raw[-9] ^= 1
    saving.store.delete(first.key)
    if not gone:
        saving.store.put(first.key, bytes(raw))
    ids = np.array([0, 1], np.uint32)
    assert damaged_blocks(saving.store, ref, header, saving.job, "w", ids).tolist() == [0]
    read_blocks(saving.store, ref, header, saving.job, "w", ids[1:])
    with pytest.raises(ObjectNotFound if gone else CorruptCheckpoint):
        verify_object(saving.store, ref, saving.job)


def test_a_header_that_counts_more_rows_than_a_block_has_is_refused(saving: Saving) -> None:
    ref = round_of(saving, 0)
    raw = bytearray(saving.store.get(ref.key))
    raw[ref.header_bytes - 36] = 5
    saving.store.delete(ref.key)
    saving.store.put(ref.key, bytes(raw))
    forged = replace(ref, digest=hashlib.sha256(raw[: ref.header_bytes]).digest())
    with pytest.raises(CorruptCheckpoint, match="counts of changed rows"):
        read_header(saving.store, forged, saving.job)


def test_a_row_that_its_block_has_not_is_refused(saving: Saving) -> None:
    ref = round_of(saving, 0)
    raw = bytearray(saving.store.get(ref.key))
    raw[ref.bytes - 12] = 4  # before the step
    digest = hashlib.sha256(raw[ref.header_bytes :]).digest()
    raw[ref.header_bytes - 32 : ref.header_bytes] = digest
    saving.store.delete(ref.key)
    saving.store.put(ref.key, bytes(raw))
    forged = replace(ref, digest=hashlib.sha256(raw[: ref.header_bytes]).digest())
    header = read_header(saving.store, forged, saving.job)
    with pytest.raises(CorruptCheckpoint, match="numbers of changed rows"):
        read_blocks(saving.store, forged, header, saving.job, "w", np.array([0], np.uint32))
