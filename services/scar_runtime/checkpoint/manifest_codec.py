"""Manifests as messages, and as records in the store."""

from __future__ import annotations

import math
from dataclasses import asdict

from scar.errors import CorruptCheckpoint
from scar.v1 import checkpoint_pb2, ps_pb2
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef, RoundPlan
from scar_runtime.store import Store
from scar_runtime.store.layout import manifest_key
from scar_runtime.store.records import create_record, get_record


def create_manifest(store: Store, manifest: Manifest) -> None:
    """Raises :class:`scar.errors.AlreadyExists` when its number is taken."""
    create_record(store, manifest_key(manifest.number), manifest_to_proto(manifest))


def read_manifest(store: Store, number: int) -> Manifest:
    """Raises :class:`scar.errors.ObjectNotFound`, :class:`CorruptCheckpoint`, StoreError for a newer
    format.
    """
    key = manifest_key(number)
    manifest = manifest_from_proto(get_record(store, key, checkpoint_pb2.Manifest))
    if manifest.number != number:
        raise CorruptCheckpoint(f"{key} says that it is number {manifest.number}")
    return manifest


def manifest_to_proto(manifest: Manifest) -> checkpoint_pb2.Manifest:
    return checkpoint_pb2.Manifest(
        number=manifest.number,
        parent=manifest.parent,
        job=manifest.job,
        author=manifest.author,
        epoch=manifest.epoch,
        round=manifest.round,
        selection=manifest.selection,
        clock=manifest.clock,
        full=manifest.full,
        objects=[object_ref_to_proto(ref) for ref in manifest.objects],
        created=manifest.created,
        passed_over=manifest.passed_over,
        plan=None if manifest.plan is None else plan_to_proto(manifest.plan),
        sealed_for=manifest.sealed_for,
    )


def manifest_from_proto(message: checkpoint_pb2.Manifest) -> Manifest:
    return Manifest(
        number=message.number,
        parent=message.parent,
        job=message.job,
        author=message.author,
        epoch=message.epoch,
        round=message.round,
        selection=message.selection,
        clock=message.clock,
        full=message.full,
        objects=tuple(object_ref_from_proto(ref) for ref in message.objects),
        created=message.created,
        passed_over=tuple(message.passed_over),
        plan=plan_from_proto(message.plan) if message.HasField("plan") else None,
        sealed_for=message.sealed_for,
    )


def plan_to_proto(plan: RoundPlan) -> checkpoint_pb2.RoundPlan:
    return checkpoint_pb2.RoundPlan(**asdict(plan))


def plan_from_proto(message: checkpoint_pb2.RoundPlan) -> RoundPlan | None:
    """None for what no coordinator could have chosen: then it chooses anew."""
    numbers = (message.lost, message.seconds, message.clock_seconds)
    if not (0 < message.fraction <= 1 and message.every > 0 and all(0 <= one < math.inf for one in numbers)):
        return None
    return RoundPlan(message.fraction, message.every, message.reason, message.failures, *numbers)


def object_ref_to_proto(ref: ObjectRef) -> ps_pb2.ObjectRef:
    return ps_pb2.ObjectRef(
        key=ref.key,
        bytes=ref.bytes,
        header_bytes=ref.header_bytes,
        owner=ref.owner,
        epoch=ref.epoch,
        round=ref.round,
        blocks=ref.blocks,
        clock=ref.clock,
        digest=ref.digest,
    )


def object_ref_from_proto(message: ps_pb2.ObjectRef) -> ObjectRef:
    return ObjectRef(
        key=message.key,
        bytes=message.bytes,
        header_bytes=message.header_bytes,
        owner=message.owner,
        epoch=message.epoch,
        round=message.round,
        blocks=message.blocks,
        clock=message.clock,
        digest=message.digest,
    )
