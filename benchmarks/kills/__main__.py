"""What a killed process costs SCAR, torch DDP, torchft and one process, on this machine.

python -m benchmarks.kills [SYSTEM ...] [--model mlp|deepfm] [--repeat N] [--torchft PYTHON]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.kills.data import write_data
from benchmarks.kills.ruler import (
    KillCost,
    describe_spread,
    goodput,
    measure_kills,
    measure_step,
    read_events,
)
from benchmarks.kills.systems import SYSTEMS, TrainingSystem, await_file, await_step
from benchmarks.kills.task import KillSpec

MTBF_MINUTES = (1, 5, 30)
HINT = (
    "left out: give --torchft PYTHON, made by:"
    " python -m venv DIR && DIR/bin/pip install torch torchft-nightly numpy"
)


@dataclass(frozen=True)
class KillRecord:
    """One system, undisturbed at its own speed and then killed at the pace of all."""

    system: str
    free_step: float
    free_score: float
    killed: KillCost
    killed_score: float


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    names = options.systems or list(SYSTEMS)
    if unknown := set(names) - set(SYSTEMS):
        make_parser().error(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(SYSTEMS)}")
    if not options.torchft:
        for name in [name for name in names if name.startswith("torchft")]:
            print(f"{name}: {HINT}", flush=True)  # noqa: T201
            names.remove(name)
    records: dict[str, list[KillRecord]] = defaultdict(list)
    for turn in range(options.repeat):
        for name in names:
            record = measure_system(SYSTEMS[name], options)
            records[name].append(record)
            print(f"{turn + 1}/{options.repeat} {json.dumps(asdict(record))}", flush=True)  # noqa: T201
            write_report(options, records)
    print("\n".join(table_lines(records)))  # noqa: T201
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kills",
        description="Seconds and steps that a SIGKILL costs each system, by one ruler from the outside.",
    )
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(SYSTEMS)}; default: all")
    parser.add_argument("--model", choices=("mlp", "deepfm"), default="mlp")
    parser.add_argument("--repeat", type=int, default=3, help="turns of all systems")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--kill", type=int, action="append", help="steps at which to kill; default: 200")
    parser.add_argument("--batch", type=int, default=128, help="examples of a step, all workers together")
    parser.add_argument("--checkpoint", type=int, default=50, help="steps between full checkpoints")
    parser.add_argument(
        "--pace", type=float, default=0.025, help="least seconds of a step in runs with kills, for all alike"
    )
    parser.add_argument("--torchft", default="", metavar="PYTHON", help="an interpreter that has torchft")
    parser.add_argument("--synthetic", action="store_true", help="small data that is always at hand")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one run")
    parser.add_argument("--output", type=Path, default=Path("build/bench/kills.json"))
    return parser


def measure_system(system: TrainingSystem, options: argparse.Namespace) -> KillRecord:
    kills = sorted(options.kill or [200])
    with tempfile.TemporaryDirectory(prefix="kills-") as home:
        spec = KillSpec(
            "", options.model, options.steps, options.batch, options.checkpoint, 0.0, system.strategy
        )
        free = train_once(system, replace(spec, folder=f"{home}/free"), [], options)
        paced = replace(spec, folder=f"{home}/killed", pace=options.pace)
        score = train_once(system, paced, kills, options)
        return KillRecord(
            system.name,
            measure_step(read_events(Path(home) / "free"), options.steps),
            free,
            measure_kills(read_events(paced.path), kills, options.steps),
            score,
        )


def train_once(
    system: TrainingSystem, spec: KillSpec, kills: Sequence[int], options: argparse.Namespace
) -> float:
    """Train to the end, with a kill at each of these steps; the score on examples held out."""
    spec.path.mkdir()
    write_data(spec.model, spec.path / "data.npz", options.synthetic)
    result = spec.path / "result.json"
    with system.running(spec, options.torchft or sys.executable) as kill:
        for step in kills:
            await_step(spec.path, step, options.timeout)
            kill()
        await_step(spec.path, spec.steps, options.timeout)
        await_file(result, options.timeout)
    return float(json.loads(result.read_text())["score"])


def write_report(options: argparse.Namespace, records: dict[str, list[KillRecord]]) -> None:
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    settings.pop("torchft")  # a path of this machine
    rows = {name: [asdict(record) for record in found] for name, found in records.items()}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"settings": settings, "records": rows}, indent=1) + "\n")


def table_lines(records: dict[str, list[KillRecord]]) -> list[str]:
    """Markdown: medians with the smallest and the largest; goodput is computed from the median loss."""
    mtbf = " | ".join(f"{minutes} min" for minutes in MTBF_MINUTES)
    lines = [
        "| system | killed, respawned by | free step ms | lost s | longest gap s | again | score, killed |"
        f" {mtbf} | steps a second at {MTBF_MINUTES[1]} min |",
        "|" + " --- |" * (8 + len(MTBF_MINUTES)),
    ]
    for name, found in records.items():
        system = SYSTEMS[name]
        lost = statistics.median(record.killed.lost for record in found)
        step = statistics.median(record.free_step for record in found)
        cells = [
            name,
            f"{system.victim}, {system.respawner}",
            describe_spread([1000 * record.free_step for record in found], 1),
            describe_spread([record.killed.lost for record in found]),
            describe_spread([record.killed.gap for record in found]),
            describe_spread([record.killed.again for record in found], 0),
            f"{describe_spread([r.free_score for r in found], 3)}, "
            f"{describe_spread([r.killed_score for r in found], 3)}",
            *(f"{goodput(lost, 60 * minutes):.1%}" for minutes in MTBF_MINUTES),
            f"{goodput(lost, 60 * MTBF_MINUTES[1]) / step:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
