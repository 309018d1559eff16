"""The simulator's network: as SimGrid's, as arithmetic, and as every flow on its own."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")

from experiments.simulate import reference
from experiments.simulate.fairness import (
    BANDWIDTH_FACTOR,
    CROSS_TRAFFIC,
    LATENCY_FACTOR,
    NetworkPath,
    flow_rates,
)
from experiments.simulate.network import Outage, TransferPlan, TransferStep, exchange_seconds, storage_seconds
from experiments.simulate.platform import GB, MB, TABLE_2, TABLE_3, NodeCluster, Platform, TrainingLoad
from experiments.simulate.transfers import Cut, Flow, arrival_seconds
from scar.errors import ConfigError

SLACK = 1e-6

bandwidths = st.floats(1e6, 1e10)
latencies = st.floats(0, 1e-2)
clusters = st.builds(NodeCluster, st.integers(1, 4), bandwidths, latencies, bandwidths, latencies)
platforms = st.builds(Platform, st.integers(1, 3), clusters, clusters, clusters)


@pytest.mark.parametrize("case", reference.CASES, ids=lambda case: case.name)
def test_as_simgrid(case: reference.ReferenceCase) -> None:
    assert reference.simulated_seconds(case) == pytest.approx(
        reference.recorded_answers()[case.name], rel=0.01
    )


def test_simgrid_says_what_was_recorded() -> None:
    try:
        answers = reference.ask_simgrid(reference.CASES)
    except ConfigError as error:
        pytest.skip(f"only SimGrid's recorded answers were compared: {error.message}")
    for case, answer in zip(reference.CASES, answers, strict=True):
        assert answer == pytest.approx(reference.recorded_answers()[case.name], rel=0.01), case.name
        assert reference.simulated_seconds(case) == pytest.approx(answer, rel=0.01), case.name


@pytest.mark.parametrize(("platform", "seconds"), [(TABLE_2, 28_660), (TABLE_2, 28_700), (TABLE_3, 37_320)])
def test_two_hundred_iterations_take_what_arithmetic_says(platform: Platform, seconds: float) -> None:
    push, pull = TransferStep("push", 1 * GB, wait=100.0), TransferStep("pull", 1 * GB)
    assert 200 * (exchange_seconds(platform, (push,)) + exchange_seconds(platform, (pull,))) == pytest.approx(
        seconds, rel=0.01
    )


@given(platforms, st.floats(1e3, 1e10), st.sampled_from(["push", "pull"]))
def test_alike_flows_share_what_is_narrowest(platform: Platform, size: float, way: str) -> None:
    workers, servers = platform.workers, platform.servers
    part, nodes = size / servers.nodes, platform.worker_nodes
    path = NetworkPath(
        (workers.bandwidth, workers.backbone, servers.backbone, servers.bandwidth),
        (workers.latency, workers.backbone_latency, servers.backbone_latency, servers.latency),
    )
    shares = [
        path.bound,
        BANDWIDTH_FACTOR * workers.bandwidth / servers.nodes,
        BANDWIDTH_FACTOR * workers.backbone / (1 + CROSS_TRAFFIC) / (workers.nodes * servers.nodes),
        BANDWIDTH_FACTOR * servers.backbone / (1 + CROSS_TRAFFIC) / (nodes * servers.nodes),
        BANDWIDTH_FACTOR * servers.bandwidth / nodes,
    ]
    latency = LATENCY_FACTOR * sum(path.latencies)
    assert exchange_seconds(platform, (TransferStep(way, size),)) == pytest.approx(
        latency + part / min(shares), rel=SLACK
    )


plans: st.SearchStrategy[TransferPlan] = st.one_of(
    st.just(()),
    st.builds(lambda at: (TransferStep("push", 5e7, release=at),), st.floats(0, 5)),
    st.builds(
        lambda at, wait: (TransferStep("pull", 5e7, release=at), TransferStep("push", 5e7, wait)),
        st.floats(0, 5),
        st.floats(0, 5),
    ),
)


@settings(max_examples=25)
@given(platforms, st.data())
def test_kinds_stand_for_all_their_flows(platform: Platform, data: st.DataObject) -> None:
    worker = st.integers(0, platform.worker_nodes - 1)
    others = data.draw(st.dictionaries(worker, plans, max_size=3))
    cut = data.draw(
        st.lists(
            st.builds(Outage, st.integers(-1, platform.clusters - 1), st.just(0.5), st.floats(1, 9)),
            max_size=1,
        )
    )
    usual = (TransferStep("push", 5e7, wait=1.0),)
    found = exchange_seconds(platform, usual, others, cut)
    assert found == pytest.approx(_each_flow(platform, usual, others, cut), rel=SLACK)


def _each_flow(
    platform: Platform, usual: TransferPlan, others: dict[int, TransferPlan], outages: list[Outage]
) -> float:
    """Every worker with every server, and every link, by itself."""
    workers, servers = platform.workers, platform.servers
    path = NetworkPath(
        (workers.bandwidth, workers.backbone, servers.backbone, servers.bandwidth),
        (workers.latency, workers.backbone_latency, servers.backbone_latency, servers.latency),
    )
    rooms = {"servers": servers.backbone}
    rooms |= {f"cluster {number}": workers.backbone for number in range(platform.clusters)}
    for way in ("push", "pull"):
        rooms |= {f"server {number} {way}": servers.bandwidth for number in range(servers.nodes)}
        rooms |= {f"worker {number} {way}": workers.bandwidth for number in range(platform.worker_nodes)}
    flows, last = [], {}
    for worker in range(platform.worker_nodes):
        plan = others.get(worker, usual)
        for step, server in product(plan, range(servers.nodes)):
            back = "pull" if step.direction == "push" else "push"
            loads = {f"worker {worker} {step.direction}": 1.0, f"worker {worker} {back}": CROSS_TRAFFIC}
            loads |= {f"server {server} {step.direction}": 1.0, f"server {server} {back}": CROSS_TRAFFIC}
            loads |= {f"cluster {worker // workers.nodes}": 1 + CROSS_TRAFFIC, "servers": 1 + CROSS_TRAFFIC}
            after = last.get((worker, server), -1) if step is not plan[0] else -1
            last[worker, server] = len(flows)
            flows.append(Flow(step.bytes / servers.nodes, path, loads, step.wait, step.release, after))
    cuts = [
        Cut("servers" if one.cluster < 0 else f"cluster {one.cluster}", one.begin, one.end) for one in outages
    ]
    return max(
        arrival_seconds(flows, {name: BANDWIDTH_FACTOR * room for name, room in rooms.items()}, cuts),
        default=0.0,
    )


def test_a_flow_with_half_the_round_trip_gets_twice_as_much() -> None:
    near, far = NetworkPath((1e9,), (0.01,)), NetworkPath((1e9,), (0.02,))
    found = flow_rates(np.ones((1, 2)), np.array([3e6]), [near, far])
    assert found.sum() == pytest.approx(3e6)
    assert found[0] / found[1] == pytest.approx(2, rel=0.01)


def test_what_a_bound_leaves_is_shared_by_the_others() -> None:
    slow, fast = NetworkPath((1e6,), (0.01,)), NetworkPath((1e9,), (0.01,))
    found = flow_rates(np.ones((1, 2)), np.array([5e6]), [slow, fast])
    assert found == pytest.approx([0.97e6, 4.03e6])


def test_a_cut_stops_what_is_under_way() -> None:
    flow = Flow(97.0 * MB, NetworkPath((100 * MB,), (0.0,)), {"link": 1.0})
    assert arrival_seconds([flow], {"link": 97 * MB}) == pytest.approx([1.0])
    assert arrival_seconds([flow], {"link": 97 * MB}, [Cut("link", 0.25, 4.25)]) == pytest.approx([5.0])
    with pytest.raises(ConfigError, match="never ends"):
        arrival_seconds([flow], {"link": 97 * MB}, [Cut("link", 0.25, float("inf"))])


@given(st.integers(1, 20_000), st.floats(1e6, 1e11), st.sampled_from([2.0, 3.5, 8.0]))
def test_writing_takes_time_in_proportion_to_the_bytes(nodes: int, size: float, factor: float) -> None:
    def moved(each: float) -> float:
        latency = LATENCY_FACTOR * (TABLE_2.storage.latency + TABLE_2.storage.backbone_latency)
        return storage_seconds(TABLE_2.storage, TABLE_2.disk, nodes, each) - latency

    assert moved(factor * size) == pytest.approx(factor * moved(size), rel=1e-4)


def test_a_slow_disk_limits_checkpoints() -> None:
    fast = storage_seconds(TABLE_2.storage, 10 * GB, 10_000, 4 * GB)
    assert fast == pytest.approx(80 * 1.05 / 0.97, rel=0.001)
    assert storage_seconds(TABLE_2.storage, 1 * GB, 10_000, 4 * GB) == pytest.approx(400, rel=0.001)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: NodeCluster(0, 1.0, 0.0, 1.0, 0.0), "nodes"),
        (lambda: NodeCluster(1, -1.0, 0.0, 1.0, 0.0), "bandwidth"),
        (lambda: NodeCluster(1, 1.0, float("nan"), 1.0, 0.0), "latency"),
        (lambda: NodeCluster(1, 1.0, 0.0, float("inf"), 0.0), "backbone"),
        (lambda: Platform(0, TABLE_2.workers, TABLE_2.servers, TABLE_2.storage), "clusters"),
        (lambda: TrainingLoad(iterations=2.5), "iterations"),  # type: ignore[arg-type]
        (lambda: TrainingLoad(model_bytes=0.0), "model_bytes"),
        (lambda: TABLE_2.with_storage(0.0), "backbone|bandwidth"),
    ],
)
def test_what_cannot_be_is_named(make: object, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()  # type: ignore[operator]
