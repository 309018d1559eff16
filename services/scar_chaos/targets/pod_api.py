"""The Kubernetes API as the pod of a chaos job may use it: this release's pods, workers and ConfigMaps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kubernetes import client
from kubernetes.stream import stream

from scar_kube.api import Api
from scar_kube.in_cluster import InClusterApi
from scar_kube.pods import INSTANCE, NAME, Pod, read_pod

PARTITIONED = "scar.dev/partitioned"  # the chart's network policies allow nothing to a pod with this label
EXEC_SECONDS = 30.0  # for a script in a pod; the longest lasts as long as a fault


class PodApi(InClusterApi):
    """With the pod's own service account."""

    def run_script(self, pod: str, container: str, script: str) -> str:
        """Run a shell script in a container; returns what it wrote, at its end.

        Empty when there is no such pod, or no shell in it.
        """
        core = client.CoreV1Api(self._new_client())  # opening a stream changes the client
        try:
            output = stream(
                core.connect_get_namespaced_pod_exec,
                pod,
                self.namespace,
                container=container,
                command=["sh", "-c", script],
                stdout=True,
                stderr=False,
                _request_timeout=EXEC_SECONDS,
            )
        except (client.ApiException, OSError):
            return ""
        return str(output)


class ReleasePods:
    """What is done to the pods of one release. What is not there any more is let be."""

    def __init__(self, api: PodApi, release: str) -> None:
        self._api = api
        self.selector = f"{NAME},{INSTANCE}={release}"

    def list_pods(self, component: str = "") -> list[Pod]:
        """``component``: empty: of all."""
        pods = [read_pod(found) for found in self._list_raw()]
        return [pod for pod in pods if component in ("", pod.component)]

    def node_of(self, pod: str) -> str:
        """Name of the node on which the pod runs; empty: none."""
        names = [found.spec.node_name for found in self._list_raw() if found.metadata.name == pod]
        return str(names[0] or "") if names else ""

    def delete_pod(self, pod: str, grace: int | None = 0) -> None:
        """``grace``: seconds; 0: at once, without waiting for its node; None: what the pod itself says."""
        options = {} if grace is None else {"grace_period_seconds": grace}
        self._try("delete a pod", self._api.core.delete_namespaced_pod, pod, self._api.namespace, **options)

    def label_pod(self, pod: str, labels: Mapping[str, str | None]) -> None:
        """None takes a label away."""
        body = {"metadata": {"labels": dict(labels)}}
        self._try("label a pod", self._api.core.patch_namespaced_pod, pod, self._api.namespace, body)

    def run_script(self, pod: str, component: str, script: str) -> None:
        """Run a shell script in the pod's container; returns at its end."""
        self._api.run_script(pod, component, script)

    def has_shell(self, pod: str, component: str) -> bool:
        return self._api.run_script(pod, component, "echo yes").strip() == "yes"

    def _try(self, what: str, method: Callable[..., Any], *arguments: object, **options: object) -> None:
        with suppress(KeyError):
            self._api.ask(what, method, *arguments, **options)

    def _list_raw(self) -> Sequence[Any]:
        list_pods = self._api.core.list_namespaced_pod
        found: Sequence[Any] = self._api.ask(
            "list pods", list_pods, self._api.namespace, label_selector=self.selector
        ).items
        return found


def save_config_map(
    api: Api, name: str, owner: str, labels: Mapping[str, str], data: Mapping[str, str]
) -> None:
    """Write a ConfigMap, over one of this name; it goes when the ConfigMap ``owner`` goes."""
    uid = api.ask("read a ConfigMap", api.core.read_namespaced_config_map, owner, api.namespace).metadata.uid
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid}
    body = {
        "metadata": {"name": name, "labels": dict(labels), "ownerReferences": [reference]},
        "data": dict(data),
    }
    try:
        api.ask("replace a ConfigMap", api.core.replace_namespaced_config_map, name, api.namespace, body)
    except KeyError:
        api.ask("create a ConfigMap", api.core.create_namespaced_config_map, api.namespace, body)
