"""The layout of the store: every key and every folder, spelled here and nowhere else.

    _clusters/<label>/00000002                  which jobs the clusters of this label have run, in order
    <job>/job                                   the job's description
    <job>/init/<table>@<sha256>                 the initial array that the user gave, or a part of it
    <job>/owners/00000001                       which cluster trains the job
    <job>/owner-beat                            replaced while that cluster lives
    <job>/epochs/00000007                       placement and members
    <job>/manifests/00000012                    a committed checkpoint round
    <job>/objects/e00000007-<member>-r00000012  blocks that one shard saved in one round ("-1": again)
    <job>/objects/compact-00000012-<author>     blocks of several objects, written again
    <job>/ledger/00000003/00000002-<author>     failure 3: version 2 of one recovery coordinator
    <job>/ledger/00000003/lost-<worker>         which pushes this worker lost
    <job>/ledger/00000003/blocks-<sha256>       of which blocks
    <job>/finished/00000007                     how the job ended with epoch 7
    <job>/history/00000002-<author>             how the run went: version 2 of one recovery coordinator
    <job>/pins/<id>                             manifests that somebody reads
    probe/<id>                                  scratch of :meth:`scar_runtime.store.Store.probe`

Keys below ``<job>/`` are relative to ``store.under(job)``. Whoever lists a folder lists ``folder(EPOCHS)``;
numbers have leading zeros, so that keys ascend with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from scar.wire.codec import initial_key

__all__ = [
    "EPOCHS",
    "FINISHED",
    "HISTORY",
    "INITIAL",
    "JOB",
    "LEDGER",
    "MANIFESTS",
    "OBJECTS",
    "OWNERS",
    "OWNER_BEAT",
    "PINS",
    "REVISIONS",
    "cluster_jobs",
    "compact_key",
    "compacted_manifest",
    "epoch_key",
    "failure_folder",
    "failure_key",
    "failure_version",
    "finished_key",
    "folder",
    "history_key",
    "history_version",
    "initial_key",
    "jobs_among",
    "kind_of",
    "lost_blocks_key",
    "lost_key",
    "lost_prefix",
    "manifest_key",
    "numbered",
    "object_key",
    "owner_key",
    "pin_key",
    "probe_key",
    "saved_round",
    "table_of_initial",
]

DIGITS = 8

JOB = "job"
INITIAL = "init"
OWNER_BEAT = "owner-beat"
EPOCHS = "epochs"
MANIFESTS = "manifests"
OBJECTS = "objects"
LEDGER = "ledger"
FINISHED = "finished"
OWNERS = "owners"
PINS = "pins"
HISTORY = "history"
REVISIONS = "revisions"

_CLUSTERS = "_clusters"  # no job can have this name
_PROBE = "probe"

_SAVED = re.compile(rf"{OBJECTS}/e\d+-.+-r(\d+)(-\d+)?")
_COMPACT = re.compile(rf"{OBJECTS}/compact-(\d+)-.+")
_FAILURE = re.compile(rf"{LEDGER}/([0-9]{{{DIGITS},}})/([0-9]{{{DIGITS},}})-([A-Za-z0-9_.-]+)")

_HISTORY = re.compile(rf"{HISTORY}/([0-9]{{{DIGITS},}})-([A-Za-z0-9_.-]+)")


def folder(name: str) -> str:
    """What all keys of this folder begin with."""
    return f"{name}/"


def numbered(name: str, number: int) -> str:
    """Key of a numbered record: ``numbered(EPOCHS, 7) == "epochs/00000007"``."""
    return f"{name}/{number:0{DIGITS}d}"


def kind_of(key: str) -> str:
    """The first part of a key of a job: ``kind_of("epochs/00000007") == "epochs"``."""
    return key.partition("/")[0]


# --- jobs


def cluster_jobs(label: str) -> str:
    """Folder of the numbered records of what clusters of this label have run; relative to the whole store."""
    return f"{_CLUSTERS}/{label}"


def jobs_among(keys: Iterable[str]) -> list[str]:
    """Names of the jobs whose descriptions are among the keys of a whole store."""
    return [key.removesuffix(f"/{JOB}") for key in keys if key.endswith(f"/{JOB}") and key.count("/") == 1]


def table_of_initial(key: str) -> str:
    """Which table's initial array a key is of; empty: of none."""
    found = re.fullmatch(rf"{INITIAL}/([A-Za-z0-9_.-]+)@[0-9a-f]{{64}}", key)
    return found[1] if found else ""


def epoch_key(number: int) -> str:
    return numbered(EPOCHS, number)


def owner_key(number: int) -> str:
    return numbered(OWNERS, number)


def finished_key(epoch: int) -> str:
    """Key of how the job ended with this epoch."""
    return numbered(FINISHED, epoch)


# --- checkpoints


def manifest_key(number: int) -> str:
    return numbered(MANIFESTS, number)


def object_key(epoch: int, owner: str, round_number: int, repetition: int = 0) -> str:
    """Key of what one shard (member key) saves in one round.

    ``repetition``: above 0 where the shard has saved this round, or a later one, before.
    """
    key = f"{OBJECTS}/e{epoch:08d}-{owner}-r{round_number:08d}"
    return f"{key}-{repetition}" if repetition else key


def saved_round(key: str) -> int | None:
    """The round of an object that a shard saved; None: it is no such key."""
    match = _SAVED.fullmatch(key)
    return int(match[1]) if match else None


def compact_key(manifest: int, author: str) -> str:
    """Key of blocks of several objects that were written again for the manifest after this one."""
    return f"{OBJECTS}/compact-{manifest:08d}-{author}"


def compacted_manifest(key: str) -> int | None:
    """The manifest of an object that compaction wrote; None: it is no such key."""
    match = _COMPACT.fullmatch(key)
    return int(match[1]) if match else None


def pin_key(identifier: str) -> str:
    return f"{PINS}/{identifier}"


# --- the failure log


def failure_folder(number: int) -> str:
    return numbered(LEDGER, number)


def failure_key(number: int, version: int, author: str) -> str:
    """Key of one version of a failure's record by one recovery coordinator."""
    return f"{failure_folder(number)}/{version:0{DIGITS}d}-{author}"


def failure_version(key: str) -> tuple[int, int] | None:
    """Failure and version of :func:`failure_key`; None: it is no such key."""
    match = _FAILURE.fullmatch(key)
    return (int(match[1]), int(match[2])) if match else None


def lost_prefix(number: int) -> str:
    """What :func:`lost_key` begins with, whoever the worker is."""
    return f"{failure_folder(number)}/lost-"


def lost_key(number: int, worker: str) -> str:
    """Key of which pushes a worker (member key) lost."""
    return f"{lost_prefix(number)}{worker}"


def lost_blocks_key(number: int, digest: str) -> str:
    """Key of a set of blocks that such reports name."""
    return f"{failure_folder(number)}/blocks-{digest}"


# --- how a run went


def history_key(version: int, author: str) -> str:
    """Key of one version by one recovery coordinator."""
    return f"{numbered(HISTORY, version)}-{author}"


def history_version(key: str) -> int | None:
    """The version of :func:`history_key`; None: it is no such key."""
    match = _HISTORY.fullmatch(key)
    return int(match[1]) if match else None


# --- the store itself


def probe_key(identifier: str) -> str:
    return f"{_PROBE}/{identifier}"
