"""What the paper says about each figure, next to what was measured: claims, judged by the summaries.

Ranges are of sections 5.3 to 5.5 of the paper, whose text gives no number for a single panel. A claim that a
measured interval only reaches is called *within its interval*, so that few trials neither prove nor disprove
anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from experiments.panels import panel_title
from scar_compare.statistics import Estimate

Summary = Mapping[str, Any]
Interval = Mapping[str, float]

PARTIAL = {"0.25": (0.59, 0.89), "0.5": (0.31, 0.62), "0.75": (0.12, 0.42)}
COMBINED = (0.78, 0.95)
OVERHEAD = 0.053
YES = "yes"
INSIDE = "within its interval"
NO = "no"


@dataclass(frozen=True)
class Claim:
    """``holds``: yes, within its interval, or no."""

    panel: str
    claim: str
    paper: str
    here: str
    holds: str

    @property
    def row(self) -> list[str]:
        return [self.panel, self.claim, self.paper, self.here, self.holds]


def bound_claims(found: Summary, negative: Mapping[str, bool]) -> Iterator[Claim]:
    """Figures 3, 5 and 6. ``negative``: whether costs below 0 are expected, by the end of a panel's name."""
    for panel, one in found["panels"].items():
        yield from _bound_claims_of(panel, one)
        expected = next((wanted for end, wanted in negative.items() if panel.endswith(end)), None)
        here = f"{one['negative']} of {one['trials']}"
        if expected is None:
            yield Claim(panel, "costs below 0", "", here, "")
        else:
            paper = "some" if expected else "none"
            holds = _yes_or_no(expected == (one["negative"] > 0))
            yield Claim(panel, "costs below 0", paper, here, holds)


def _bound_claims_of(panel: str, one: Summary) -> Iterator[Claim]:
    trials = one["trials"]
    held = one["assumption_held"]
    claim = "cost below the bound where its assumption holds"
    if held:
        crossed = one["bound_crossed_where_it_held"]
        where = f"crossed in {crossed} of {held}"
    else:
        crossed = one["bound_crossed"]
        where = f"crossed in {crossed} of {trials} (assumption not claimed)"
    yield Claim(panel, claim, "always", where, _yes_or_no(crossed == 0))
    if held:
        everywhere = f"crossed in {one['bound_crossed']} of {trials}"
        yield Claim(panel, "cost below the bound in all trials", "", everywhere, "")


def partial_claims(found: Summary) -> Iterator[Claim]:
    """Figure 7."""
    for panel, one in found["panels"].items():
        name = _panel_name(panel, one)
        for lost, range_ in PARTIAL.items():
            if lost in one["partial"]:
                measured = one["partial"][lost]["reduction"]
                yield Claim(
                    name,
                    f"partial saves, lost {lost}",
                    _range_text(range_),
                    _percent_text(measured),
                    _judge_range(measured, range_),
                )
        costs = [one["partial"][lost]["cost"] for lost in sorted(one["partial"], key=float)]
        here = ", ".join(f"{cost['value']:.2f}" for cost in costs)
        yield Claim(name, "cost grows with what is lost (small to large)", "yes", here, _judge_rising(costs))


def selection_claims(found: Summary) -> Iterator[Claim]:
    """Figure 8, for the first of its lost fractions."""
    for panel, one in found["panels"].items():
        cases = [case for case in one["cases"] if case["lost"] == one["cases"][0]["lost"]]
        by = {(case["selection"], case["fraction"]): case for case in cases}
        fractions = sorted({case["fraction"] for case in cases})
        smallest = fractions[0]
        name = _panel_name(panel, one)
        measured = by["priority", smallest]["reduction"]
        yield Claim(
            name,
            f"priority saves, r = {smallest:g}",
            _range_text(COMBINED),
            _percent_text(measured),
            _judge_range(measured, COMBINED),
        )
        costs = [by["priority", r]["cost"] for r in fractions]
        here = ", ".join(f"{cost['value']:.2f}" for cost in costs)
        yield Claim(name, "priority's cost falls with r (small to large)", "yes", here, _judge_rising(costs))
        pairs = [(by["priority", r]["cost"], by["random", r]["cost"]) for r in fractions if r < 1]
        yield Claim(name, "random worse than priority", "yes", *_judge_worse(pairs))
        pairs = [
            (by["random", 1.0]["cost"], by["random", r]["cost"])
            for r in fractions
            if r < 1 and ("random", 1.0) in by
        ]
        yield Claim(name, "random worse than a full checkpoint", "nearly always", *_judge_worse(pairs))


def cluster_claims(found: Summary) -> Iterator[Claim]:
    """Figure 9."""
    overhead = found["overhead"]
    said = YES if overhead["high"] < OVERHEAD else INSIDE if overhead["low"] < OVERHEAD else NO
    yield Claim("LDA", "overhead of 1/4-rounds", f"{OVERHEAD:.1%}", _interval_text(overhead, ".1%"), said)
    for name, paper in (("iterations", "about 3"), ("seconds", "about 360, of 243 an iteration")):
        sooner = found[f"{name}_sooner"]
        said = YES if sooner["low"] > 0 else INSIDE if sooner["high"] > 0 else NO
        yield Claim("LDA", f"same likelihood sooner, {name}", paper, _interval_text(sooner, ".1f"), said)


def real_claims(found: Summary) -> Iterator[Claim]:
    """Real processes next to the simulation: no claim of the paper."""
    for panel, one in found["panels"].items():
        here = (
            f"{_interval_text(one['real'], '.2f')} of {one['trials']} runs; simulated"
            f" {_interval_text(one['simulated'], '.2f')}"
        )
        yield Claim(
            panel_title(panel), "real SIGKILLs cost what the simulation says", "", here, one["overlap"]
        )


def _panel_name(panel: str, one: Summary) -> str:
    return f"{panel_title(panel)} ({one['trials']} trials)"


def _percent_text(interval: Interval) -> str:
    return _interval_text(interval, ".0%")


def _interval_text(interval: Interval, form: str) -> str:
    return f"{Estimate(**interval):{form}}"


def _range_text(range_: tuple[float, float]) -> str:
    return f"{100 * range_[0]:.0f}-{range_[1]:.0%}"


def _yes_or_no(holds: bool) -> str:
    return YES if holds else NO


def _judge_range(measured: Interval, range_: tuple[float, float]) -> str:
    """In the range or above it; the paper's percentages are rounded, so ours are, too."""
    low = range_[0] - 0.005
    if measured["value"] >= low:
        return YES if measured["value"] <= range_[1] + 0.005 else "above"
    return INSIDE if measured["high"] >= low else NO


def _judge_rising(costs: list[Interval]) -> str:
    """Whether costs rise from one to the next; what intervals leave open is not held against it."""
    pairs = list(pairwise(costs))
    if all(one["value"] <= other["value"] for one, other in pairs):
        return YES
    return INSIDE if all(one["low"] <= other["high"] for one, other in pairs) else NO


def _judge_worse(pairs: list[tuple[Interval, Interval]]) -> tuple[str, str]:
    here = ", ".join(f"{other['value']:.2f} against {one['value']:.2f}" for one, other in reversed(pairs))
    if all(one["value"] < other["value"] for one, other in pairs):
        return here, YES
    return here, INSIDE if all(one["low"] <= other["high"] for one, other in pairs) else NO
