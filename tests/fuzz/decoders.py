"""All decoders of the project, found in its sources: by what functions are called, and by what they call."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType

from tests.fuzz.engine import FuzzTarget
from tests.repo.sources import ROOT, SHIPPED, name

NAMES = re.compile(
    r"_?(decode|parse|unpack|read)_\w+|\w+_from_(proto|bytes|header|parts|rpc)|from_rpc|receive_tensors"
)
PARSERS = {
    *("loads", "frombuffer", "FromString", "ParseFromString", "Parse", "unpack_from", "iter_unpack"),
    *("decompress", "decompressobj", "safe_load", "load_pem_x509_certificate"),
}
EXCUSED = {
    "asks a process, a store or a system by functions that have targets": (
        "services/scar_admin/story.py:read_story",
        "services/scar_chaos/restore.py:read_returned",
        "services/scar_chaos/restore.py:_read_group",
        "services/scar_cli/clusters.py:read_status",
        "services/scar_detector/prober.py:_read_greeting",
        "services/scar_cli/demo/runs.py:_read_ledger",
        "services/scar_cli/failures.py:_read_records",
        "services/scar_cli/followed_training.py:_read_log",
        "services/scar_cli/jobs.py:_read_summary",
        "services/scar_cli/jobs.py:_read_job",
        "services/scar_cli/wait_reports.py:read_waits",
        "services/scar_console/stored_runs.py:read_run",
        "services/scar_console/stored_runs.py:_read_end",
        "services/scar_kube/forwards.py:_read_said",
        "services/scar_ps/epoch_sync.py:_read_epoch",
        "services/scar_ps/loader.py:read_load",
        "services/scar_runtime/process/signals.py:_read_signals",
    ),
    "reads a file whose digest is known": (
        "sdk/scar/paper_datasets.py:_read_pixels",
        "sdk/scar/paper_datasets.py:_read_covtype",
        "sdk/scar/paper_datasets.py:_read_integers",
        "sdk/scar/paper_datasets.py:_read_movielens",
        "sdk/scar/paper_datasets.py:_read_jester",
        "sdk/scar/paper_datasets.py:_read_newsgroups",
        "sdk/scar/paper_datasets.py:_read_reuters",
        "sdk/scar/paper_datasets.py:_read_member",
    ),
    "reads what its own process, or the one that started it, has just written": (
        "sdk/scar/_client/core/pull_buffer.py:unpack_result",
        "services/scar_chaos/recorder.py:RecorderClient.write_events",
        "services/scar_cli/experiment_pages.py:write_page",
    ),
    "shows its own memory, to write into it": (
        "sdk/scar/wire/shared_memory.py:SegmentAllocator.borrow_segment",
        "sdk/scar/wire/shared_memory.py:SegmentAllocator.point_to_borrowed",
        "services/scar_ps/wire/pull_encoder.py:SegmentWriter.make_room",
    ),
    "reads what the kernel has written": (
        "services/scar_kube/nftables.py:_read_answers",
        "services/scar_local/tcp_sockets.py:read_sockets",
        "services/scar_local/tcp_sockets.py:parse_table",
    ),
    "reads what the API server of Kubernetes has checked, or the chart has written": (
        "services/scar_chaos/targets/kubernetes.py:KubernetesTarget._create_workers",
        "services/scar_kube/api.py:_error_message",
        "services/scar_kube/pods.py:read_pod",
        "services/scar_kube/settings.py:read_environment",
        "services/scar_kube/settings.py:_read_reference",
        "services/scar_kube/training.py:Training._create_workers",
    ),
}


def find_decoders() -> Iterator[str]:
    """``file:function`` of each."""
    for path in SHIPPED:
        for qualified, node in _functions(ast.parse(path.read_text())):
            called = {
                call.func.attr
                for call in ast.walk(node)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
            }
            if ("." not in qualified and NAMES.fullmatch(node.name)) or called & PARSERS:
                yield f"{name(path)}:{qualified}"


def _functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield inside + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{inside}{node.name}.")


def reached_decoders(targets: Iterable[FuzzTarget]) -> set[str]:
    """Functions of ours that the targets call for their seeds."""
    reached: set[CodeType] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            reached.add(frame.f_code)

    for target in targets:
        for data in target.seeds():
            sys.setprofile(note)
            try:
                target.decode(data)
            finally:
                sys.setprofile(None)
    prefix = f"{ROOT}/"
    return {
        f"{code.co_filename.removeprefix(prefix)}:{code.co_qualname}"
        for code in reached
        if code.co_filename.startswith(prefix)
    }
