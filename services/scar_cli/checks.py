"""What `scar doctor` checks: what any machine needs, and a cluster's Redis, store and services."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from scar.errors import ConfigError, ScarError
from scar_cli.clusters import ClusterTarget
from scar_cli.output import format_seconds, format_size
from scar_cli.wait_reports import describe_wait, read_waits
from scar_local.redis import server_command
from scar_runtime.liveness.redis_url import REDIS_CA, with_redis_ca
from scar_runtime.store import schemes

PACKAGES = ("numpy", "grpcio", "protobuf", "redis", *schemes.PACKAGES, "pydantic-settings", "typer", "rich")
OPTIONAL = ("safetensors", "matplotlib")
# bytes free: warn, fail
LOW_DISK = 2 << 30
NO_DISK = 200 << 20
SKEW = 2.0  # seconds between this clock and that of Redis
EARLIEST = 1735689600  # 2025-01-01, in seconds since 1970: a clock before it was never set


@dataclass(frozen=True)
class HealthCheck:
    """``level``: "ok" | "warn" | "fail". ``fix``: what to do, empty when ok."""

    name: str
    level: str
    detail: str
    fix: str = ""


def check_python() -> HealthCheck:
    return HealthCheck("python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}")


def check_packages() -> list[HealthCheck]:
    checks = []
    for name in (*PACKAGES, *OPTIONAL):
        try:
            checks.append(HealthCheck("package", "ok", f"{name} {version(name)}"))
        except PackageNotFoundError:
            extra = "demo" if name == "matplotlib" else "cli"
            level = "warn" if name in OPTIONAL else "fail"
            checks.append(
                HealthCheck("package", level, f"{name} is missing", f"Run: pip install 'scar-ps[{extra}]'")
            )
    return checks


def check_ports() -> HealthCheck:
    """A cluster's processes talk over loopback."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=2.0),
        ):
            return HealthCheck("ports", "ok", f"loopback works (tried port {server.getsockname()[1]})")
    except OSError as error:
        return HealthCheck(
            "ports",
            "fail",
            f"no connection over 127.0.0.1: {error}",
            "Allow loopback in the firewall or sandbox",
        )


def check_disk(folder: Path) -> HealthCheck:
    free = shutil.disk_usage(folder).free
    where = f"{format_size(free)} free in {folder.absolute()}"
    if free < NO_DISK:
        return HealthCheck(
            "disk", "fail", where, "Free some space, or keep checkpoints elsewhere by --store URL"
        )
    return (
        HealthCheck("disk", "warn", where, "Checkpoints of a large model need more")
        if free < LOW_DISK
        else HealthCheck("disk", "ok", where)
    )


def check_clock() -> HealthCheck:
    """Decisions use the monotonic clock; the other one only dates checkpoints and failures."""
    if time.time() < EARLIEST:
        return HealthCheck(
            "clock",
            "warn",
            time.strftime("it says %Y-%m-%d"),
            "Set it: checkpoints and failures carry wrong dates",
        )
    return HealthCheck("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S"))


def check_redis(url: str) -> HealthCheck:
    """The cluster's when one runs or ``url`` is given; else whether a new cluster would have one."""
    if not url:
        try:
            program, *_ = server_command(0, Path())
        except ConfigError as error:
            return HealthCheck("redis", "fail", error.message, error.next_step)
        return HealthCheck("redis", "ok", f"{program}, started with each cluster")
    import redis

    shown = re.sub(r"(?<=:)[^:/@]*(?=@)", "***", url)  # a password is nobody's business
    try:
        began = time.monotonic()
        trusted = with_redis_ca(url, os.environ.get(REDIS_CA, ""))
        now, micros = redis.Redis.from_url(trusted, socket_timeout=2.0, socket_connect_timeout=2.0).time()
        took = time.monotonic() - began
    except (redis.RedisError, ValueError, ConfigError) as error:
        return HealthCheck(
            "redis",
            "fail",
            f"{shown}: {error}",
            "Start it, or correct the URL; training continues without it",
        )
    skew = abs(now + micros / 1e6 - time.time())
    if skew > SKEW:
        return HealthCheck(
            "redis",
            "warn",
            f"{shown}: its clock differs by {format_seconds(skew)}",
            "Synchronise both clocks; only dates are wrong",
        )
    return HealthCheck("redis", "ok", f"{shown} answers in {format_seconds(took)}")


def check_store(url: str) -> HealthCheck:
    from scar_runtime.store import open_store

    try:
        began = time.monotonic()
        open_store(url).probe()
    except ScarError as error:
        return HealthCheck("store", "fail", error.message, error.next_step)
    return HealthCheck(
        "store", "ok", f"{url}: one of 8 racing creates won, {format_seconds(time.monotonic() - began)}"
    )


def check_cluster(target: ClusterTarget) -> list[HealthCheck]:
    """Processes, then services, then what they say themselves."""
    checks = [
        HealthCheck(
            "process", "fail", f"{process.name} is {process.state}", "Wait for its restart; its log says why"
        )
        for process in target.processes()
        if not process.alive and not process.name.startswith("worker-")
    ]
    try:
        status, waits = read_waits(target)
    except ScarError as error:
        return [*checks, HealthCheck("cluster", "fail", error.message, error.next_step)]
    if status.job is None:
        checks += [HealthCheck("cluster", "warn", problem, "See `scar watch`") for problem in status.problems]
    for wait, stack in waits:
        where = f"; it is at {stack[0]}" if stack else ""
        level = "fail" if wait.wrong else "warn"
        checks.append(
            HealthCheck("training", level, describe_wait(wait) + where, wait.step or "See `scar watch`")
        )
    job = f"job {status.job.name} at clock {status.clock}" if status.job else "no job yet"
    shards = len(status.epoch.shards) if status.epoch else 0
    return checks or [
        HealthCheck(
            "cluster", "ok", f"recovery, detector and checkpoint answer, {shards} shards serve, {job}"
        )
    ]
