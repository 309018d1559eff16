"""Cuts a failing run down to the fewest faults, and tells it as a story.

    python -m tests.simulation.shrink --seed 4711 [--keep]
    python -m tests.simulation.shrink --plan FILE

Leaves out faults, half of them at first, then one by one, and then parts of the cluster, as long as the run
still fails. ``--keep``: the plan goes to ``tests/simulation/kept``, whose plans `make replay` plays.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.simulation.plan import LONG, SHORT, Plan, SimulatedFault
from tests.simulation.simulated import ROOT, Run, command_of, parse_run

KEPT = ROOT / "tests/simulation/kept"
STORY = re.compile(
    r"^\S+ (fault|crash|pause|cut|end|exit|wrong|failure|log \S+ (warning|error)|put \S*epochs/)"
)
TOLD = 80  # lines of the story

Fails = Callable[[Plan], bool]


def play_plan(plan: Plan, trace: Path | None = None) -> Run:
    """In a process of its own."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(plan.to_json())
        file.flush()
        command = command_of("swarm", f"--plan={file.name}", f"--trace={trace or ''}")
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr[-2000:])
    return parse_run(done.stdout)


def without(plan: Plan, left_out: Sequence[SimulatedFault]) -> Plan:
    """The plan less these faults; a group in which nothing is left goes, too."""
    gone = {id(fault) for fault in left_out}
    groups = (tuple(fault for fault in group if id(fault) not in gone) for group in plan.groups)
    return replace(plan, groups=tuple(group for group in groups if group))


def fewer_faults(plan: Plan, fails: Fails) -> Plan:
    """Leave out ever smaller parts, until no single fault can be left out (delta debugging)."""
    size = len(plan.faults) // 2
    while size:
        index = 0
        while index < len(plan.faults) and len(plan.faults) > 1:
            tried = without(plan, plan.faults[index : index + size])
            if tried.groups and fails(tried):
                plan = tried
            else:
                index += size
        size //= 2
    return plan


def _simpler_shapes(plan: Plan) -> Iterator[Plan]:
    """Each a little simpler than the plan; members that a fault strikes stay."""
    shape = plan.shape
    named = {name for fault in plan.faults for name in re.findall(r"[a-z]+-\d", fault.target)}
    if shape.seconds == LONG:
        yield replace(plan, shape=replace(shape, seconds=SHORT))
    if shape.standby and not any(name.endswith("-1") for name in named if not name.startswith(("ps", "w"))):
        yield replace(plan, shape=replace(shape, standby=False))
    if shape.workers > 1 and shape.worker_names[-1] not in named:
        yield replace(plan, shape=replace(shape, workers=shape.workers - 1))
    if shape.shards > 2 and shape.shard_names[-1] not in named:
        yield replace(plan, shape=replace(shape, shards=shape.shards - 1))


def simpler_cluster(plan: Plan, fails: Fails) -> Plan:
    while smaller := next(filter(fails, _simpler_shapes(plan)), None):
        plan = smaller
    return plan


def shrink(plan: Plan, fails: Fails) -> Plan:
    """``fails``: whether a plan still does. A plan that does not fail is returned as it is."""
    if not fails(plan):
        return plan
    return fewer_faults(simpler_cluster(fewer_faults(plan, fails), fails), fails)


def tell_story(plan: Plan, run: Run, trace: Path) -> str:
    """The cluster, the faults, what happened, and what was wrong."""
    lines = [f"{plan.shape}", *(str(fault) for fault in plan.faults), ""]
    happened = [line for line in trace.read_text().splitlines() if STORY.match(line)]
    lines += (
        happened[:TOLD] if len(happened) <= TOLD else [*happened[: TOLD // 2], "...", *happened[-TOLD // 2 :]]
    )
    return "\n".join([*lines, "", run.wrong or "nothing is wrong"])


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.shrink", description=(__doc__ or "").partition("\n")[0]
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int)
    what.add_argument("--plan", type=Path)
    parser.add_argument("--keep", action="store_true", help="as a regression, in tests/simulation/kept")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    from tests.simulation.swarm import plan_of

    arguments = parse_arguments(argv)
    plan = Plan.from_json(arguments.plan.read_text()) if arguments.plan else plan_of(arguments.seed)

    def fails(tried: Plan) -> bool:
        wrong = play_plan(tried).wrong
        sys.stderr.write(f"{len(tried.faults):3} faults: {wrong[:120] or 'holds'}\n")
        return bool(wrong)

    plan = shrink(plan, fails)
    with tempfile.TemporaryDirectory() as folder:
        run = play_plan(plan, Path(folder))
        sys.stdout.write(tell_story(plan, run, Path(folder, f"swarm-{plan.seed}")) + "\n")
    file = (KEPT if arguments.keep else Path(tempfile.gettempdir())) / f"swarm-{plan.seed}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(json.loads(plan.to_json()), indent=1) + "\n")
    sys.stdout.write(f"play it again: python -m tests.simulation swarm --plan {file}\n")
    return int(bool(run.wrong))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
