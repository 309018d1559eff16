"""Rules of users' own: what is refused, and what a step computes, held against plain numpy."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import scar
from scar.errors import ConfigError
from scar.rule_expressions import MAX_DEPTH, MAX_NODES, parse_expression
from scar_ps.core import rule_evaluation
from scar_ps.core.block_store import BlockStore
from scar_ps.core.update_rules import apply_push

SHAPE = (10, 4)


def train(rule: scar.Rule, pushes: list[np.ndarray], dtype: str = "float64", **options: object) -> np.ndarray:
    table = scar.Table("w", SHAPE, dtype=dtype, rule=rule, **options)
    store = BlockStore(table, np.arange(table.blocks, dtype=np.uint32))
    store.values[:] = np.linspace(-2, 3, store.values.size)
    for clock, pushed in enumerate(pushes):
        apply_push(store, None, pushed.astype(dtype).reshape(-1), lambda: None, rule.at_clock(clock))
    assert store.values.dtype == np.dtype(dtype)
    return store.values.reshape(SHAPE)


def start() -> np.ndarray:
    return np.linspace(-2, 3, 40).reshape(SHAPE)


def gradients(count: int) -> list[np.ndarray]:
    draw = np.random.default_rng(5)
    return [draw.normal(size=SHAPE) for _ in range(count)]


def norms(w: np.ndarray) -> np.ndarray:
    return np.linalg.norm(w, axis=1, keepdims=True)


def soft(w: np.ndarray, threshold: float) -> np.ndarray:
    return np.sign(w) * np.maximum(np.abs(w) - threshold, 0)


EXAMPLES = {
    "non-negative": (
        scar.rule("w - lr * g", project="maximum(w, 0)", lr=0.3),
        lambda w, g: np.maximum(w - 0.3 * g, 0),
    ),
    "soft threshold": (
        scar.rule("w - lr * g", project="sign(w) * maximum(abs(w) - lr * l1, 0)", lr=0.3, l1=0.5),
        lambda w, g: soft(w - 0.3 * g, 0.3 * 0.5),
    ),
    "norm of a row": (
        scar.rule("w - lr * g", project="w * minimum(1, most / norm(w))", lr=0.3, most=1.5),
        lambda w, g: (w - 0.3 * g) * np.minimum(1, 1.5 / norms(w - 0.3 * g)),
    ),
    "all else": (
        scar.rule("where(g > 0.1, -exp(-w ** 2), clip(log(abs(w) + 2) / sqrt(3.0), 0.2, 1)) + (g <= 0)"),
        lambda w, g: (
            np.where(g > 0.1, -np.exp(-(w**2)), np.clip(np.log(np.abs(w) + 2) / 3**0.5, 0.2, 1)) + (g <= 0)
        ),
    ),
}


@pytest.mark.parametrize("cut", [scar.rows(1), scar.rows(4), scar.layer()], ids=["row", "rows", "layer"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_expression_computes_what_numpy_does_however_the_table_is_cut(
    name: str, cut: scar.Blocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_evaluation, "RUN_ELEMENTS", 8)  # a layer is evaluated in pieces
    rule, step = EXAMPLES[name]
    expected = start()
    for pushed in gradients(3):
        expected = step(expected, pushed)
    np.testing.assert_allclose(train(rule, gradients(3), blocks=cut), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_name_keeps_the_value_that_it_was_given(dtype: str) -> None:
    rule = scar.rule({"before": "w", "rate": "0.5", "w": "w - g"}, project="before * rate")
    assert train(rule, gradients(1), dtype).tolist() == (start().astype(dtype) / 2).tolist()


def test_ftrl_and_adagrad_as_expressions_are_the_built_in_rules() -> None:
    own = scar.rule({"n": "n + g * g", "w": "w - lr * g / (sqrt(n) + eps)"}, slots=["n"], lr=0.1, eps=1e-8)
    np.testing.assert_allclose(
        train(own, gradients(5)), train(scar.adagrad(0.1), gradients(5)), rtol=1e-12, atol=1e-14
    )
    own = scar.rule(
        {
            "before": "n",
            "n": "n + g * g",
            "z": "z + g - (sqrt(n) - sqrt(before)) / lr * w",
            "w": "where(abs(z) <= l1, 0, -(z - sign(z) * l1) / ((beta + sqrt(n)) / lr + l2))",
        },
        slots=["n", "z"],
        lr=0.1,
        beta=1.0,
        l1=0.7,
        l2=0.1,
    )
    built_in = train(scar.ftrl(0.1, 1.0, 0.7, 0.1), gradients(5))
    assert 0 < np.count_nonzero(built_in) < built_in.size
    np.testing.assert_allclose(train(own, gradients(5)), built_in, rtol=1e-12, atol=1e-14)


def test_a_schedule_changes_lr_by_clock() -> None:
    rule = scar.rule("w - lr * g", lr=0.4, schedule=scar.schedules.exponential(0.5))
    first, second = gradients(2)
    np.testing.assert_allclose(
        train(rule, [first, second]), start() - 0.4 * first - 0.2 * second, rtol=1e-12, atol=1e-14
    )


def test_steps_of_a_block_are_counted_by_block() -> None:
    table = scar.Table("w", (3, 2), dtype="float64", rule=scar.rule("w + step"))
    store = BlockStore(table, np.arange(3, dtype=np.uint32))
    apply_push(store, None, np.zeros(6), lambda: None)
    apply_push(store, np.array([0, 2]), np.zeros(4), lambda: None)
    apply_push(store, None, np.zeros(6), lambda: None)
    assert store.values.reshape(3, 2).tolist() == [[6, 6], [3, 3], [6, 6]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no expression"),
        ("w = g", "no expression"),
        ("w; g", "no expression"),
        ("__import__('os').system('x')", "cannot contain"),
        ("open(w)", "no function 'open'"),
        ("w.dtype", "cannot contain"),
        ("w[0]", "cannot contain"),
        ("[w for w in g]", "cannot contain"),
        ("(lambda: w)()", "cannot contain"),
        ("clip(*w)", "has 3 arguments"),
        ("abs(x=w)", "cannot contain"),
        ("'a' * 9", "cannot contain"),
        ("True", "cannot contain"),
        ("1j", "cannot contain"),
        ("0 < w < 1", "cannot contain"),
        ("w and g", "cannot contain"),
        ("w // g", "cannot contain"),
        ("w @ g", "cannot contain"),
        ("1 << w", "cannot contain"),
        ("w if g else 1", "cannot contain"),
        ("(x := w)", "cannot contain"),
        ("f'{w}'", "cannot contain"),
        ("9" * 400, "too large"),
        ("1e999", "too large"),
        ("w" * 1001, "more than 1000"),
        ("(" * 300 + "w" + ")" * 300, "no expression"),
        ("-" * MAX_DEPTH + "w", "deeper"),
        ("w\0", "no expression"),
    ],
)
def test_anything_else_than_arithmetic_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_expression(text)


REFUSED = {
    "lacks the value": lambda: scar.rule({"n": "g"}, slots=["n"]),
    "reads 'lr', which is unknown": lambda: scar.rule("w - lr * g"),
    "reads 'late', which is unknown": lambda: scar.rule({"w": "w - late", "late": "g"}),
    "reads its parameter": lambda: scar.rule("w - g", lr=0.1),
    "assigns to 'g'": lambda: scar.rule({"g": "2 * g", "w": "w - g"}),
    "assigns to 'step'": lambda: scar.rule({"step": "1", "w": "w"}),
    "parameter 'w'": lambda: scar.rule("w", w=1.0),
    "'sqrt' is no name": lambda: scar.rule("w - sqrt(g)", sqrt=1.0),
    "never assigned": lambda: scar.rule("w - g", slots=["n"]),
    "repeat": lambda: scar.rule({"n": "g", "w": "n"}, slots=["n", "n"]),
    "more than 128": lambda: scar.rule({f"a{i}": "w + g + w + g + w" for i in range(15)} | {"w": "w"}),
    "17 expressions": lambda: scar.rule({f"a{i}": "w" for i in range(16)} | {"w": "w"}),
    "9 slots": lambda: scar.rule(
        {f"a{i}": "w" for i in range(9)} | {"w": "w"}, slots=[f"a{i}" for i in range(9)]
    ),
    "no learning rate": lambda: scar.rule("w - g", schedule=scar.schedules.cosine(9)),
    "Make it by scar.rule": lambda: scar.Rule("expression"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_rule_that_makes_no_sense_is_refused(why: str) -> None:
    message = "does not say" if why == "lacks the value" else why
    with pytest.raises(ConfigError) as caught:
        REFUSED[why]()
    assert message in f"{caught.value}"


def test_the_costliest_rule_takes_bounded_memory() -> None:
    """The deepest expression on a block of 16 MiB, evaluated in pieces."""
    text = "w"
    for _ in range(MAX_DEPTH - 1):
        text = f"(g + {text})"
    table = scar.Table("w", (1 << 21,), dtype="float64", rule=scar.rule(text), blocks=scar.layer())
    store = BlockStore(table, np.arange(1, dtype=np.uint32))
    pushed = np.ones(1 << 21)
    tracemalloc.start()
    apply_push(store, None, pushed, lambda: None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (store.values == MAX_DEPTH - 1).all()
    assert peak < 8 * rule_evaluation.RUN_ELEMENTS * (MAX_DEPTH + 4)
    assert MAX_NODES >= 2 * MAX_DEPTH
