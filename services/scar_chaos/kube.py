"""Chaos on Kubernetes, from a pod of the release itself: pods are deleted, frozen, cut off, and lose their nodes."""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
import yaml

from scar.errors import ConfigError, DeadlineExceeded
from scar.tables import Job
from scar.transport import RECOVERY, connect
from scar.v1 import checkpoint_pb2, checkpoint_pb2_grpc, recovery_pb2, recovery_pb2_grpc
from scar_chaos import workload
from scar_chaos.faults import SECONDS
from scar_chaos.inside import PARTITIONED, InsideApi, Pods
from scar_chaos.nodes import Nodes
from scar_chaos.schedule import Kinds
from scar_kube.pods import COMPONENT
from scar_runtime.jobs import start_job
from scar_runtime.status import ClusterStatus, Observer
from scar_runtime.store import Store, open_store

_ANY = ("kill", "kill", "crash", "delete", "freeze", "slow", "cut")
_OUTSIDE = ("delete", "cut")
KINDS: dict[str, tuple[str, ...]] = {
    "ps": (*_ANY, "blink", "leave"),
    "worker": (*_ANY, "blink", "leave"),
    **dict.fromkeys(("recovery", "checkpoint", "detector"), _ANY),
    "redis": _OUTSIDE,  # and more, when there is a shell in their containers
    "store": _OUTSIDE,
}
COMPONENTS = {"store": "minio"}  # what the chart calls it
SLICE = 0.1  # seconds that a slow process runs, and then does not
SCRIPTS = {
    "kill": "kill -KILL -1",
    "crash": "kill -KILL -1",  # all but pid 1, which then ends the container
    "blink": "kill -STOP -1; sleep {seconds}; kill -CONT -1",
    "freeze": "kill -STOP -1; sleep {seconds}; kill -CONT -1",
    "slow": "for i in $(seq {slices}); do kill -STOP -1; sleep {slice}; kill -CONT -1; sleep {slice}; done",
}
VARIABLES = (  # of :class:`Place`, in its order
    "SCAR_CLUSTER",
    "SCAR_FULLNAME",
    "POD_NAMESPACE",
    "POD_IP",
    "NODE_NAME",
    "SCAR_RECOVERY",
    "SCAR_CHECKPOINT",
    "SCAR_DETECTOR",
    "SCAR_STORE",
)
PORT = 7070
ASK_SECONDS = 1.0
GONE_SECONDS = 90.0  # for pods to end, to come back, and for the release to take a job
LOOK = 0.2  # seconds between two looks at the pods


@dataclass(frozen=True)
class Place:
    """The release, as the chart tells the pod of a chaos job. ``fullname``: what names of its objects begin with."""

    release: str
    fullname: str
    namespace: str
    address: str  # of this pod
    node: str
    recovery: str
    checkpoint: str
    detector: str
    store: str

    @classmethod
    def here(cls) -> Place:
        """Raises :class:`ConfigError` outside of such a pod."""
        missing = [name for name in VARIABLES if not os.environ.get(name)]
        if missing:
            raise ConfigError(
                f"{', '.join(missing)} not set: this is no pod of a chaos job",
                "From outside the cluster use: scar chaos --on kubernetes",
            )
        return cls(*(os.environ[name] for name in VARIABLES))


