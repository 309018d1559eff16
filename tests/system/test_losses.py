"""A loss is never partial: the README's example loses a worker at clock 20, and ends where it would have
ended anyway.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scar
from scar.models import mlr
from scar_admin.status import ask_from
from scar_local import LocalCluster
from tests.framework import digits
from tests.framework.cluster import TIMEOUT
from tests.framework.digits import UNTIL

KILL_AT = 20
FULL = scar.Checkpoint("full", period=5)


@dataclass
class Trained:
    """What was seen of a training."""

    folder: Path
    clocks: int = 0
    losses: dict[int, float] = field(default_factory=dict)
    fractions: dict[int, float] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    logs: str = ""

    def parts(self, clock: int) -> dict[tuple[int, int], set[float]]:
        """Loss of each share of the images that workers computed in this clock, from what each of them had
        pulled.
        """
        found: dict[tuple[int, int], set[float]] = {}
        for path in sorted((self.folder / "pulls").glob(f"*-{clock}-*-*.npy")):
            first, last = (int(word) for word in path.stem.split("-")[-2:])
            found.setdefault((first, last), set()).add(true_loss(np.load(path), slice(first, last)))
        return found

    def possible(self, clock: int, n: int) -> list[float]:
        """Sums of parts that are all of the first ``n`` images, each once."""
        parts = self.parts(clock)
        sums = list(parts.get((0, n), ()))
        for (first, middle), values in parts.items():
            rest = parts.get((middle, n), ()) if first == 0 else ()
            sums += [one + other for one in values for other in rest]
        return sums


def trained(
    folder: Path, victims: tuple[str, ...] = (), returns: bool = True, once: bool = False, **options: Any
) -> Trained:
    (folder / "pulls").mkdir()
    environment = {"SCAR_TEST_HISTORY": str(folder / "pulls"), "OPENBLAS_NUM_THREADS": "1"}
    environment |= {"SCAR_TEST_ONCE": "1"} if once else {}
    found, waiting = Trained(folder), list(victims)
    with LocalCluster(folder / "cluster", shards=4, environment=environment) as cluster:
        cluster.start_job(replace(digits.job, **options))
        cluster.start_workers(digits.__file__, 2)
        deadline = time.monotonic() + TIMEOUT
        while not ended(cluster, victims, returns):
            assert time.monotonic() < deadline, f"clock {found.clocks}: {cluster.status().problems}"
            look(cluster, found)
            while waiting and found.clocks >= KILL_AT:
                cluster.kill(waiting.pop(), respawn=None if returns else False)
            time.sleep(0.1)
        look(cluster, found)
        found.codes = {
            process.name: process.code or 0
            for process in cluster.processes()
            if process.component == "worker"
        }
        found.logs = (cluster.directory / "logs" / "worker-0.log").read_text()
    return found


def ended(cluster: LocalCluster, victims: tuple[str, ...], returns: bool) -> bool:
    workers = [process for process in cluster.processes() if process.component == "worker"]
    return all(process.code == 0 for process in workers if returns or process.name not in victims)


def look(cluster: LocalCluster, found: Trained) -> None:
    status = cluster.status(since_clock=ask_from(found.losses))
    for clock, loss in status.losses.items():
        assert found.losses.setdefault(clock, loss) == loss, f"clock {clock} has two losses"
    found.clocks, found.fractions = max(found.clocks, status.clock), found.fractions | status.fractions


def true_loss(w: np.ndarray, part: slice) -> float:
    data = digits.few()
    x, y = data.examples(part)
    return mlr.loss_and_gradient(w, x, y)[0] / len(data)


def needed() -> int:
    """Clocks of an undisturbed training."""
    data, w = digits.few(), np.zeros((785, 10), np.float32)
    x, y = data.examples()
    for clock in range(300):
        loss, gradient = mlr.loss_and_gradient(w, x, y)
        if loss / len(data) <= UNTIL:
            return clock + 1
        w -= np.float32(0.2) * gradient / np.float32(len(data))
    raise AssertionError("the example does not converge")


def check(found: Trained, missing: int) -> None:
    """Every loss is that of all data, or of the fraction that it names; at most so many clocks have none."""
    for clock, loss in found.losses.items():
        fraction = found.fractions.get(clock, 1.0)
        computed = found.possible(clock, round(fraction * len(digits.few())))
        assert any(loss == pytest.approx(one, rel=1e-6) for one in computed), (
            f"clock {clock}: {loss} of {fraction}, {computed}"
        )
    absent = set(range(found.clocks)) - set(found.losses)
    assert len(absent) <= missing, absent


@pytest.mark.parametrize("returns", [False, True], ids=["never", "returns"])
@pytest.mark.parametrize("victim", ["worker-1", "worker-0"])
def test_the_example_ends_at_its_true_loss(tmp_path: Path, victim: str, returns: bool) -> None:
    found = trained(tmp_path, (victim,), returns)
    check(found, missing=8)
    assert found.fractions == {}
    assert max(found.losses) == found.clocks - 1
    assert (
        found.losses[found.clocks - 1]
        <= UNTIL
        < min(loss for clock, loss in found.losses.items() if clock < found.clocks - 1)
    )
    assert abs(found.clocks - needed()) <= 3


CASES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "full, two shards": (("ps-0", "ps-1"), {"recovery": "full", "checkpoint": FULL}),
    "full, a worker": (("worker-1",), {"recovery": "full", "checkpoint": FULL}),
    "partial, two shards and a worker": (("ps-0", "ps-1", "worker-1"), {}),
    "ckpt": (("worker-1",), {"worker_recovery": "ckpt", "checkpoint": FULL}),
    "ps": (("worker-1",), {"worker_recovery": "ps"}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_strategy_believes_a_part(tmp_path: Path, case: tuple[tuple[str, ...], dict[str, Any]]) -> None:
    victims, options = case
    found = trained(tmp_path, victims, **options)
    check(found, missing=12)
    assert found.losses[max(found.losses)] <= UNTIL
    assert needed() - 3 <= found.clocks <= needed() + 4 * FULL.period


def test_a_dropped_share_is_named(tmp_path: Path) -> None:
    found = trained(tmp_path, ("worker-1",), returns=False, share="drop")
    check(found, missing=4)
    n = len(digits.few())
    assert set(found.fractions.values()) == {(n // 2) / n}
    assert set(range(max(found.losses) - 20, max(found.losses))) <= set(found.fractions)
    last = found.losses[max(found.losses)] / found.fractions[max(found.losses)]
    assert last <= UNTIL
    assert "until=0.8 is compared with loss / fraction" in found.logs
    assert needed() <= found.clocks <= 2 * needed()  # half of a gradient is half of a step


def test_a_user_who_deals_once_has_no_false_end_and_is_told_why(tmp_path: Path) -> None:
    found = trained(tmp_path, ("worker-1",), returns=False, once=True)
    check(found, missing=300)
    assert max(found.losses) <= KILL_AT + 5
    assert found.clocks == 300  # its limit
    assert "worker-0 still works on share 1 of 2 of the data" in found.logs
