"""What nobody will ever collect: objects of the store and keys of Redis that have been of no use for long."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scar.wire.timing import TIMING
from scar_checkpoint.core.rounds import REWRITE_AGE
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.store.layout import (
    EPOCHS,
    FINISHED,
    HISTORY,
    INITIAL,
    JOB,
    LEDGER,
    MANIFESTS,
    OBJECTS,
    OWNER_BEAT,
    OWNERS,
    PINS,
    compacted_manifest,
    failure_version,
    history_version,
    kind_of,
)

USELESS = 240.0  # seconds for which something may lie there: what is superseded is kept for 30, 120 and a bit
COLLECTED = 30.0  # seconds in which garbage is collected at least once
PROBE = 60.0  # seconds that a probe of the store lasts at most
LATE_PROBES = 2  # of a run, which were written after they had been deleted
# seconds of a detector that is well, after a member's death, when its heartbeat is gone
DEAD = max(60.0, TIMING.remember(TIMING.lease) + 35.0)
# of a failure's record, and of the history: each leader writes its own, and deletes those that it has read
VERSIONS = 3

KINDS = {JOB, INITIAL, OWNERS, OWNER_BEAT, EPOCHS, MANIFESTS, OBJECTS, LEDGER, FINISHED, PINS, HISTORY}
LIVENESS = re.compile(r"scar:[^:]+:(beats|epoch|leader:(recovery|checkpoint)|doomed:.+)")


@dataclass(frozen=True)
class StoredState:
    """The objects of a job at rest. ``ages``: seconds since each was written, by key; ``manifests``: those
    that exist; ``keep``: how many stay; ``used``: numbers of others that are needed; ``quiet``: seconds since
    something last kept the leader from collecting.
    """

    ages: Mapping[str, float]
    manifests: Mapping[int, Manifest]
    keep: int
    used: Mapping[int, float] = field(default_factory=dict)
    quiet: float = 0.0
    damaged: set[str] = field(default_factory=set)


def find_garbage(state: StoredState) -> list[str]:
    """What is no part of the job any more and should have been deleted long ago."""
    found = [f"nobody knows what {key} is" for key in state.ages if kind_of(key) not in KINDS]
    if state.quiet > USELESS and state.manifests:
        found += _old_manifests(state)
        found += _old_objects(state)
    return sorted([*found, *_old_versions(state.ages)])


def _age(state: StoredState, number: int) -> float:
    return state.ages.get(f"{MANIFESTS}/{number:08d}", 0.0)


def _old_manifests(state: StoredState) -> Iterator[str]:
    numbers = sorted(state.manifests)
    rounds = {state.manifests[number].round: number for number in numbers}
    kept = {*numbers[-state.keep :], *sorted(rounds.values())[-state.keep :]}
    kept.update([number for number in numbers if state.manifests[number].full][-1:])
    for number in numbers:
        if number in kept or state.used.get(number, USELESS) < USELESS:
            continue
        if _overtaken_for(state, number) > USELESS:
            yield f"manifest {number} has been of no use for {USELESS:g} s and is still there"


def _overtaken_for(state: StoredState, number: int) -> float:
    """Seconds since K later manifests were there, and either a copy of this one or K later rounds: a
    recovery's copies are no states of their own. For one that is not among the last K of either.
    """
    followers = [one for one in sorted(state.manifests) if one > number]
    rounds: dict[int, int] = {}  # round -> its first manifest behind this one
    for one in followers:
        rounds.setdefault(state.manifests[one].round, one)
    copy = rounds.pop(state.manifests[number].round, None)
    overtaken = [*([copy] if copy is not None else []), *list(rounds.values())[state.keep - 1 : state.keep]]
    since_round = max((_age(state, one) for one in overtaken), default=0.0)
    return min(_age(state, followers[state.keep - 1]), since_round)


def _old_objects(state: StoredState) -> Iterator[str]:
    """Named by no manifest that exists, and too old to be named by the next one."""
    named = {ref.key for manifest in state.manifests.values() for ref in manifest.objects}
    newest = _age(state, max(state.manifests))
    objects = [key for key in state.ages if kind_of(key) == OBJECTS and key not in state.damaged]
    for key in objects:
        compacted = compacted_manifest(key)
        if compacted is not None and not _is_settled(state, compacted + 2 * REWRITE_AGE + 1):
            continue  # the next manifest may still name it
        if key not in named and state.ages[key] > newest + USELESS:
            yield f"no manifest has named {key} for {USELESS:g} s, and it is still there"


def _is_settled(state: StoredState, number: int) -> bool:
    """Whether a manifest has come so long ago that garbage was collected since; it may be gone, too."""
    if number in state.manifests:
        return _age(state, number) > COLLECTED
    return number < max(state.manifests)


def _old_versions(keys: Collection[str]) -> list[str]:
    versions: dict[int, list[str]] = {}
    for key in keys:
        if version := failure_version(key):
            versions.setdefault(version[0], []).append(key)
    many = {number: found for number, found in versions.items() if len(found) > VERSIONS}
    told = [f"failure {number} has {len(found)} versions of its record" for number, found in many.items()]
    histories = sum(history_version(key) is not None for key in keys)
    return [*told, *([f"the history has {histories} versions"] if histories > VERSIONS else [])]


def find_probes(ages: Mapping[str, float], excused: int) -> list[str]:
    """Scratch of those who tried the store. ``ages``: of the objects of the whole store, by key;
    ``excused``: how many may be of processes that died meanwhile, or have been written late.
    """
    old = [key for key, age in ages.items() if key.startswith("probe/") and age > PROBE]
    return [f"{len(old)} probes are still in the store, {old[0]} for one"] if len(old) > excused else []


def find_dead_keys(
    values: Mapping[str, Any],
    expires: Iterable[str],
    died: Mapping[str, float],
    returned: Collection[str] = (),
) -> list[str]:
    """Keys of Redis that are of no use. ``expires``: keys that go by themselves; ``died``: member key ->
    seconds for which it has been dead while a detector could sweep; ``returned``: had been declared dead
    before, so that their last heartbeats were signs of life: detectors remember them, and judge them anew.
    """
    unknown = [key for key in values if not LIVENESS.fullmatch(key)]
    found = [f"nobody knows what {key} in Redis is" for key in unknown]
    ending = set(expires)
    for key, value in values.items():
        if (":leader:" in key or ":doomed:" in key) and key not in ending:
            found.append(f"{key} in Redis never expires")
        if key.endswith(":beats"):
            late = {member: DEAD + TIMING.remember(TIMING.lease) * (member in returned) for member in value}
            found += [
                f"{member} is dead for {late[member]:g} s, and Redis has its heartbeat"
                for member in sorted(value)
                if died.get(member, 0.0) > late[member]
            ]
    return found