class KubeTarget:
    """The release in whose namespace this process runs as a pod."""

    def __init__(self, place: Place) -> None:
        self.place, self.api = place, InsideApi(place.namespace)
        self.pods = Pods(self.api, place.release)
        self.recovery, self.listen, self.host = place.recovery, f"0.0.0.0:{PORT}", place.address
        self._nodes: Nodes | None = None
        shells = {name: (*_OUTSIDE, "kill", "freeze") for name in ("redis", "store") if self._has_shell(name)}
        self.kinds: Kinds = {**KINDS, **shells}
        self._observer = Observer(place.recovery, {"checkpoint": place.checkpoint, "detector": place.detector})
        self._struck: dict[tuple[str, str], str] = {}  # (kind, target) -> pod
        self._scripts: list[threading.Thread] = []  # that run in pods
        self._wanted = self._replicas()

    def use(self, nodes: Nodes) -> None:
        """From now on nodes fail, too."""
        self._nodes, self.kinds = nodes, {**self.kinds, "ps": (*self.kinds["ps"], "node")}

    # --- life ----------------------------------------------------------------------------------------------------------------

    @property
    def shards(self) -> int:
        """How many the release has."""
        return self._wanted["ps"]

    def begin(self, job: Job, environment: Mapping[str, str], resume: bool = False) -> None:
        """Raises :class:`ConfigError` when the release trains something else."""
        if self.pods.of("worker"):
            raise ConfigError("workers are training on this release", "Wait for their end, or use a release for chaos alone")
        self._await(lambda: not self.unwell(), "all pods of the release to run")
        with connect(self.recovery, RECOVERY) as channel:
            start_job(recovery_pb2_grpc.RecoveryStub(channel), job, resume, GONE_SECONDS)
        self._refresh()
        self._make_workers(job.workers, environment)

    def _refresh(self) -> None:
        """New pods for those that ended often: Kubernetes would let their containers wait for minutes before the next start."""
        for pod in self.pods.all():
            if pod.restarts > 1 and pod.component in self._wanted:
                self.pods.delete(pod.name)
        self._await(lambda: not self.unwell(), "all pods of the release to run")

    def _make_workers(self, count: int, environment: Mapping[str, str]) -> None:
        core, apps, namespace = self.api.core, self.api.apps, self.place.namespace
        name = f"{self.place.fullname}-worker-template"
        owner = self.api.ask("read the worker template", core.read_namespaced_config_map, name, namespace)
        shards = self.api.ask("read the shards", apps.read_namespaced_stateful_set, self.member("ps"), namespace)
        told = {"SCAR_TRAIN": workload.__file__, "SCAR_FUNCTION": "train", "SCAR_START": "auto", **environment}
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner.metadata.uid}
        image = shards.spec.template.spec.containers[0].image  # a user's own image may lack the workload
        made = filled(yaml.safe_load(owner.data["statefulset.yaml"]), count, image, told, reference)
        self.api.ask("create workers", apps.create_namespaced_stateful_set, namespace, made)
        self._wanted["worker"] = count

    def end(self) -> None:
        """Workers get the time that their pods have."""
        for script in self._scripts:
            script.join(GONE_SECONDS)
        delete, namespace = self.api.apps.delete_namespaced_stateful_set, self.place.namespace
        with suppress(KeyError):
            self.api.ask("delete the workers", delete, self.member("worker"), namespace)
        self._wanted["worker"] = 0
        self._await(lambda: not self.pods.of("worker"), "the workers to end")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + GONE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"waited {GONE_SECONDS:g} s in vain for {what}", "; ".join(self.unwell()))
            time.sleep(LOOK)

    def _has_shell(self, name: str) -> bool:
        component, pod = self._found(name)
        return bool(pod) and self.pods.has_shell(pod, component)

    # --- looking -------------------------------------------------------------------------------------------------------------

    def member(self, name: str) -> str:
        return f"{self.place.fullname}-{name}"

    def status(self) -> ClusterStatus:
        return self._observer.read()

    def store(self) -> Store:
        return open_store(self.place.store)

    def unwell(self) -> list[str]:
        pods = [pod for pod in self.pods.all() if pod.component in self._wanted]
        found = [f"{pod.name} is {'leaving' if pod.leaving else pod.state}" for pod in pods if not pod.running]
        for component, wanted in self._wanted.items():
            there = sum(pod.component == component for pod in pods)
            found += [f"{component} has {there} pods of {wanted}"] if there != wanted else []
        return found

    def _replicas(self) -> dict[str, int]:
        """Component -> how many pods it is to have."""
        apps, found = self.api.apps, {}
        for what in (apps.list_namespaced_stateful_set, apps.list_namespaced_deployment):
            for one in self.api.ask("list what runs", what, self.place.namespace, label_selector=self.pods.selector).items:
                found[one.metadata.labels[COMPONENT]] = int(one.spec.replicas)
        return found

    # --- faults --------------------------------------------------------------------------------------------------------------

    def inject(self, kind: str, name: str) -> None:
        component, pod = self._found(name)
        self._struck[kind, name] = pod
        if kind in ("delete", "leave"):
            self.pods.delete(pod, 0 if kind == "delete" else None)
        elif kind == "cut":
            self.pods.label(pod, {PARTITIONED: "true"})
        elif kind == "node" and self._nodes is not None:
            self._nodes.stop(self.pods.node(pod))
        elif kind in SCRIPTS:
            script = SCRIPTS[kind].format(seconds=SECONDS[kind], slice=SLICE, slices=round(SECONDS[kind] / SLICE / 2))
            self._spawn(lambda: self._run(kind, pod, component, script))

    def _run(self, kind: str, pod: str, component: str, script: str) -> None:
        self.pods.execute(pod, component, script)
        if kind == "kill":
            self.pods.delete(pod)

    def _spawn(self, work: Callable[[], None]) -> None:
        """In the background: what goes on in one pod must not keep another one from being struck."""
        self._scripts = [one for one in self._scripts if one.is_alive()]
        self._scripts.append(threading.Thread(target=work, name="chaos", daemon=True))
        self._scripts[-1].start()

    def heal(self, kind: str, name: str) -> None:
        """What runs as a script in the pod ends by itself."""
        pod = self._struck.pop((kind, name), "")
        if kind == "cut" and pod:
            self.pods.label(pod, {PARTITIONED: None})
        elif kind == "node" and self._nodes is not None:
            self._nodes.start()

    def _found(self, name: str) -> tuple[str, str]:
        """Component and pod of a fault's target: of a coordinator the one that leads."""
        component = COMPONENTS.get(name, name.partition("-")[0])
        if component in ("ps", "worker"):
            return component, self.member(name)
        pods = sorted(self.pods.of(component), key=lambda pod: pod.name)
        leader = next((pod for pod in pods if pod.running and self._leads(component, pod.address)), None)
        found = leader or next((pod for pod in pods if pod.running), None)
        return component, found.name if found else ""

    def _leads(self, component: str, address: str) -> bool:
        if component not in ("recovery", "checkpoint"):
            return False
        with connect(f"{address}:{PORT}") as channel:
            try:
                if component == "recovery":
                    stub = recovery_pb2_grpc.RecoveryStub(channel)
                    return bool(stub.Status(recovery_pb2.RecoveryStatusRequest(), timeout=ASK_SECONDS).leader)
                saver = checkpoint_pb2_grpc.CheckpointStub(channel)
                return bool(saver.Status(checkpoint_pb2.CheckpointStatusRequest(), timeout=ASK_SECONDS).leader)
            except grpc.RpcError:
                return False


def filled(
    template: Mapping[str, Any], replicas: int, image: str, told: Mapping[str, str], owner: Mapping[str, str]
) -> dict[str, Any]:
    """The chart's StatefulSet of workers, for a training file that is in the image. ``told``: environment."""
    made = copy.deepcopy(dict(template))
    made["metadata"]["ownerReferences"] = [dict(owner)]
    made["spec"]["replicas"] = replicas
    pod = made["spec"]["template"]["spec"]
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "training"]
    worker = next(container for container in pod["containers"] if container["name"] == "worker")
    worker["volumeMounts"] = [mount for mount in worker["volumeMounts"] if mount["name"] != "training"]
    kept = [entry for entry in worker["env"] if entry["name"] not in told]
    worker["env"] = kept + [{"name": name, "value": value} for name, value in told.items()]
    worker["image"] = image
    return made
