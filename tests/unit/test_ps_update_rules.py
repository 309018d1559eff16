"""Rules and block stores against a reference that treats one block after the other."""

from __future__ import annotations

import math
from dataclasses import replace
from threading import Lock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar import tables
from scar.blocks import Layout
from scar.tables import Rule, Table
from scar_ps.core import update_rules
from scar_ps.core.block_arrays import split_runs
from scar_ps.core.block_data import BlockContents
from scar_ps.core.block_store import BlockStore
from scar_ps.core.update_rules import apply_push
from tests.unit.ps_support import every_rule, ids

CUTS = [tables.rows(1), tables.rows(3), tables.layer(), tables.ragged([0, 1, 5, 6, 11])]


def reference(rule: Rule, value, pushed, slots, step):
    """One block in plain float64 arithmetic."""
    p = {"weight_decay": 0, "nesterov": 0, "momentum": 0, **rule.parameters}
    if rule.kind in OTHER_REFERENCES:
        return OTHER_REFERENCES[rule.kind](p, value, pushed, slots, step)
    if rule.kind == "adamw":
        value = value - p["lr"] * p["weight_decay"] * value
    else:
        pushed = pushed + p["weight_decay"] * value
    if rule.kind == "assign":
        return pushed.copy()
    if rule.kind == "add":
        return value + pushed
    if rule.kind == "sgd":
        return value - p["lr"] * pushed
    if rule.kind == "momentum":
        slots["velocity"] = p["momentum"] * slots["velocity"] + pushed
        move = pushed + p["momentum"] * slots["velocity"] if p["nesterov"] else slots["velocity"]
        return value - p["lr"] * move
    if rule.kind == "rmsprop":
        slots["squares"] = p["alpha"] * slots["squares"] + (1 - p["alpha"]) * pushed**2
        move = pushed / (np.sqrt(slots["squares"]) + p["eps"])
        if p["momentum"]:
            slots["velocity"] = move = p["momentum"] * slots["velocity"] + move
        return value - p["lr"] * move
    if rule.kind == "adagrad":
        slots["squares"] = slots["squares"] + pushed**2
        return value - p["lr"] * pushed / (np.sqrt(slots["squares"]) + p["eps"])
    slots["first"] = p["beta1"] * slots["first"] + (1 - p["beta1"]) * pushed
    slots["second"] = p["beta2"] * slots["second"] + (1 - p["beta2"]) * pushed**2
    first, second = slots["first"] / (1 - p["beta1"] ** step), slots["second"] / (1 - p["beta2"] ** step)
    return value - p["lr"] * first / (np.sqrt(second) + p["eps"])


def expression_reference(p, value, pushed, slots, step):
    """MOMENTUM_TEXT of ps_support."""
    slots["v"] = p["decay"] * slots["v"] + pushed
    return np.clip(value - p["lr"] / np.sqrt(step) * slots["v"], -2, 2)


def ftrl_reference(p, value, pushed, slots, _):
    """Algorithm 1 of McMahan et al. (2013), element by element."""
    found = value.copy()
    for i, (w, g) in enumerate(zip(value, pushed, strict=True)):
        n, z = slots["squares"][i], slots["linear"][i]
        sigma = (math.sqrt(n + g * g) - math.sqrt(n)) / p["lr"]
        slots["linear"][i], slots["squares"][i] = z, n = z + g - sigma * w, n + g * g
        rate = (p["beta"] + math.sqrt(n)) / p["lr"] + p["l2"]
        found[i] = 0 if abs(z) <= p["l1"] else -(z - math.copysign(p["l1"], z)) / rate
    return found


OTHER_REFERENCES = {"expression": expression_reference, "ftrl": ftrl_reference}


