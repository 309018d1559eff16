"""Manifests: the numbered records that make rounds count, and the objects that they list. Pure data.

What the store has of them is said in proto/scar/v1; :mod:`scar_runtime.checkpoint.manifest_codec` converts.
"""

from __future__ import annotations

from dataclasses import dataclass

Sha256 = bytes


@dataclass(frozen=True)
class ObjectRef:
    """How a manifest lists an object.

    ``header_bytes``: of magic, header and index, readable by one range request; ``digest``: SHA-256 of these
    bytes, in which are the digests of all others; ``owner``: key of the member
    that wrote it; ``clock``: the lowest that it contains.
    """

    key: str = ""
    bytes: int = 0
    header_bytes: int = 0
    owner: str = ""
    epoch: int = 0
    round: int = 0
    blocks: int = 0
    clock: int = 0
    digest: Sha256 = b""


@dataclass(frozen=True)
class RoundPlan:
    """Periodic rounds, as their coordinator has chosen them: a ``fraction`` of the blocks ``every`` so many
    clocks; ``reason``: in words.

    What it has seen of the run by then: ``failures`` that took blocks back to something older, the shares of
    all blocks that they ``lost``, summed, ``seconds`` of training, and ``clock_seconds``, those of one clock
    (0: not measured yet).
    """

    fraction: float
    every: int
    reason: str = ""
    failures: int = 0
    lost: float = 0.0
    seconds: float = 0.0
    clock_seconds: float = 0.0


@dataclass(frozen=True)
class Manifest:
    """One state of the running checkpoint. For each block the newest object that holds it wins.

    ``parent``: number of the one that it continues; ``author``: incarnation of the coordinator; ``clock``:
    lowest of the round's objects; ``full``: this round saved every block, a consistent state; ``objects``: in
    commit order; ``created``: seconds since 1970; ``passed_over``: between it and its parent, unreadable;
    ``plan``: of the rounds after it; None: as the job says; ``sealed_for``: epoch that puts blocks back from
    this copy, 0 for a round's own; no round of an older epoch may follow it.
    """

    number: int = 0
    parent: int = 0
    job: str = ""
    author: str = ""
    epoch: int = 0
    round: int = 0
    selection: str = ""
    clock: int = 0
    full: bool = False
    objects: tuple[ObjectRef, ...] = ()
    created: float = 0.0
    passed_over: tuple[int, ...] = ()
    plan: RoundPlan | None = None
    sealed_for: int = 0
