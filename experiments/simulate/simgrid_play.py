"""Lets SimGrid play what workers do, on clusters as its own ``<cluster>`` describes them.

Needs nothing but SimGrid.

    apt-get install python3-simgrid
    /usr/bin/python3 experiments/simulate/simgrid_play.py < plays.json

Reads a list of plays, each an object: the ``platform``; ``phases``, between which all workers meet, each with
the steps that are ``usual`` and those of ``others`` by the worker's number: ["sleep", seconds], ["push" |
"pull" | "write" | "read", bytes]; ``cuts``, each [cluster or -1, begin, end]. Writes a list: the second in
which each play is over.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

from simgrid import Actor, Barrier, Comm, Engine, Host, Link, this_actor

Described = dict[str, Any]
WIDE = "1e18Bps"
ALMOST_NOTHING = 1.0  # bytes a second; a link that is turned off would lose what is on it


def cluster_xml(name: str, one: Described) -> str:
    return (
        f'<cluster id="{name}" prefix="{name}-" suffix="" radical="0-{one["nodes"] - 1}" speed="1f" '
        f'bw="{one["bandwidth"]}Bps" lat="{one["latency"]}s" '
        f'bb_bw="{one["backbone"]}Bps" bb_lat="{one["backbone_latency"]}s" router_id="{name}-router"/>'
    )


def route_xml(source: str, target: str) -> str:
    return (
        f'<zoneRoute src="{source}" dst="{target}" gw_src="{source}-router" gw_dst="{target}-router">'
        '<link_ctn id="core"/></zoneRoute>'
    )


def platform_xml(platform: Described) -> str:
    """Clusters of workers and one of servers, as SimGrid reads them.

    Each worker has a dock without limits, where its storage network ends.
    """
    names = [f"workers{number}" for number in range(platform["clusters"])]
    nodes = platform["clusters"] * platform["workers"]["nodes"]
    zones = [cluster_xml(name, platform["workers"]) for name in names]
    zones += [cluster_xml("servers", platform["servers"]), cluster_xml("storage", platform["storage"])]
    dock = (
        f'prefix="dock-" suffix="" radical="0-{nodes - 1}" speed="1f" bw="{WIDE}" lat="0s"'
        ' router_id="dock-router"'
    )
    zones.append(f'<cluster id="dock" {dock}/>')
    routes = [route_xml(name, "servers") for name in names] + [route_xml("dock", "storage")]
    core = f'<link id="core" bandwidth="{WIDE}" latency="0s" sharing_policy="FATPIPE"/>'
    return (
        '<?xml version="1.0"?><!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd"><platform'
        ' version="4.1"><zone id="all"'
        f' routing="Full">{"".join(zones)}{core}{"".join(routes)}</zone></platform>'
    )


def transfer_bytes(
    kind: str, size: float, worker: Any, dock: Any, servers: list[Any], storage: list[Any]
) -> None:
    here, there = (worker, servers) if kind in ("push", "pull") else (dock, storage)
    part = round(size / len(there))
    ends = [(here, one) if kind in ("push", "write") else (one, here) for one in there]
    for comm in [Comm.sendto_async(source, target, part) for source, target in ends]:
        comm.wait()


def run_worker(number: int, phases: list[Described], barrier: Any, hosts: tuple[Any, ...]) -> None:
    for phase in phases:
        for kind, amount in phase["others"].get(str(number), phase["usual"]):
            if kind == "sleep":
                this_actor.sleep_for(amount)
            else:
                transfer_bytes(kind, amount, *hosts)
        barrier.wait()


def cut_link(name: str, begin: float, end: float) -> None:
    link = Link.by_name(name)
    bandwidth = link.bandwidth
    this_actor.sleep_until(begin)
    link.set_bandwidth(ALMOST_NOTHING)
    this_actor.sleep_until(end)
    link.set_bandwidth(bandwidth)


def run_play(one: Described) -> float:
    engine = Engine(["play", "--log=root.thresh:error"])
    platform = one["platform"]
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(platform_xml(platform))
        file.flush()
        engine.load_platform(file.name)
    servers = [Host.by_name(f"servers-{number}") for number in range(platform["servers"]["nodes"])]
    storage = [Host.by_name(f"storage-{number}") for number in range(platform["storage"]["nodes"])]
    nodes = platform["workers"]["nodes"]
    workers = [
        Host.by_name(f"workers{group}-{number}")
        for group in range(platform["clusters"])
        for number in range(nodes)
    ]
    barrier = Barrier(len(workers))
    for number, host in enumerate(workers):
        hosts = (host, Host.by_name(f"dock-{number}"), servers, storage)
        Actor.create(f"worker{number}", host, run_worker, number, one["phases"], barrier, hosts)
    for group, begin, end in one["cuts"]:
        name = "servers_backbone" if group < 0 else f"workers{group}_backbone"
        Actor.create(f"cut{group}", servers[0], cut_link, name, begin, end)
    engine.run()
    return float(engine.clock)


def run_in_child(one: Described) -> float:
    """SimGrid runs once in a process, so each play has one."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, repr(run_play(one)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    if not text:
        sys.exit("SimGrid could not play; its messages are above")
    return float(text)


if __name__ == "__main__":
    json.dump([run_in_child(one) for one in json.load(sys.stdin)], sys.stdout)
