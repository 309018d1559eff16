"""Tables inside hand-written pages: a marker says which numbers, the table is made from the summary.

    <!-- through-failure two-kills: seconds to 70 %, accuracy over time -->

    | | seconds to 70 % | ...

One row for each mode of the panel; the best mean, and every mode whose interval reaches it, in bold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.claims import Summary
from scar_compare.statistics import Estimate

MARKER = re.compile(
    r"^<!-- (?P<name>[\w-]+) (?P<panel>[\w-]+): (?P<measures>.+) -->\n\n(?:\|.*\n)*", re.MULTILINE
)
DIGITS = {
    "seconds to 70 %": 0,
    "perturbation": 2,
    "gradients": 0,
    "CPU busy": 2,
    "memory, MB": 2,
    "written, MB": 1,
    "trials": 0,
    "runs": 0,
    "lost pushes": 0,
    "full": 2,
    "x(0)": 2,
    "checkpoint": 2,
    "workers": 2,
    "workers and replica": 2,
    "slots as saved": 2,
    "slots reset": 2,
    "slots pulled": 2,
}
USUAL_DIGITS = 3


def refresh_tables(page: str, summaries: Mapping[str, Summary]) -> str:
    """The page with the tables made again whose summaries are there."""
    return MARKER.sub(lambda found: _marked_table(found, summaries), page)


def _marked_table(found: re.Match[str], summaries: Mapping[str, Summary]) -> str:
    panel = summaries.get(found["name"], {}).get("panels", {}).get(found["panel"])
    if panel is None:
        return found[0]
    return (
        f"{found[0].splitlines()[0]}\n\n{_markdown_table(panel, re.split(r', (?!MB)', found['measures']))}\n"
    )


def _markdown_table(panel: Mapping[str, Any], measures: Sequence[str]) -> str:
    lines = [f"| | {' | '.join(measures)} |", "| --- |" + " --- |" * len(measures)]
    for mode, numbers in panel["modes"].items():
        cells = [_number_cell(numbers.get(name), name, mode in panel["winners"][name]) for name in measures]
        lines.append(f"| `{mode}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number_cell(number: Mapping[str, float] | None, measure: str, wins: bool) -> str:
    if number is None:
        return ""
    form = f".{0 if measure.startswith('%') else DIGITS.get(measure, USUAL_DIGITS)}f"
    shown = [f"{number[end]:{form}}" for end in ("low", "high")]
    text = f"{number['value']:{form}}" if shown[0] == shown[1] else f"{Estimate(**number):{form}}"
    return f"**{text}**" if wins else text
