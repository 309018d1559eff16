"""Pages of results out of summaries and figures: nothing in them is typed by hand.

    python -m experiments.pages --out build/experiments --to docs/results

A page for each experiment that has a summary: its figure, its table, the command that makes them again.
``README.md`` puts what the paper says next to what was measured. In pages that people write, marked tables
are made again (:mod:`experiments.tables`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import claims, tables
from experiments.claims import Claim, Summary

HEADINGS = ("panel", "claim", "paper", "here", "holds")


@dataclass(frozen=True)
class ResultPage:
    """``about``: what is seen, without a number."""

    title: str
    about: str
    claims: Callable[[Summary], Iterable[Claim]] = lambda _: ()


PAGES = {
    "fig3": ResultPage(
        "Figure 3: the bound is tight on a quadratic program",
        "Costs of random perturbations lie below Theorem 3.2 and come up to it; many are below zero.",
        lambda found: claims.bound_claims(found, {"single": True, "many": True}),
    ),
    "fig5": ResultPage(
        "Figure 5: MLR, perturbed once",
        "A random direction costs little, away from the solution is close to the bound. Costs are"
        " interpolated between iterations, so that a part of one counts, also below zero.",
        lambda found: claims.bound_claims(found, {"random": False, "adversarial": False}),
    ),
    "fig6": ResultPage(
        "Figure 6: a random part goes back to its start",
        "Between the random and the adversarial perturbations of figure 5.",
        lambda found: claims.bound_claims(found, {}),
    ),
    "fig7": ResultPage(
        "Figure 7: partial against full recovery",
        "Full recovery costs the same whatever was lost; partial recovery the less the smaller the loss.",
        claims.partial_claims,
    ),
    "fig8": ResultPage(
        "Figure 8: which blocks to save",
        "A fraction r of the blocks every r C iterations: the same bytes for every r.",
        claims.selection_claims,
    ),
    "fig9": ResultPage(
        "Figure 9: LDA on a cluster of processes",
        "Half of the servers die in iteration 7.",
        claims.cluster_claims,
    ),
    "real": ResultPage(
        "Real failures next to the simulation",
        "SIGKILL to half of the servers of a cluster.",
        claims.real_claims,
    ),
    "budget": ResultPage(
        "What the best schedule of the same bytes could save",
        "A limit for figure 8 on trainings that move steadily, from what lost blocks cost for each iteration"
        " of their age. Beside it, what saving by distance comes to.",
    ),
    "calibration": ResultPage(
        "Predicted costs next to measured ones",
        "A cost is in iterations until the loss is as low as before the failure, as `scar failures` measures"
        " it; 1 where nothing was lost. The first loss since predicts it as that command does, ||delta|| by"
        " Theorem 3.2 with what the run shows of c and of the distance that is left. Half and a quarter of"
        " the blocks are lost, and everything.",
    ),
    "sweep": ResultPage(
        "Sweeps: what hangs on the open decisions",
        "One decision is changed at a time; what each is:"
        " [experiments.md](../experiments.md#what-the-paper-leaves-open).",
    ),
}


def write_pages(results: Path, to: Path) -> list[Path]:
    """All pages whose summaries lie in ``results``, and the README that compares them with the paper."""
    to.mkdir(parents=True, exist_ok=True)
    found = {
        name: _read_summary(results / f"{name}.json")
        for name in PAGES
        if (results / f"{name}.json").is_file()
    }
    written = [to / f"{name}.md" for name in found]
    for (name, summary), path in zip(found.items(), written, strict=True):
        path.write_text(_experiment_page(name, summary), encoding="utf-8")
        for ending in (".png", ".svg"):
            shutil.copyfile(results / f"{name}{ending}", to / f"{name}{ending}")
    index = to / "README.md"
    others = sorted(path for path in to.glob("*.md") if path not in (*written, index))
    _refresh_pages(others, results)
    index.write_text(_comparison_page(found, others), encoding="utf-8")
    return [*written, index]


def _refresh_pages(others: Sequence[Path], results: Path) -> None:
    """Tables and figures of pages that people write."""
    for page in others:
        summary = results / f"{page.stem}.json"
        if summary.is_file():
            made = tables.refresh_tables(
                page.read_text(encoding="utf-8"), {page.stem: _read_summary(summary)}
            )
            page.write_text(made, encoding="utf-8")
            for ending in (".png", ".svg"):
                shutil.copyfile(summary.with_suffix(ending), page.with_suffix(ending))


def _read_summary(path: Path) -> Summary:
    loaded: Summary = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def _experiment_page(name: str, summary: Summary) -> str:
    page = PAGES[name]
    parts = [f"# {page.title}", page.about, f"![{page.title}]({name}.png)", _command_block(summary)]
    parts.append("Intervals are 95 %. As vectors: " + f"[{name}.svg]({name}.svg).")
    parts.append(markdown_table(summary["table"]))
    return "\n\n".join(parts) + "\n"


def _comparison_page(found: dict[str, Summary], others: Sequence[Path]) -> str:
    parts = [
        "# Results",
        (
            "What the SCAR paper says, figure by figure, next to what was measured here. Its text gives"
            " ranges over all panels, no number for a single one; each panel is held against those ranges."
            " *above*: saves more than the paper's range. *within its interval*: the value misses, its 95 %"
            " interval does not."
        ),
        (
            "Decisions, reasons and disagreements: [experiments.md](../experiments.md). Every page names the"
            " command that makes its numbers again; `python -m experiments.pages` writes the pages from the"
            " summaries."
        ),
    ]
    for name, summary in found.items():
        page = PAGES[name]
        parts += [f"## [{page.title}]({name}.md)", f"![{page.title}]({name}.png)"]
        rows = [claim.row for claim in page.claims(summary)]
        parts.append(markdown_table([HEADINGS, *rows]) if rows else markdown_table(summary["table"]))
        parts.append(_command_block(summary))
    if others:
        headings = [
            (path.name, path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")) for path in others
        ]
        parts += ["## Other results", "\n".join(f"- [{heading}]({name})" for name, heading in headings)]
    return "\n\n".join(parts) + "\n"


def _command_block(summary: Summary) -> str:
    """How to make it again, and what of it has not been run yet."""
    missing = ", ".join(f"{panel} {count} trials" for panel, count in summary["missing"].items())
    note = f"\n\nNot run yet: {missing}. The command goes on with them." if missing else ""
    return f"```\n{summary['command']}\n```{note}"


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table, headings first."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "| " + " | ".join("---" for _ in rows[0]) + " |", *lines[1:]])


def main() -> None:
    """Write the pages and say where."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.pages", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/experiments"), help="where summaries and figures are"
    )
    parser.add_argument("--to", type=Path, default=Path("docs/results"), help="where pages go")
    given = parser.parse_args()
    for path in write_pages(given.out, given.to):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
