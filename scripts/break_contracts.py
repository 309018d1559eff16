"""Break each guarantee once, in a copy of the sources, and see that its test fails: a check that cannot fail proves nothing.

    python scripts/break_contracts.py [NUMBER ...]

The exit code is the number of breaks that no test noticed. Every break is one edit; docs/guarantees.md has the promises.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("sdk", "services", "tests", "proto", "docs", "examples", "benchmarks", "experiments", "scripts", "deploy")
SECONDS = 300.0


@dataclass(frozen=True)
class Break:
    """``old`` occurs exactly once in ``file`` (below ``services`` or ``sdk``); with ``new`` in its place ``test`` must fail."""

    guarantee: int
    file: str
    old: str
    new: str
    test: str

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise SystemExit(
                f"guarantee {self.guarantee}: {self.old!r} is {text.count(self.old)} times in {self.file}, not once"
            )
        path.write_text(text.replace(self.old, self.new))


BREAKS = (
    Break(
        1,
        "services/scar_ps/shard.py",
        "            part.store.apply(part.positions, part.values, self._progress, push.rate)\n        self.lanes",
        "            pass\n        self.lanes",
        "tests/unit/test_ps_shard.py",
    ),
    Break(
        2,
        "services/scar_ps/shard.py",
        "if self.lanes.is_duplicate(push.sender, push.seq):",
        "if False:",
        "tests/unit/test_ps_shard.py::test_duplicates_in_any_interleaving_are_applied_once",
    ),
    Break(
        3,
        "services/scar_recovery/term.py",
        "        executor.write_ledger()\n",
        "",
        "tests/component/test_recovery_service.py::test_a_report_is_taken_only_when_a_successor_would_find_it",
    ),
    Break(
        3,
        "sdk/scar/reroute.py",
        "contained = moves.watermarks(table, piece.ids[at]) >= part.push_id",
        "contained = moves.watermarks(table, piece.ids[at]) >= 0",
        "tests/unit/test_reroute.py",
    ),
    Break(
        4,
        "services/scar_runtime/objects.py",
        "    if wrong.any():\n",
        "    if False:\n",
        "tests/unit/test_objects.py::test_every_bit_flip_is_found",
    ),
    Break(
        5,
        "services/scar_ps/engine.py",
        "        if not self.leased:\n",
        "        if False:\n",
        "tests/component/test_ps_service.py::test_without_a_lease_nothing_is_served",
    ),
    Break(
        5,
        "services/scar_runtime/store/directory.py",
        "os.link(file, target)",
        "os.replace(file, target)",
        "tests/contract/test_store.py::test_one_of_many_creates_wins",
    ),
    Break(
        6,
        "services/scar_recovery/plans.py",
        "        if intent.rollback:\n",
        "        if True:\n",
        "tests/unit/test_recovery_planner.py::test_survivors_keep_their_blocks",
    ),
    Break(
        7,
        "services/scar_runtime/pulse.py",
        """self._first(("redis", self._to_redis), ("detector", self._to_detector))
        if not renewed or (self._member.role is Role.SHARD and not self._heart.lease_valid()):
""",
        """self._first(("redis", self._to_redis))
        if renewed is None:
""",
        "tests/system/test_outages.py::test_redis_down_starts_no_recovery",
    ),
    Break(
        3,
        "services/scar_ps/shard.py",
        "if self.chain.waits and not self._bsp and self.chain.shipped < self.chain.owed(updates):",
        "if False:",
        "tests/unit/test_ps_chain.py::test_an_acknowledgement_waits_for_the_next_replica",
    ),
    Break(
        5,
        "services/scar_ps/replicas.py",
        "        self._sealed |= set(dead)\n",
        "",
        "tests/unit/test_ps_chain.py::test_after_a_claim_nothing_more_is_taken_from_the_dead",
    ),
    Break(
        8,
        "sdk/scar/codec.py",
        "import zlib\n",
        "import pickle\nimport zlib\n",
        "tests/repo/test_sources.py::test_nothing_can_execute_what_it_reads",
    ),
    Break(
        9,
        "services/scar_ps/contributions.py",
        "        return sorted(taken, key=lambda kept: (ranks.get(kept.sender.name, last), kept.sender.key, kept.push_id))",
        "        return taken if last >= 0 else []",
        "tests/unit/test_ps_shard.py::test_bsp_sums_do_not_depend_on_the_order_of_arrival",
    ),
    Break(
        10,
        "sdk/scar/transport.py",
        "            raise errors.from_rpc(error, self.target) from error",
        "            raise",
        "tests/system/test_sdk_errors.py::test_nobody_listens",
    ),
)


def noticed(one: Break) -> bool:
    """Whether the test fails with this break."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ROOT.glob("*.*"):
            if file.is_file():
                shutil.copy(file, tree)
        one.apply(tree)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", one.test]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{one.test} could not be run:\n{done.stdout[-2000:]}")
    return done.returncode == 1


def main(numbers: Sequence[str]) -> int:
    chosen = [one for one in BREAKS if not numbers or str(one.guarantee) in numbers]
    missed = 0
    for one in chosen:
        found = noticed(one)
        missed += not found
        sys.stdout.write(f"{'noticed' if found else 'MISSED '}  guarantee {one.guarantee}: {one.file} -> {one.test}\n")
        sys.stdout.flush()
    return missed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
