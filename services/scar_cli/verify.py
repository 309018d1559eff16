"""`scar checkpoints verify`: read everything that a restart would read, and say what is damaged."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape

from scar.errors import ConfigError, StoreError
from scar.v1.checkpoint_pb2 import Manifest
from scar.v1.ps_pb2 import ObjectRef
from scar.v1.types_pb2 import Epoch
from scar_cli import output
from scar_cli.checkpoints import JobStore
from scar_cli.output import Output
from scar_runtime.objects import verify_object
from scar_runtime.records import get_record, numbered, numbers
from scar_runtime.running import read_manifest


@dataclass
class Findings:
    """What was read, and every problem in words."""

    manifests: list[int] = field(default_factory=list)
    objects: int = 0
    blocks: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)


def run(job: JobStore, number: int, form: Output) -> None:
    """Exit code 1 when something is damaged. Raises :class:`ConfigError` when there is nothing to check."""
    found = job.manifests()
    if not found or (number and number not in found):
        raise ConfigError(f"job {job.job.name} has no manifest {number or ''}".rstrip(), f"The store has {found or 'none'}")
    findings = verify(job, [number] if number else found[-job.job.checkpoint.keep :])

    def text(screen: Console) -> None:
        for problem in findings.problems:
            screen.print(f"[bold red]damaged:[/] {escape(problem)}")
        verdict = f"[red]{len(findings.problems)} problems[/]" if findings.problems else "[green]all good[/]"
        screen.print(
            f"{verdict}: manifests {findings.manifests[0]} to {findings.manifests[-1]}, {findings.objects} objects, "
            f"{findings.blocks} blocks, {output.size(findings.bytes)} read and checked"
        )

    output.show(form, {"ok": not findings.problems, **vars(findings)}, text)
    if findings.problems:
        raise SystemExit(1)


def verify(job: JobStore, manifests: list[int]) -> Findings:
    """Check these manifests, the epochs, and each object that a manifest names, once."""
    findings, refs = Findings(manifests), dict[str, ObjectRef]()
    for number in manifests:
        manifest = _manifest(job, number, findings)
        for ref in manifest.objects if manifest else ():
            known = refs.setdefault(ref.key, ref)
            if known != ref:
                findings.problems.append(f"manifest {number} describes {ref.key} differently than one before it")
    for ref in refs.values():
        _object(job, ref, findings)
    for number in numbers(job.store, "epochs"):
        try:
            get_record(job.store, numbered("epochs", number), Epoch)
        except StoreError as error:
            findings.problems.append(error.message)
    return findings


def _manifest(job: JobStore, number: int, findings: Findings) -> Manifest | None:
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


def _object(job: JobStore, ref: ObjectRef, findings: Findings) -> None:
    try:
        findings.blocks += verify_object(job.store, ref, job.job).blocks
    except StoreError as error:
        findings.problems.append(error.message)
        return
    findings.objects += 1
    findings.bytes += ref.bytes