@settings(max_examples=120)
@given(
    rule=st.sampled_from(every_rule()),
    cut=st.sampled_from(CUTS),
    run=st.sampled_from([1, 4, 7, 1000]),
    seed=st.integers(0, 2**16),
    pushes=st.lists(st.none() | st.sets(st.integers(0, 20), min_size=1), min_size=1, max_size=4),
)
def test_every_rule_equals_a_reference_block_by_block(rule, cut, run, seed, pushes):
    table = Table("w", (11, 2), dtype="float64", rule=rule, blocks=cut)
    draw = np.random.default_rng(seed)
    owned = np.flatnonzero(draw.random(table.blocks) < 0.7).astype(np.uint32)
    owned = owned if len(owned) else ids(0)
    store = BlockStore(table, owned)
    store.values[:] = draw.normal(size=store.values.size)
    starts, counts = store.layout.starts, [0] * len(owned)
    value = [store.values[starts[i] : starts[i + 1]].copy() for i in range(len(owned))]
    slots = [{name: np.zeros_like(value[i]) for name in table.rule.slots} for i in range(len(owned))]
    whole, update_rules.RUN_ELEMENTS = update_rules.RUN_ELEMENTS, run
    try:
        for wanted in pushes:
            chosen = np.arange(len(owned)) if wanted is None else np.unique([i % len(owned) for i in wanted])
            packed = draw.normal(size=int(store.layout.sizes[chosen].sum()))
            at = 0
            for i in chosen:
                counts[i] += 1
                size = int(store.layout.sizes[i])
                value[i] = reference(table.rule, value[i], packed[at : at + size], slots[i], counts[i])
                at += size
            apply_push(
                store,
                store.locate_blocks(owned[chosen]) if wanted is not None else None,
                packed.copy(),
                lambda: None,
            )
    finally:
        update_rules.RUN_ELEMENTS = whole
    np.testing.assert_allclose(store.values, np.concatenate(value), rtol=1e-12, atol=1e-12)
    for name in table.rule.slots:
        np.testing.assert_allclose(
            store.slots[name], np.concatenate([slot[name] for slot in slots]), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rule", every_rule(), ids=lambda rule: rule.kind)
def test_a_step_keeps_the_dtype_and_scattered_equals_dense_to_the_last_bit(rule, dtype):
    table = Table("w", (40, 3), dtype=dtype, rule=rule)
    draw = np.random.default_rng(1)
    dense, scattered = (BlockStore(table, np.arange(40, dtype=np.uint32)) for _ in range(2))
    for _ in range(3):
        pushed = draw.normal(size=120).astype(dtype)
        apply_push(dense, None, pushed.copy(), lambda: None)
        rows = pushed.reshape(40, 3)
        for positions in (np.arange(0, 40, 2), np.arange(1, 40, 2)):
            apply_push(scattered, positions, rows[positions].reshape(-1).copy(), lambda: None)
    assert dense.values.dtype == np.dtype(dtype)
    assert (dense.values == scattered.values).all()
    assert all((dense.slots[name] == scattered.slots[name]).all() for name in rule.slots)


def test_integers_are_added_exactly():
    table = Table("counts", (4, 2), dtype="int64")
    store = BlockStore(table, ids(1, 3))
    apply_push(store, None, np.array([1, 2, 3, 2**40], np.int64), lambda: None)
    apply_push(store, store.locate_blocks(ids(3)), np.array([5, 1], np.int64), lambda: None)
    assert store.values.tolist() == [1, 2, 8, 2**40 + 1]


def test_progress_is_told_and_a_block_lies_within_one_locked_run(monkeypatch):
    monkeypatch.setattr(update_rules, "RUN_ELEMENTS", 4)
    table = Table("w", (12,), blocks=tables.ragged([0, 1, 2, 9, 12]))
    lock, told = Lock(), []
    store = BlockStore(table, np.arange(4, dtype=np.uint32), lock)
    apply_push(store, None, np.ones(12, np.float32), lambda: told.append(lock.locked()))
    assert told == [False] * len(split_runs(store.layout, 4))
    assert len(told) > 1


@settings(max_examples=100)
@given(sizes=st.lists(st.integers(1, 9), max_size=20), elements=st.integers(1, 30))
def test_runs_cover_every_block_once_and_stay_near_the_limit(sizes, elements):
    layout = Layout(np.array(sizes, np.int64))
    found = split_runs(layout, elements)
    assert [block for start, stop in found for block in range(start, stop)] == list(range(len(sizes)))
    for start, stop in found:
        assert stop - start == 1 or sum(sizes[start:stop]) < elements + max(sizes)


@pytest.mark.parametrize("cut", CUTS)
def test_a_copy_for_other_blocks_keeps_what_stays_and_leaves_out_what_was_gained(cut):
    table = Table("w", (11, 2), rule=tables.momentum(0.1), blocks=cut)
    every = np.arange(table.blocks, dtype=np.uint32)
    old = BlockStore(table, every[: max(1, table.blocks - 1)])
    old.values[:] = np.arange(old.values.size)
    old.saved[:] = -old.values
    old.slots["velocity"][:] = old.values * 2
    old.steps[:], old.unsettled[0], old.origin[:] = 5, True, 3
    gained = np.zeros(table.blocks, np.bool_)
    gained[-1] = table.blocks > 1
    new = old.copy_for(every, gained, lambda: None)
    stayed = int(np.count_nonzero(~gained))
    kept = int(new.layout.starts[stayed])
    assert new.values[:kept].tolist() == old.values[:kept].tolist()
    assert new.saved[:kept].tolist() == old.saved[:kept].tolist()
    assert new.slots["velocity"][:kept].tolist() == old.slots["velocity"][:kept].tolist()
    assert not any(array[kept:].any() for array in (new.values, new.saved, new.slots["velocity"]))
    assert new.steps.tolist() == [5] * stayed + [0] * (table.blocks - stayed)
    assert new.unsettled[0]
    assert new.origin[:stayed].tolist() == [3] * stayed


def test_install_fills_values_slots_steps_and_takes_values_for_saved():
    table = Table("w", (5, 1), rule=tables.adam())
    store = BlockStore(table, ids(0, 2, 4))
    store.install_blocks(
        np.array([0, 2]), BlockContents(np.float32([7, 8]), {"first": np.float32([1, 2])}, np.array([3, 4]))
    )
    assert store.values.tolist() == [7, 0, 8]
    assert store.saved.tolist() == [7, 0, 8]
    assert store.slots["first"].tolist() == [1, 0, 2]
    assert store.slots["second"].tolist() == [0, 0, 0]
    assert store.steps.tolist() == [3, 0, 4]


@pytest.mark.parametrize("rule", every_rule(), ids=lambda rule: rule.kind)
def test_a_slower_step_is_a_step_of_a_smaller_learning_rate(rule):
    pushed = np.random.default_rng(2).normal(size=12).astype(np.float32)
    rates = {"lr": rule.parameters["lr"] / 4} if "lr" in rule.parameters else {}
    slowed = replace(rule, parameters={**rule.parameters, **rates})
    stores = [
        BlockStore(Table("w", (4, 3), rule=one), np.arange(4, dtype=np.uint32)) for one in (rule, slowed)
    ]
    apply_push(stores[0], None, pushed.copy(), lambda: None, rule.at_clock(7, 0.25))
    apply_push(stores[1], None, pushed.copy(), lambda: None)
    np.testing.assert_array_equal(stores[0].values, stores[1].values)
