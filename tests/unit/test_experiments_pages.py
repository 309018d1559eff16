"""Pages say what the summaries say, and each claim is judged by its interval."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import claims, pages, tables


def interval(value: float, half: float = 0.01) -> dict[str, float]:
    return {"value": value, "low": value - half, "high": value + half}


def case(selection: str, fraction: float, cost: float, reduction: dict[str, float]) -> dict[str, object]:
    return {
        "lost": 0.5,
        "selection": selection,
        "fraction": fraction,
        "cost": interval(cost),
        "reduction": reduction,
    }


def selection(combined: dict[str, float], priority: float = 0.5, random: float = 2.0) -> dict[str, object]:
    found = [case("priority", 1.0, 1.0, interval(0.5)), case("priority", 0.125, priority, combined)]
    found += [case("random", 1.0, 1.0, interval(0.5)), case("random", 0.125, random, interval(0.1))]
    return {"panels": {"mlr-mnist": {"trials": 100, "cases": found}}}


@pytest.mark.parametrize(
    ("measured", "holds"),
    [
        (interval(0.78), "yes"),
        (interval(0.776), "yes"),
        (interval(0.99), "above"),
        (interval(0.75, 0.05), "within its interval"),
        (interval(0.74), "no"),
    ],
)
def test_a_saving_is_held_against_the_papers_range(measured: dict[str, float], holds: str) -> None:
    first = next(claims.selection_claims(selection(measured)))
    assert (first.panel, first.paper, first.holds) == ("MLR, MNIST (100 trials)", "78-95%", holds)


@pytest.mark.parametrize(
    ("priority", "random", "holds"), [(0.5, 2.0, "yes"), (1.01, 1.0, "within its interval"), (1.5, 0.9, "no")]
)
def test_orders_of_costs(priority: float, random: float, holds: str) -> None:
    _, falls, beaten, worse = claims.selection_claims(selection(interval(0.8), priority, random))
    assert (falls.holds, beaten.holds) == (holds, holds)
    assert worse.here == f"{random:.2f} against 1.00"


def test_bounds_are_judged_where_the_assumption_held() -> None:
    one = {
        "trials": 10,
        "assumption_held": 8,
        "bound_crossed": 2,
        "bound_crossed_where_it_held": 0,
        "negative": 3,
    }
    found = list(claims.bound_claims({"panels": {"mlr-mnist random": one}}, {"random": False}))
    assert [(claim.here, claim.holds) for claim in found] == [
        ("crossed in 0 of 8", "yes"),
        ("crossed in 2 of 10", ""),
        ("3 of 10", "no"),
    ]


def test_pages_repeat_figures_tables_and_commands(tmp_path: Path) -> None:
    results, to = tmp_path / "results", tmp_path / "docs"
    results.mkdir()
    to.mkdir()
    (to / "simulator.md").write_text("# A simulator\n\nwritten by another\n")
    table = [["panel", "saves"], ["mlr-mnist", "74% | 70%"]]
    summary = {
        "command": "scar experiment fig8 --seed 1",
        "missing": {"mf-jester": 90},
        "table": table,
        **selection(interval(0.74)),
    }
    (results / "fig8.json").write_text(json.dumps(summary))
    for ending in ("png", "svg"):
        (results / f"fig8.{ending}").write_text(ending)
    assert [path.name for path in pages.write_pages(results, to)] == ["fig8.md", "README.md"]
    page, comparison = (to / "fig8.md").read_text(), (to / "README.md").read_text()
    assert "| mlr-mnist | 74% \\| 70% |" in page
    assert "![Figure 8: which blocks to save](fig8.png)" in page
    assert (
        "| MLR, MNIST (100 trials) | priority saves, r = 0.125 | 78-95% | 74% [73%, 75%] | no |" in comparison
    )
    assert all("scar experiment fig8 --seed 1" in text for text in (page, comparison))
    assert all("Not run yet: mf-jester 90 trials. " in text for text in (page, comparison))
    assert (to / "fig8.svg").read_text() == "svg"
    assert "- [A simulator](simulator.md)" in comparison


WRITTEN = """# Kills

<!-- kills one: seconds to 70 %, memory, MB -->

| | old |
| --- | --- |
| `gone` | 1 |

What a person wrote.

<!-- kills two: loss -->

| | not run |
"""


def test_marked_tables_are_made_again_and_the_rest_of_a_page_stays() -> None:
    numbers = {"seconds to 70 %": interval(9.6, 0.6), "memory, MB": interval(0.5, 0.0)}
    one = {
        "modes": {"chain": numbers, "none": {}},
        "winners": {"seconds to 70 %": ["chain"], "memory, MB": []},
    }
    made = tables.refresh_tables(WRITTEN, {"kills": {"panels": {"one": one}}})
    assert made == WRITTEN.replace(
        "| | old |\n| --- | --- |\n| `gone` | 1 |\n",
        "| | seconds to 70 % | memory, MB |\n| --- | --- | --- |\n| `chain` | **10 [9, 10]** | 0.50 |\n|"
        " `none` |  |  |\n",
    )
    assert tables.refresh_tables(made, {"kills": {"panels": {"one": one}}}) == made
