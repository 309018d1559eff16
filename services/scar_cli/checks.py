"""What `scar doctor` looks at, one finding a line: what any machine needs, and a cluster's Redis, store and services."""

from __future__ import annotations

import re
import shutil
import socket
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from scar.errors import ScarError
from scar_cli.clusters import Cluster, look
from scar_cli.output import seconds, size

PACKAGES = ("numpy", "grpcio", "protobuf", "redis", "boto3", "pydantic-settings", "typer", "rich")
OPTIONAL = ("safetensors", "matplotlib")
LOW_DISK, NO_DISK = 2 << 30, 200 << 20  # bytes free: warn, fail
SKEW = 2.0  # seconds between this clock and that of Redis
EARLIEST = 1735689600  # 2025-01-01, in seconds since 1970: a clock before it was never set


@dataclass(frozen=True)
class Check:
    """``level``: "ok" | "warn" | "fail". ``fix``: what to do, empty when ok."""

    name: str
    level: str
    detail: str
    fix: str = ""


def check_python() -> Check:
    return Check("python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}")


def check_packages() -> list[Check]:
    checks = []
    for name in (*PACKAGES, *OPTIONAL):
        try:
            checks.append(Check("package", "ok", f"{name} {version(name)}"))
        except PackageNotFoundError:
            extra = "demo" if name == "matplotlib" else "cli"
            level = "warn" if name in OPTIONAL else "fail"
            checks.append(Check("package", level, f"{name} is missing", f"Run: pip install 'scar-ps[{extra}]'"))
    return checks


def check_ports() -> Check:
    """A cluster's processes talk over loopback."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=2.0):
            return Check("ports", "ok", f"loopback works (tried port {server.getsockname()[1]})")
    except OSError as error:
        return Check("ports", "fail", f"no connection over 127.0.0.1: {error}", "Allow loopback in the firewall or sandbox")


def check_disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    where = f"{size(free)} free in {folder.absolute()}"
    if free < NO_DISK:
        return Check("disk", "fail", where, "Free some space, or keep checkpoints elsewhere by --store URL")
    return (
        Check("disk", "warn", where, "Checkpoints of a large model need more")
        if free < LOW_DISK
        else Check("disk", "ok", where)
    )


def check_clock() -> Check:
    """Decisions use the monotonic clock; the other one only dates checkpoints and failures."""
    if time.time() < EARLIEST:
        return Check("clock", "warn", time.strftime("it says %Y-%m-%d"), "Set it: checkpoints and failures carry wrong dates")
    return Check("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S"))


def check_redis(url: str) -> Check:
    """The cluster's when one runs or ``url`` is given; else whether a new cluster would have one."""
    if not url:
        program = shutil.which("redis-server")
        if program:
            return Check("redis", "ok", f"{program}, started with each cluster")
        return Check("redis", "warn", "no redis-server on PATH; fakeredis stands in", "Install redis-server for real load")
    import redis

    shown = re.sub(r"(?<=:)[^:/@]*(?=@)", "***", url)  # a password is nobody's business
    try:
        began = time.monotonic()
        now, micros = redis.Redis.from_url(url, socket_timeout=2.0, socket_connect_timeout=2.0).time()
        took = time.monotonic() - began
    except (redis.RedisError, ValueError) as error:
        return Check("redis", "fail", f"{shown}: {error}", "Start it, or correct the URL; training goes on without it")
    skew = abs(now + micros / 1e6 - time.time())
    if skew > SKEW:
        return Check(
            "redis", "warn", f"{shown}: its clock differs by {seconds(skew)}", "Synchronise both clocks; only dates suffer"
        )
    return Check("redis", "ok", f"{shown} answers in {seconds(took)}")


def check_store(url: str) -> Check:
    from scar_runtime.store import open_store

    try:
        began = time.monotonic()
        open_store(url).probe()
    except ScarError as error:
        return Check("store", "fail", error.message, error.next_step)
    return Check("store", "ok", f"{url}: one of 8 racing creates won, {seconds(time.monotonic() - began)}")


def check_cluster(target: Cluster) -> list[Check]:
    """Processes, then services, then what they say themselves."""
    checks = [
        Check("process", "fail", f"{process.name} is {process.state}", "Wait for its restart; its log says why")
        for process in target.processes()
        if not process.alive and not process.name.startswith("worker-")
    ]
    try:
        status = look(target)
    except ScarError as error:
        return [*checks, Check("cluster", "fail", error.message, error.next_step)]
    checks += [Check("cluster", "warn", problem, "See `scar watch`") for problem in status.problems]
    job = f"job {status.job.name} at clock {status.clock}" if status.job else "no job yet"
    shards = len(status.epoch.shards) if status.epoch else 0
    return checks or [Check("cluster", "ok", f"recovery, detector and checkpoint answer, {shards} shards serve, {job}")]
