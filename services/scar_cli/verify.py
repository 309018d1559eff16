"""`scar checkpoints verify`: read everything that a restart would read, and say what is damaged."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape

from scar.errors import ConfigError, StoreError
from scar.v1.types_pb2 import Epoch
from scar_cli import output
from scar_cli.checkpoints import JobStore
from scar_cli.output import OutputFormat, format_count
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.manifest_codec import read_manifest
from scar_runtime.checkpoint.object_reader import verify_object
from scar_runtime.store.layout import EPOCHS, epoch_key
from scar_runtime.store.records import get_record, numbers
from scar_runtime.store.signatures import VARIABLE

UNSIGNED = f"; signatures were not checked, as {VARIABLE} names no key"


@dataclass
class VerifyFindings:
    """What was read, and every problem in words."""

    manifests: list[int] = field(default_factory=list)
    objects: int = 0
    blocks: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    signed: bool = False  # signatures were checked, too


def verify_checkpoints(job: JobStore, number: int, form: OutputFormat) -> None:
    """Exit code 1 when something is damaged. Raises :class:`ConfigError` when there is nothing to check."""
    found = job.manifests()
    if not found or (number and number not in found):
        raise ConfigError(
            f"job {job.job.name} has no manifest {number or ''}".rstrip(), f"The store has {found or 'none'}"
        )
    chosen = [number] if number else found[-job.job.checkpoint.keep :]
    with job.pinned(chosen):
        findings = check_manifests(job, chosen)

    def text(screen: Console) -> None:
        for problem in findings.problems:
            screen.print(f"[bold red]damaged:[/] {escape(problem)}")
        verdict = (
            f"[red]{format_count(len(findings.problems), 'problem')}[/]"
            if findings.problems
            else "[green]all good[/]"
        )
        screen.print(
            f"{verdict}: manifests {findings.manifests[0]} to {findings.manifests[-1]},"
            f" {format_count(findings.objects, 'object')}, {format_count(findings.blocks, 'block')},"
            f" {output.format_size(findings.bytes)} read and checked{'' if findings.signed else UNSIGNED}"
        )

    output.print_result(form, {"ok": not findings.problems, **vars(findings)}, text)
    if findings.problems:
        raise SystemExit(1)


def check_manifests(job: JobStore, manifests: list[int]) -> VerifyFindings:
    """Check these manifests, the epochs, and each object that a manifest names, once."""
    findings = VerifyFindings(manifests, signed=job.store.signing_key is not None)
    refs = dict[str, ObjectRef]()
    for number in manifests:
        manifest = _check_manifest(job, number, findings)
        for ref in manifest.objects if manifest else ():
            known = refs.setdefault(ref.key, ref)
            if known != ref:
                findings.problems.append(
                    f"manifest {number} describes {ref.key} differently than one before it"
                )
    for ref in refs.values():
        _check_object(job, ref, findings)
    for number in numbers(job.store, EPOCHS):
        try:
            get_record(job.store, epoch_key(number), Epoch)
        except StoreError as error:
            findings.problems.append(error.message)
    return findings


def _check_manifest(job: JobStore, number: int, findings: VerifyFindings) -> Manifest | None:
    try:
        manifest = read_manifest(job.store, number)
    except StoreError as error:
        findings.problems.append(error.message)
        return None
    if manifest.parent != number - 1:
        findings.problems.append(f"manifest {number} continues {manifest.parent}, not {number - 1}")
    if manifest.job != job.job.name:
        findings.problems.append(f"manifest {number} belongs to job {manifest.job!r}")
    return manifest


def _check_object(job: JobStore, ref: ObjectRef, findings: VerifyFindings) -> None:
    try:
        findings.blocks += verify_object(job.store, ref, job.job).blocks
    except StoreError as error:
        findings.problems.append(error.message)
        return
    findings.objects += 1
    findings.bytes += ref.bytes
