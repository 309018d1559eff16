"""Targets: files, Redis, and what people type."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from multiprocessing.util import Finalize
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np

import scar
from scar.datasets import read_idx
from scar.jobfile import load_job
from scar.placement import Role
from scar.wire.certificates import TlsFiles, find_identity, read_certificate
from scar.wire.cluster_token import read_token
from scar.worker_state import unpack_state
from scar_admin.log_text import LogText
from scar_admin.status import ProcessInfo
from scar_admin.tracebacks import failure_reason
from scar_chaos.core.fault_syntax import parse_faults
from scar_chaos.recorder import decode_events, newest_clocks, read_history
from scar_chaos.targets.node_control import serve_node_request
from scar_compare.kill_schedule import parse_kills
from scar_compare.records import TrialJournal
from scar_console.log_ring import read_line
from scar_local.authority import CertificateAuthority, create_authority
from scar_local.cuts import CutRequests
from scar_local.directory import ClusterDirectory, ClusterState
from scar_local.wanted_shards import MOST_SHARDS, WantedShardsFile
from scar_runtime.liveness.heartbeat_store import _decode_heartbeat, _parse_epoch
from scar_runtime.store.signatures import read_key
from tests.fuzz import samples
from tests.fuzz.engine import FuzzTarget
from tests.fuzz.mutations import Mutator
from tests.fuzz.samples import JOB, ME, mutate_stream

FAULT_KINDS = {
    "ps": ("kill", "pause"),
    "worker": ("kill",),
    "recovery": ("kill",),
    "store": ("outage", "corrupt"),
}
PROGRAM = b"""import scar
job = scar.Job("digits", [scar.Table("w", (785, 10))], workers=2)
def train(worker):
    pass
"""


@functools.cache
def _scratch_folder(_process: int) -> Path:
    """Of this process, which takes it along when it ends; in memory where there is a file system for that."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(dir=shared)
    Finalize(None, shutil.rmtree, (folder,), exitpriority=0)
    return Path(folder)


@contextlib.contextmanager
def scratch(name: str, data: bytes) -> Iterator[Path]:
    """A file of this name with these bytes, in a folder that was empty and is so again."""
    path = _scratch_folder(os.getpid()) / name
    path.write_bytes(data)
    try:
        yield path
    finally:
        with os.scandir(path.parent) as left:
            for one in left:  # what is imported leaves a folder of bytecode
                shutil.rmtree(one.path) if one.is_dir() else os.unlink(one.path)


# --- Redis


def _beat() -> bytes:
    member = {"role": int(Role.SHARD), "name": ME.name, "incarnation": ME.incarnation, "address": "h:1"}
    return json.dumps({**member, "progress": 3, "epoch": 1, "count": 1}).encode()


def _read_beat(data: bytes) -> None:
    _decode_heartbeat.__wrapped__(ME.key, data.decode(errors="replace"))


# --- a cluster's folder


def _read_key(data: bytes) -> None:
    with scratch("store.key", data) as path:
        read_key(str(path))


def _state() -> bytes:
    process = ProcessInfo("ps-0", 7, "running", 0)
    addresses = {"recovery": "127.0.0.1:1", "detector": "127.0.0.1:2"}
    return json.dumps(
        asdict(ClusterState(3, "redis://x", "file:///x", "digits", addresses, (process,)))
    ).encode()


def _read_token(data: bytes) -> None:
    with scratch("token", data) as path:
        path.chmod(0o600)
        assert 32 <= len(read_token(path)) <= 512


def _read_state(data: bytes) -> None:
    with scratch("cluster.json", data) as path:
        state = ClusterDirectory(path.parent).read()
    if state is not None:
        assert all(type(number) is int for number in (state.pid, *(one.pid for one in state.processes)))
        assert all(isinstance(text, str) for text in (state.redis, state.store, *state.addresses.values()))


def _read_wanted(data: bytes) -> None:
    with scratch("shards.json", data) as path:
        wanted = WantedShardsFile(path.parent).read()
    assert wanted is None or 1 <= wanted.count <= MOST_SHARDS


def _read_program(data: bytes) -> None:
    with scratch("train_file.py", data) as path, contextlib.redirect_stderr(None), same_names(scar):
        load_job(str(path))


