"""Failures without processes: theorems 4.1 and 4.2 on the real recovery code, and what comes back from
where.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scar
from experiments.simulation import (
    BlockLoss,
    CheckpointSimulator,
    LostBlocks,
    ModelState,
    copy_state,
    initial_state,
    moved_distances,
    perturbation_norm,
    restore_values,
)
from scar.strategies import variant_options
from scar.tables import Checkpoint, Job
from scar_ps.core.update_rules import apply_push

FULL = Checkpoint("full", 1.0, 4)


def job(checkpoint: Checkpoint = FULL, recovery: str = "partial", seed: int = 3, block_rows: int = 1) -> Job:
    tables = [
        scar.Table("w", (12, 3), init=scar.normal(0.0, 1.0), blocks=scar.rows(block_rows)),
        scar.Table("v", (9,), rule=scar.adam(), blocks=scar.ragged([0, 2, 3, 9])),
    ]
    return Job("job", tables, seed=seed, checkpoint=checkpoint, recovery=recovery)


def train(state: ModelState, draw: np.random.Generator) -> None:
    for store in state.values():
        apply_push(store, None, draw.normal(size=len(store.values)).astype(np.float32), lambda: None)


def trained(spec: Job, clocks: int, seed: int) -> tuple[ModelState, CheckpointSimulator]:
    state, draw = initial_state(spec), np.random.default_rng(seed)
    saver = CheckpointSimulator(spec, state)
    for clock in range(1, clocks + 1):
        train(state, draw)
        saver.run_due_round(clock)
    train(state, draw)
    return state, saver


@settings(max_examples=60)
@given(
    selection=st.sampled_from(["priority", "round", "random", "full"]),
    fraction=st.sampled_from([1.0, 0.5, 0.25, 0.125]),
    lost=st.floats(0, 1),
    clocks=st.integers(0, 13),
    seed=st.integers(0, 99),
    block_rows=st.sampled_from([1, 5]),
)
def test_partial_recovery_never_perturbs_more_than_putting_all_of_the_checkpoint_back(
    selection, fraction, lost, clocks, seed, block_rows
):
    """Theorem 4.1."""
    spec = job(Checkpoint(selection, fraction, 4), block_rows=block_rows)
    state, saver = trained(spec, clocks, seed)
    part = saver.recover_lost(BlockLoss(lost).draw_lost(spec, np.random.default_rng(seed)))
    whole = saver.recover_lost(BlockLoss(1.0).draw_lost(spec, np.random.default_rng(seed)))
    assert perturbation_norm(state, part) <= perturbation_norm(state, whole) * (1 + 1e-6)


@pytest.mark.parametrize("block_rows", [1, 5])
@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.77])
def test_the_expected_square_of_the_perturbation_is_the_lost_fraction(fraction, block_rows):
    """Theorem 4.2."""
    spec = job(block_rows=block_rows)
    state, saver = trained(spec, 6, seed=1)
    whole = (
        perturbation_norm(state, saver.recover_lost(BlockLoss(1.0).draw_lost(spec, np.random.default_rng(0))))
        ** 2
    )
    draw = np.random.default_rng(7)
    squares = [
        perturbation_norm(state, saver.recover_lost(BlockLoss(fraction).draw_lost(spec, draw))) ** 2
        for _ in range(400)
    ]
    error = float(np.std(squares) / np.sqrt(len(squares)))
    assert np.mean(squares) == pytest.approx(fraction * whole, abs=4 * error)


def test_survivors_keep_their_values_and_slots_and_lost_blocks_are_those_of_the_checkpoint():
    spec = job()
    state, saver = trained(spec, 5, seed=2)
    before = copy_state(state)
    reference, _ = trained(spec, 3, seed=2)  # after four steps, which is what the checkpoint holds
    lost = BlockLoss(0.5).draw_lost(spec, np.random.default_rng(1))
    after = saver.recover_lost(lost)
    for name, store in after.items():
        gone = np.isin(store.ids, lost.get(name, np.empty(0, np.uint32)))
        for block in store.ids.tolist():
            span = slice(int(store.layout.starts[block]), int(store.layout.starts[block + 1]))
            source = reference[name] if gone[block] else before[name]
            assert (store.values[span] == source.values[span]).all()
            assert all(
                (slot[span] == source.slots[slot_name][span]).all() for slot_name, slot in store.slots.items()
            )
            assert store.steps[block] == source.steps[block]
        assert (state[name].values == before[name].values).all(), "the training goes on undisturbed"


def test_before_the_first_round_lost_blocks_are_at_their_start():
    spec = job()
    _, saver = trained(spec, 2, seed=2)
    after = saver.recover_lost(BlockLoss(1.0).draw_lost(spec, np.random.default_rng(1)))
    for name, store in initial_state(spec).items():
        assert (after[name].values == store.values).all()
        assert not after[name].steps.any()


def test_full_recovery_puts_everything_back_whatever_was_lost():
    spec = job(recovery="full")
    _, saver = trained(spec, 5, seed=2)
    reference, _ = trained(spec, 3, seed=2)
    after = saver.recover_lost(BlockLoss(0.2).draw_lost(spec, np.random.default_rng(1)))
    assert all((after[name].values == store.values).all() for name, store in reference.items())


def test_several_policies_watch_one_training():
    state, draw = initial_state(job()), np.random.default_rng(5)
    savers = [
        CheckpointSimulator(job(replace(FULL, selection="priority", fraction=r)), state) for r in (1.0, 0.5)
    ]
    for clock in range(1, 8):
        train(state, draw)
        for saver in savers:
            saver.run_due_round(clock)
    everything = BlockLoss(1.0).draw_lost(job(), draw)
    far = [perturbation_norm(state, saver.recover_lost(everything)) for saver in savers]
    assert far[1] < far[0], "it was saved from later"


@given(fraction=st.floats(0, 1), seed=st.integers(0, 999))
def test_a_loss_is_as_large_as_it_says(fraction, seed):
    spec = job()
    lost = BlockLoss(fraction).draw_lost(spec, np.random.default_rng(seed))
    count = sum(len(ids) for ids in lost.values())
    assert abs(count - fraction * spec.blocks) < 1


def test_workers_give_back_exact_blocks_where_there_are_no_slots_and_a_replica_has_the_rest() -> None:
    def recovered(recovery: str) -> tuple[Job, ModelState, ModelState, LostBlocks]:
        spec = replace(job(), **variant_options(recovery))
        state, saver = trained(spec, 5, seed=2)
        lost = BlockLoss(0.5).draw_lost(spec, np.random.default_rng(1))
        assert set(lost) == {"w", "v"}
        saver.run_due_round(6)  # the clock that ``trained`` has not told; no round is due
        return spec, state, saver.recover_lost(lost), lost

    _, state, after, _ = recovered("partial-workers")
    _, _, saved, _ = recovered("partial")
    assert moved_distances(state, after)["w"].max() == 0
    assert moved_distances(state, saved)["w"].max() > 0
    assert (after["v"].values == saved["v"].values).all(), "values without their slots are no source"
    assert (after["v"].steps == saved["v"].steps).all()
    for recovery in ("partial-missing", "partial-slots"):
        _, state, after, _ = recovered(recovery)
        for name, store in after.items():
            assert (store.values == state[name].values).all()
            assert (store.steps == state[name].steps).all()
            assert all((slot == state[name].slots[key]).all() for key, slot in store.slots.items())


@pytest.mark.parametrize("reset", [True, False])
def test_values_can_be_restored_without_their_slots(reset: bool) -> None:
    spec = job()
    state, saver = trained(spec, 5, seed=2)
    lost = {"v": np.array([0, 2], np.uint32)}
    after, saved = saver.recover_lost(lost), saver.recover_lost(lost)
    restore_values(after, state, lost, reset)
    assert perturbation_norm(state, after) == 0
    for key, slot in after["v"].slots.items():
        assert (slot[2:3] == state["v"].slots[key][2:3]).all(), "the block in between was not lost"
        assert (slot[3:] == (0 if reset else saved["v"].slots[key][3:])).all()
    assert after["v"].steps.tolist() == [0 if reset else 4, 6, 0 if reset else 4]
