"""A training job on a release: its workers are made from the chart's own template, and belong to the release.

The StatefulSet exists before the job is started and is scaled up afterwards, so that a job that is refused
leaves nothing behind. Workers that have finished stay up, idle, until they are taken down: a StatefulSet
would start them again. So the training ends by itself when nobody watches, and :meth:`Training.end` only
tidies up.
"""

from __future__ import annotations

import copy
import hashlib
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import yaml

from scar.errors import ConfigError, DeadlineExceeded, Unreachable
from scar.job_start import start_job
from scar.tables import Job
from scar.v1 import recovery_pb2_grpc, worker_pb2, worker_pb2_grpc
from scar.wire.transport import RECOVERY, open_channel
from scar_admin.channels import ChannelCache
from scar_admin.status import ProcessInfo
from scar_kube.release import GRPC_PORT, Release

MOST_BYTES = 900 << 10  # of a training file: a ConfigMap holds 1 MiB, with all that surrounds it
FOLDER = "/etc/scar/training"
# annotations of the StatefulSet
JOB = "scar.dev/job"
FILE = "scar.dev/file-sha256"
GONE_SECONDS = 90.0  # for the pods of a former training to end
STATUS_SECONDS = 2.0


@dataclass(frozen=True)
class Work:
    """What is to be trained. ``image``: for workers that need more than the release's own; empty: that
    one.
    """

    job: Job
    file: Path
    image: str = ""
    arguments: tuple[str, ...] = ()  # of the file

    @property
    def path(self) -> str:
        """Where the workers find the file."""
        return f"{FOLDER}/{self.key}"

    @property
    def key(self) -> str:
        """Its name in a ConfigMap."""
        return re.sub(r"[^A-Za-z0-9_.-]", "_", self.file.name)

    def text(self) -> str:
        """Raises :class:`ConfigError` for a file that no ConfigMap can hold."""
        raw = self.file.read_bytes()
        if len(raw) > MOST_BYTES:
            raise ConfigError(
                f"{self.file} has {len(raw) >> 10} KiB, more than the {MOST_BYTES >> 10} KiB that can be sent"
                " to a release",
                "Put data and helper modules into an image of your own, and name it by --image",
            )
        return raw.decode()

    def marks(self) -> dict[str, str]:
        """Annotations by which a training is known again."""
        told = "\0".join(["", *self.arguments]).encode() if self.arguments else b""
        return {JOB: self.job.name, FILE: hashlib.sha256(self.file.read_bytes() + told).hexdigest()}


