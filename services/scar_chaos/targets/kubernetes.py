"""Chaos on Kubernetes, from a pod of the release itself.

Pods are deleted, frozen, cut off, and lose their nodes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import yaml

from scar.errors import ConfigError, DeadlineExceeded
from scar.job_start import start_job
from scar.tables import Job
from scar.v1.recovery_pb2_grpc import RecoveryStub
from scar.wire.transport import RECOVERY, open_channel
from scar_admin.observer import ClusterObserver
from scar_admin.status import ClusterStatus
from scar_chaos import workload
from scar_chaos.core.schedule import FaultKinds
from scar_chaos.targets.leadership import is_leader
from scar_chaos.targets.node_control import NodeControl
from scar_chaos.targets.pod_api import PARTITIONED, PodApi, ReleasePods
from scar_chaos.targets.release import ReleaseEnvironment, fill_worker_template
from scar_kube.pod_cut import PodCut, begin_pod_cut
from scar_kube.pods import COMPONENT
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
PORT = 7070
ASK_SECONDS = 1.0
GONE_SECONDS = 90.0  # for pods to end, to come back, and for the release to take a job
LOOK = 0.2  # seconds between two looks at the pods


class KubernetesTarget:
    """The release in whose namespace this process runs as a pod."""

    def __init__(self, release: ReleaseEnvironment) -> None:
        self._release = release
        self.api = PodApi(release.namespace)
        self._pods = ReleasePods(self.api, release.release)
        self.recovery = release.recovery
        self.listen = f"0.0.0.0:{PORT}"
        self.host = release.address
        self._nodes: NodeControl | None = None
        with_shell = [name for name in ("redis", "store") if self._has_shell(name)]
        self.kinds: FaultKinds = {**KINDS, **dict.fromkeys(with_shell, (*_OUTSIDE, "kill", "freeze"))}
        self._observer = ClusterObserver(
            release.recovery, {"checkpoint": release.checkpoint, "detector": release.detector}
        )
        self._struck: dict[tuple[str, str], str] = {}  # (kind, target) -> pod
        self._cuts: dict[str, PodCut] = {}  # pod -> the one that is under way
        self._scripts: list[threading.Thread] = []  # that run in pods
        self._wanted = self._count_replicas()
        self.damaged = frozenset[str]()  # nothing is done to the store's disk

    def control_nodes(self, nodes: NodeControl) -> None:
        """From now on nodes fail, too."""
        self._nodes = nodes
        self.kinds = {**self.kinds, "ps": (*self.kinds["ps"], "node")}

    # --- begin and end

    @property
    def shards(self) -> int:
        """How many the release has."""
        return self._wanted["ps"]

    def begin(self, job: Job, environment: Mapping[str, str], resume: bool = False) -> None:
        """Raises :class:`ConfigError` when the release trains something else."""
        if self._pods.list_pods("worker"):
            raise ConfigError(
                "workers are training on this release", "Wait for their end, or use a release for chaos alone"
            )
        self._await_running()
        with open_channel(self.recovery, RECOVERY) as channel:
            start_job(RecoveryStub(channel), job, resume, GONE_SECONDS)
        self._renew_pods()
        self._create_workers(job.workers, environment)

    def _renew_pods(self) -> None:
        """New pods for those that ended often.

        Kubernetes would let their containers wait for minutes before the next start.
        """
        for pod in self._pods.list_pods():
            if pod.restarts > 1 and pod.component in self._wanted:
                self._pods.delete_pod(pod.name)
        self._await_running()

    def _create_workers(self, count: int, environment: Mapping[str, str]) -> None:
        core = self.api.core
        apps = self.api.apps
        namespace = self._release.namespace
        name = f"{self._release.fullname}-worker-template"
        owner = self.api.ask("read the worker template", core.read_namespaced_config_map, name, namespace)
        image = self._read_shards().containers[0].image  # a user's own image may lack the workload
        environment = {
            "SCAR_TRAIN": workload.__file__,
            "SCAR_FUNCTION": "train",
            "SCAR_START": "auto",
            **environment,
        }
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner.metadata.uid}
        template = yaml.safe_load(owner.data["statefulset.yaml"])
        made = fill_worker_template(template, count, image, environment, reference)
        self.api.ask("create workers", apps.create_namespaced_stateful_set, namespace, made)
        self._wanted["worker"] = count

    def _read_shards(self) -> Any:
        """What their pods are."""
        read = self.api.apps.read_namespaced_stateful_set
        found = self.api.ask("read the shards", read, self.member("ps"), self._release.namespace)
        return found.spec.template.spec

    def end(self) -> None:
        """Workers get the time that their pods have."""
        for script in self._scripts:
            script.join(GONE_SECONDS)
        delete = self.api.apps.delete_namespaced_stateful_set
        with suppress(KeyError):
            self.api.ask("delete the workers", delete, self.member("worker"), self._release.namespace)
        self._wanted["worker"] = 0
        self._await(lambda: not self._pods.list_pods("worker"), "the workers to end")

    def _await_running(self) -> None:
        self._await(lambda: not self.unwell(), "all pods of the release to run")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + GONE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"waited {GONE_SECONDS:g} s without result for {what}", "; ".join(self.unwell())
                )
            time.sleep(LOOK)

    def _has_shell(self, name: str) -> bool:
        component, pod = self._find_pod(name)
        return bool(pod) and self._pods.has_shell(pod, component)

    # --- looking

    def member(self, name: str) -> str:
        return f"{self._release.fullname}-{name}"

    def observed_violations(self) -> list[str]:
        return []

    def status(self) -> ClusterStatus:
        return self._observer.read()

    def store(self) -> Store:
        return open_store(self._release.store)

    def unwell(self) -> list[str]:
        pods = [pod for pod in self._pods.list_pods() if pod.component in self._wanted]
        found = [
            f"{pod.name} is {'leaving' if pod.leaving else pod.state}" for pod in pods if not pod.running
        ]
        for component, wanted in self._wanted.items():
            count = sum(pod.component == component for pod in pods)
            if count != wanted:
                found.append(f"{component} has {count} pods of {wanted}")
        return found

    def _count_replicas(self) -> dict[str, int]:
        """Component -> how many pods it is to have."""
        apps = self.api.apps
        selector = self._pods.selector
        counts = {}
        for list_owners in (apps.list_namespaced_stateful_set, apps.list_namespaced_deployment):
            found = self.api.ask(
                "list what runs", list_owners, self._release.namespace, label_selector=selector
            )
            for owner in found.items:
                counts[owner.metadata.labels[COMPONENT]] = int(owner.spec.replicas)
        return counts

    # --- faults

    def inject(self, kind: str, name: str, seconds: float) -> None:
        component, pod = self._find_pod(name)
        self._struck[kind, name] = pod
        if kind in ("delete", "leave"):
            self._pods.delete_pod(pod, 0 if kind == "delete" else None)
        elif kind == "cut":
            self._cut_off(pod, seconds)
        elif kind == "node" and self._nodes is not None:
            self._nodes.stop_node(self._pods.node_of(pod))
        elif kind in SCRIPTS:
            script = SCRIPTS[kind].format(seconds=seconds, slice=SLICE, slices=round(seconds / SLICE / 2))
            self._start_script(kind, pod, component, script)

    def heal(self, kind: str, name: str) -> None:
        """What runs as a script in the pod ends by itself.

        Raises :class:`ScarError` for a cut that was none.
        """
        pod = self._struck.pop((kind, name), "")
        if kind == "cut" and pod in self._cuts:
            self._cuts.pop(pod).wait()
        elif kind == "cut" and pod:
            self._pods.label_pod(pod, {PARTITIONED: None})
        elif kind == "node" and self._nodes is not None:
            self._nodes.start_node()

    def _cut_off(self, pod: str, seconds: float) -> None:
        """By a policy where no container may join the pod; many plugins let open connections go on then."""
        image = self._read_shards().containers[0]
        try:
            self._cuts[pod] = begin_pod_cut(self.api, self._release.namespace, pod, image, seconds)
        except ConfigError:
            self._pods.label_pod(pod, {PARTITIONED: "true"})
        except KeyError:  # it is down already
            pass

    def _start_script(self, kind: str, pod: str, component: str, script: str) -> None:
        """In the background: what goes on in one pod must not keep another one from being struck."""
        self._scripts = [thread for thread in self._scripts if thread.is_alive()]
        arguments = (kind, pod, component, script)
        thread = threading.Thread(target=self._run_script, args=arguments, name="chaos", daemon=True)
        self._scripts.append(thread)
        thread.start()

    def _run_script(self, kind: str, pod: str, component: str, script: str) -> None:
        self._pods.run_script(pod, component, script)
        if kind == "kill":
            self._pods.delete_pod(pod)

    def _find_pod(self, name: str) -> tuple[str, str]:
        """Component and pod of a fault's target: of a coordinator the one that leads."""
        component = COMPONENTS.get(name, name.partition("-")[0])
        if component in ("ps", "worker"):
            return component, self.member(name)
        pods = sorted(self._pods.list_pods(component), key=lambda pod: pod.name)
        running = [pod for pod in pods if pod.running]
        if component in ("recovery", "checkpoint"):
            for pod in running:
                if is_leader(component, f"{pod.address}:{PORT}", ASK_SECONDS):
                    return component, pod.name
        return component, running[0].name if running else ""
