"""The next batch's rows and the parameters, pulled while a batch is worked on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.test_torch_embeddings import batch, build, take_step
from tests.unit.torch_shards import Member, Shards

STEPS = 8


def begin(consistency: str) -> tuple[Any, Any, Shards, Member]:
    import scar.torch

    model = build(scar.torch)
    job = scar.Job("words", scar.torch.tables(model, scar.sgd(0.1)), consistency=consistency, staleness=1)
    shards = Shards(job)
    member: Any = Member(shards, 0, 1)
    return model, scar.torch.Optimizer(member, model), shards, member


@pytest.mark.parametrize("form", [tuple, list, lambda parts: dict(zip("uwy", parts, strict=True))])
def test_a_step_waits_for_nothing_and_has_the_values_of_the_clock_before(form: Any) -> None:
    import scar.torch

    model, optimizer, shards, member = begin("ssp")
    loaded = (form(batch(step)) for step in range(STEPS))
    seen: list[np.ndarray] = []
    for clock, found in enumerate(scar.torch.prefetch(loaded, optimizer)):
        ahead, calls = len(member.ahead), member.calls
        before = shards.stores["out.bias"].values.copy()
        take_step(model, optimizer, tuple(found.values()) if isinstance(found, dict) else tuple(found))
        if clock >= 2:
            assert (member.calls, len(member.ahead)) == (calls, ahead), "nothing is pulled in this step"
            np.testing.assert_array_equal(model.out.bias.detach().numpy(), seen[-1])
        seen.append(before)
        shards.close_clock()
    assert member.ahead == [1] * (STEPS - 2)
    for name in ("user.weight", "words.weight"):
        assert shards.last_pushed[name]


def test_rows_that_came_are_those_of_their_batch() -> None:
    import scar.torch

    model, optimizer, shards, _ = begin("ssp")
    rows: list[Any] = []
    model.user.register_forward_hook(lambda _module, ids, found: rows.append((ids[0], found.detach())))
    past: list[np.ndarray] = []
    for clock, found in enumerate(scar.torch.prefetch(map(batch, range(STEPS)), optimizer)):
        past.append(shards.stores["user.weight"].values.reshape(10, -1).copy())
        take_step(model, optimizer, found)
        ids, looked_up = rows[-1]
        expected = past[-2 if clock >= 2 else -1][ids.numpy()]
        np.testing.assert_array_equal(looked_up.numpy(), expected)
        shards.close_clock()


def test_under_bsp_nothing_is_pulled_before_its_clock_and_steps_are_the_same() -> None:
    import scar.torch

    plain, optimizer, expected, _ = begin("bsp")
    for step in range(STEPS):
        take_step(plain, optimizer, batch(step))
        expected.close_clock()
    model, optimizer, shards, member = begin("bsp")
    for found in scar.torch.prefetch(map(batch, range(STEPS)), optimizer):
        take_step(model, optimizer, found)
        shards.close_clock()
    assert member.ahead == []
    for name, store in expected.stores.items():
        np.testing.assert_array_equal(shards.stores[name].values, store.values)


def test_what_is_of_another_placement_or_another_batch_is_pulled_again() -> None:
    import scar.torch

    model, optimizer, shards, member = begin("asp")
    again = []
    for clock, found in enumerate(scar.torch.prefetch(map(batch, range(12)), optimizer)):
        calls = member.calls
        member.epoch += clock == 4  # what is under way then is for this clock and for the next one
        user, words, y = found
        take_step(model, optimizer, (user.clone() if clock == 6 else user, words, y))
        again += [clock] if member.calls > calls else []
        shards.close_clock()
    # a copy has the ids that came, but does not show whose place they have in the batch after the next
    assert again == [0, 1, 4, 5, 8]


def test_a_loader_may_be_short() -> None:
    import scar.torch

    _, optimizer, _, _ = begin("ssp")
    assert list(scar.torch.prefetch([], optimizer)) == []
    assert list(scar.torch.prefetch([1], optimizer)) == [1]