class Training:
    """``name``: of the StatefulSet."""

    def __init__(self, release: Release, work: Work) -> None:
        self._release = release
        self._work = work
        self._apps = release.api.apps
        self._core = release.api.core
        self._namespace = release.namespace
        self.name = f"{release.fullname}-worker"
        self._file = f"{release.fullname}-worker-file"
        self._channels = ChannelCache(release.dialer())
        self._last: list[ProcessInfo] = []
        self.changes = ""  # what a job that was resumed has otherwise than before, in words

    def begin(self, resume: bool, **how: Any) -> bool:
        """Start it, unless it runs already. False: it does, and is only followed from here on.

        Raises :class:`ConfigError` when something else is being trained, and whatever :func:`start_job`
        raises.
        """
        if self._is_running():
            return False
        owner = self._read_template()
        self._create_workers(owner)
        try:
            with open_channel(self._release.dialer().target_of("recovery"), RECOVERY) as channel:
                stub = recovery_pb2_grpc.RecoveryStub(channel)
                self.changes = start_job(stub, self._work.job, resume, **how)
            self._scale_workers(self._work.job.workers)
        except BaseException:
            self.end()
            raise
        return True

    def processes(self) -> list[ProcessInfo]:
        """The workers. A pod whose training has ended counts as one that has exited; what cannot be seen
        is as it was.
        """
        try:
            workers = [pod for pod in self._release.pods() if pod.component == "worker" and not pod.leaving]
        except Unreachable:
            return self._last
        self._last = []
        for pod in workers:
            process = pod.process()
            if pod.failed:
                process = replace(process, final=True)
            elif pod.running and self._has_finished(f"{pod.address}:{GRPC_PORT}"):
                process = replace(process, state="exited", code=0, final=True)
            self._last.append(process)
        return self._last if len(workers) >= self._work.job.workers else []

    def log(self, worker: str) -> list[str]:
        """The last lines that a worker wrote before its container ended; of the running one when it has
        not.
        """
        for previous in (True, False):
            try:
                text = self._release.api.ask(
                    "read a worker's log",
                    self._core.read_namespaced_pod_log,
                    worker,
                    self._namespace,
                    previous=previous,
                    tail_lines=200,
                )
                return str(text).splitlines()
            except (ConfigError, KeyError):
                continue
        return []

    def end(self) -> None:
        """Take the workers down. The job stays where its last checkpoint is."""
        for what, delete, name in (
            ("delete the workers", self._apps.delete_namespaced_stateful_set, self.name),
            ("delete the training file", self._core.delete_namespaced_config_map, self._file),
        ):
            try:
                self._release.api.ask(what, delete, name, self._namespace)
            except KeyError:
                continue
        self._channels.close()

    # --- what is there already

    def _is_running(self) -> bool:
        """Whether this very training runs. One that is over is taken away; another one that runs is an
        error.
        """
        try:
            found = self._release.api.ask(
                "read the workers", self._apps.read_namespaced_stateful_set, self.name, self._namespace
            )
        except KeyError:
            self._clear_former()  # whoever deleted the workers by kubectl left their file
            return False
        marks = found.metadata.annotations or {}
        if JOB not in marks:
            raise ConfigError(
                f"{self._release} has workers of its own (training.file or training.path of the chart)",
                "Remove them by `helm upgrade --reuse-values --set training.file= --set training.path=`,"
                " then try again",
            )
        wanted = self._work.marks()
        if int(found.spec.replicas) and not self._is_over():
            if all(marks.get(key) == value for key, value in wanted.items()):
                return True
            raise ConfigError(
                f"job {marks[JOB]!r} is being trained on {self._release}",
                f"Wait for its end, or stop it by `kubectl delete statefulset {self.name} --namespace"
                f" {self._namespace}`",
            )
        self._clear_former()
        return False

    def _clear_former(self) -> None:
        self.end()
        self._await_gone()

    def _is_over(self) -> bool:
        workers = [pod for pod in self._release.pods() if pod.component == "worker"]
        return bool(workers) and all(
            pod.failed or self._has_finished(f"{pod.address}:{GRPC_PORT}") for pod in workers
        )

    def _has_finished(self, address: str) -> bool:
        stub = worker_pb2_grpc.WorkerStub(self._channels.channel_to(address))
        try:
            return bool(
                stub.Status(worker_pb2.WorkerStatusRequest(), timeout=STATUS_SECONDS).state == "finished"
            )
        except grpc.RpcError:
            return False

    def _await_gone(self) -> None:
        """Workers of the next training have the same names."""
        deadline = time.monotonic() + GONE_SECONDS
        while any(pod.component == "worker" for pod in self._release.pods()):
            if time.monotonic() > deadline:
                raise DeadlineExceeded(
                    "workers of a former training have not ended yet", "See `kubectl get pods`"
                )
            time.sleep(STATUS_SECONDS / 2)

    # --- making

    def _read_template(self) -> Any:
        """The chart's template; what it owns goes with the release."""
        name = f"{self.name}-template"
        try:
            return self._release.api.ask(
                "read the worker template", self._core.read_namespaced_config_map, name, self._namespace
            )
        except KeyError as error:
            raise ConfigError(
                f"{self._release} has no ConfigMap {name}", "Upgrade the release to this version of the chart"
            ) from error

    def _create_workers(self, owner: Any) -> None:
        template = yaml.safe_load(owner.data["statefulset.yaml"])
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner.metadata.name,
            "uid": owner.metadata.uid,
        }
        meta = {"name": self._file, "labels": template["metadata"]["labels"], "ownerReferences": [reference]}
        file = {"metadata": meta, "data": {self._work.key: self._work.text()}}
        create = self._release.api.ask
        create("create a ConfigMap", self._core.create_namespaced_config_map, self._namespace, file)
        workers = fill_template(template, self._work, self._file, reference)
        try:
            create("create the workers", self._apps.create_namespaced_stateful_set, self._namespace, workers)
        except BaseException:
            self.end()
            raise

    def _scale_workers(self, replicas: int) -> None:
        body = {"spec": {"replicas": replicas}}
        self._release.api.ask(
            "start the workers", self._apps.patch_namespaced_stateful_set, self.name, self._namespace, body
        )


def fill_template(
    template: Mapping[str, Any], work: Work, file: str, owner: Mapping[str, str]
) -> dict[str, Any]:
    """The template with this job, its file (the ConfigMap ``file``) and its owner; nobody runs yet."""
    made = copy.deepcopy(dict(template))
    made["metadata"] |= {
        "annotations": (made["metadata"].get("annotations") or {}) | work.marks(),
        "ownerReferences": [dict(owner)],
    }
    made["spec"]["replicas"] = 0
    pod = made["spec"]["template"]["spec"]
    container = next(one for one in pod["containers"] if one["name"] == "worker")
    told = {
        "SCAR_TRAIN": work.path,
        "SCAR_ARGUMENTS": shlex.join(work.arguments),
        "SCAR_JOB": work.job.name,
        "SCAR_START": "auto",  # stay up when the training is over
        "SCAR_WORKERS": str(work.job.workers),
        "SCAR_SHARDS": str(work.job.shards),
    }
    kept = [entry for entry in container.get("env") or () if entry["name"] not in told]
    container["env"] = kept + [{"name": name, "value": value} for name, value in told.items()]
    container |= {"image": work.image} if work.image else {}
    volumes = [volume for volume in pod.get("volumes") or () if volume["name"] != "training"]
    pod["volumes"] = [*volumes, {"name": "training", "configMap": {"name": file}}]
    return made