@contextlib.contextmanager
def same_names(module: ModuleType) -> Iterator[None]:
    """A program may write into what it imports, and the next ones would find that: ``scar.Job = ...``"""
    before = dict(vars(module))
    try:
        yield
    finally:
        now = vars(module)
        if now != before:
            now.clear()
            now.update(before)


def _mutate_program(mutator: Mutator, data: bytes) -> bytes:
    """The text of the job's declaration, whatever it becomes, is no loop; a file may not be Python at all."""
    return mutator.mutate_bytes(data) if mutator.rng.random() < 0.5 else mutator.mutate_text(data)


# --- a chaos run and comparisons


def _events() -> bytes:
    lines = [
        {"open": 1, "at": 1.5},
        {"push": 1, "clock": 1, "table": "w", "ids": [1, 2], "at": 1.5},
        {"push": 2, "clock": 1, "table": "w", "ids": None, "at": 1.5},
        {"pull": 1, "table": "w", "epochs": [1, 1], "values": [1, 2], "at": 1.5},
        {"share": 1, "blocks": [0, 3], "at": 1.5},
        {"torn": 1, "table": "w", "blocks": [1], "at": 1.5},
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _read_events(data: bytes) -> None:
    with scratch("worker-0@0123456789ab.jsonl", data) as path:
        read_history(path.parent, JOB)
        newest_clocks(path.parent)


def _mutate_lines(mutator: Mutator, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    if not lines or mutator.rng.random() < 0.2:
        return mutator.mutate_bytes(data)
    at = mutator.rng.randrange(len(lines))
    lines[at] = mutator.mutate_json(lines[at].rstrip(b"\n")) + b"\n"
    return b"".join(lines)


def _request() -> bytes:
    events = [{"open": 1}, {"push": 1, "clock": 1, "table": "w", "ids": [1]}]
    return json.dumps({"worker": "worker-0@0123456789ab", "number": 1, "events": events}).encode()


def _node_requests() -> list[bytes]:
    return [json.dumps({"request": "4 stop node-1", "done": "3"}).encode()]


def _read_node_request(data: bytes) -> None:
    """As whoever watches a chaos run on Kubernetes finds it in a ConfigMap, which holds text."""
    try:
        found = {str(key): str(value) for key, value in dict(json.loads(data)).items()}
    except (ValueError, TypeError, RecursionError):
        return

    class ConfigMapApi:
        core = SimpleNamespace(read_namespaced_config_map=None, patch_namespaced_config_map=None)

        @staticmethod
        def ask(*_: object) -> object:
            return SimpleNamespace(data=found)

    serve_node_request(ConfigMapApi(), "map", "default", lambda verb, node: None, lambda: ["node-1"])  # type: ignore[arg-type]


def _trials() -> bytes:
    journal = TrialJournal(Path("x"), {"a": "plan"})
    return json.dumps({"plan": journal.plans["a"], "panel": "a", "trial": 1, "clocks": 3}).encode() + b"\n"


def _read_trials(data: bytes) -> None:
    with scratch("trials.jsonl", data) as path:
        TrialJournal(path, {"a": "plan"}).read()


def _log() -> bytes:
    logged = {"time": "12:00", "level": "error", "traceback": 'File "train.py", line 3\nValueError: x'}
    return b"printed\n" + json.dumps(logged).encode() + b"\n"


def _read_cut(data: bytes) -> None:
    with scratch("ps-0.json", data) as path:
        CutRequests(path.parent).read()


def _read_log(data: bytes) -> None:
    failure_reason(data.decode(errors="replace").splitlines(), "train.py")


# --- certificates and data


def _certificates() -> bytes:
    with scratch("x", b"") as path:
        create_authority(path.parent, "local")
        return samples.join_stream(
            (path.parent / name).read_bytes() for name in ("worker.crt", "worker.key", "ca.crt")
        )


def _read_certificates(data: bytes) -> None:
    parts = [*samples.split_stream(data), b"", b"", b""][:3]
    with scratch("cert", parts[0]) as path:
        for name, part in (("key", parts[1]), ("ca", parts[2])):
            (path.parent / name).write_bytes(part)
        read_certificate(TlsFiles(path, path.parent / "key", path.parent / "ca"))


def _authority() -> bytes:
    with scratch("x", b"") as path:
        create_authority(path.parent, "local")
        return samples.join_stream((path.parent / name).read_bytes() for name in ("ca.crt", "ca.key"))


def _read_authority(data: bytes) -> None:
    parts = [*samples.split_stream(data), b"", b""][:2]
    with scratch("ca.crt", parts[0]) as path:
        (path.parent / "ca.key").write_bytes(parts[1])
        CertificateAuthority.load(path.parent)


def _images() -> bytes:
    return gzip.compress(b"\0\0\x08\x03" + np.array([2, 3, 3], ">u4").tobytes() + bytes(18), mtime=0)


def _read_images(data: bytes) -> None:
    with scratch("images.gz", data) as path:
        read_idx(path)


def _read_worker_state(data: bytes) -> None:
    row = np.frombuffer(data[:16].ljust(16, b"\0"), "<f8")
    unpack_state(JOB, 0, row)


TARGETS = [
    FuzzTarget("heartbeat", lambda: [_beat()], _read_beat, Mutator.mutate_json),
    FuzzTarget(
        "published-epoch",
        lambda: [b"12"],
        lambda data: _parse_epoch(data.decode(errors="replace")),
        Mutator.mutate_text,
    ),
    FuzzTarget("store-key", lambda: [b"0123456789abcdef" * 4], _read_key, Mutator.mutate_bytes, cost=10),
    FuzzTarget("cluster-state", lambda: [_state()], _read_state, Mutator.mutate_json, cost=10),
    FuzzTarget(
        "wanted-shards",
        lambda: [b'{"count": 8, "request": "7"}'],
        _read_wanted,
        Mutator.mutate_json,
        cost=10,
    ),
    FuzzTarget("cut-request", lambda: [b'{"pid": 12, "until": 9}'], _read_cut, Mutator.mutate_json, cost=10),
    FuzzTarget("training-file", lambda: [PROGRAM], _read_program, _mutate_program, cost=40),
    FuzzTarget("chaos-events", lambda: [_events()], _read_events, _mutate_lines, cost=20),
    FuzzTarget("chaos-request", lambda: [_request()], decode_events, Mutator.mutate_json),
    FuzzTarget("trials", lambda: [_trials()], _read_trials, _mutate_lines, cost=10),
    FuzzTarget("worker-log", lambda: [_log()], _read_log, _mutate_lines),
    FuzzTarget(
        "log-line",
        lambda: [b'{"time": "2026-01-02T03:04:05Z", "level": "info", "event": "a.b", "n": [1]}', b"hello"],
        lambda data: read_line(LogText("ps-0", data.decode(errors="replace"))),
        Mutator.mutate_json,
    ),
    FuzzTarget(
        "faults",
        lambda: [b"kill:ps-0+pause:ps-1~0.5", b"outage:store/90", b"kill:worker-0@recovery"],
        lambda data: parse_faults(data.decode(errors="replace"), FAULT_KINDS),
        Mutator.mutate_text,
    ),
    FuzzTarget(
        "kills",
        lambda: [b"ps-1@20 worker-0@30"],
        lambda data: parse_kills(data.decode(errors="replace").split()),
        Mutator.mutate_text,
    ),
    FuzzTarget(
        "certificate-names",
        lambda: [b"worker.local.scar other.example"],
        lambda data: find_identity(data.decode(errors="replace").split()),
        Mutator.mutate_text,
    ),
    FuzzTarget("certificate", lambda: [_certificates()], _read_certificates, mutate_stream, cost=200),
    FuzzTarget("token", lambda: [b"A" * 43 + b"\n"], _read_token, Mutator.mutate_text, cost=10),
    FuzzTarget("authority", lambda: [_authority()], _read_authority, mutate_stream, cost=100),
    FuzzTarget("node-request", _node_requests, _read_node_request, Mutator.mutate_json, cost=4),
    FuzzTarget("images", lambda: [_images()], _read_images, cost=10),
    FuzzTarget("worker-state", lambda: [np.array([3.0, 1.0], "<f8").tobytes()], _read_worker_state, cost=2),
]
