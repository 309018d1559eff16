"""64 MiB pushed, applied and pulled through two shards of one machine by a worker of another."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.machines.network import ROOT, Machines, read_line, write_line
from benchmarks.machines.scar_cluster import WIDTH
from benchmarks.machines.scar_system import MODULE, start_cluster, start_worker

SIZE = 64 << 20
ROWS = SIZE // (4 * WIDTH)
SHARDS = 2
SERVER, CLIENT = 0, 1  # machines
TCP_PEER = (sys.executable, "-m", f"{MODULE}.tcp_peer")
TORCH_PORT, RAY_PORT = 29511, 6379


def measure_scar(steps: int) -> list[float]:
    """Seconds of each step, as of all here."""
    with Machines(2) as machines:
        settings = start_cluster(machines, SERVER, (SHARDS, SHARDS, 1, ROWS))
        worker = start_worker(machines, CLIENT, "worker-0", steps, settings)
        read_line(worker)
        write_line(worker, "go")
        return _seconds(worker)


def measure_tcp(steps: int) -> list[float]:
    with Machines(2) as machines:
        place = start_tcp(machines)
        command = [*TCP_PEER, "measure", *place, str(SIZE), str(steps)]
        return _seconds(machines.start(CLIENT, command))


def start_tcp(machines: Machines) -> tuple[str, str]:
    """A peer on the server's machine: its host and port."""
    host = machines.address(SERVER)
    return host, read_line(machines.start(SERVER, [*TCP_PEER, "serve", host])).strip()


def measure_torch(steps: int) -> list[float]:
    module = [sys.executable, "-m", f"{MODULE}.torch_rpc_peer"]
    with Machines(2) as machines:
        client, *_ = [
            machines.start(
                SERVER if rank else CLIENT,
                [*module, *map(str, (rank, SHARDS, machines.address(CLIENT), TORCH_PORT, ROWS, steps))],
            )
            for rank in range(SHARDS + 1)
        ]
        return _seconds(client)


def measure_ray(steps: int, python: str) -> list[float]:
    """``python``: an interpreter that has Ray."""
    ray = str(Path(python).parent / "ray")
    with Machines(2) as machines:
        head = f"{machines.address(SERVER)}:{RAY_PORT}"
        try:
            for machine, where, resource in (
                (SERVER, ["--head", f"--port={RAY_PORT}", "--include-dashboard=false"], "server"),
                (CLIENT, [f"--address={head}"], "client"),
            ):
                address = f"--node-ip-address={machines.address(machine)}"
                given = f'--resources={{"{resource}": {SHARDS}}}'
                started = machines.start(
                    machine, [ray, "start", address, given, "--disable-usage-stats", *where]
                )
                started.communicate(timeout=120)
            script = str(ROOT / "benchmarks/machines/ray_peer.py")
            sizes = map(str, (SHARDS, ROWS, steps))
            driver = machines.start(CLIENT, [python, script, head, machines.address(CLIENT), *sizes])
            return _seconds(driver)
        finally:
            subprocess.run([ray, "stop", "--force"], capture_output=True)
            time.sleep(1.0)  # until the machine is quiet again


def _seconds(process: subprocess.Popen[str]) -> list[float]:
    found: list[float] = json.loads(read_line(process))
    return found


SYSTEMS: dict[str, Callable[[int], list[float]]] = {
    "SCAR": measure_scar,
    "plain TCP": measure_tcp,
    "torch RPC": measure_torch,
}
