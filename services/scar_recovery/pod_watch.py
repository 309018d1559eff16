"""Brings pods and nodes from the Kubernetes API to a :class:`PodEvidence`.

The only module here that knows that API. One thread lists and watches the release's pods, one the nodes. When
the API server is away nothing new is known, and nobody depends on it: the detector goes on by itself.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scar.wire.transport import Backoff
from scar_recovery.core.pod_evidence import NodeSeen, PodEvidence, PodSeen

COMPONENT = "app.kubernetes.io/component"
SELECTOR = "app.kubernetes.io/name=scar,app.kubernetes.io/instance="
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
WATCH_SECONDS = 30  # after which everything is listed again
TIMEOUT = (3.0, 40.0)  # seconds to connect, and without a word from the API server
# seconds between attempts while the API server is away: at first, at most
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0

_log = logging.getLogger(__name__)
OnPodChange = Callable[[], None]


def in_kubernetes() -> bool:
    """Whether this process runs in a pod that may talk to the API server."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and (ACCOUNT / "token").exists()


@dataclass(frozen=True)
class PodSource:
    """One kind of objects: how the API lists them, who takes all, and who takes one that has changed."""

    what: str
    method: Callable[..., Any]
    options: Mapping[str, str]
    every: Callable[[Iterable[Any]], None]
    one: Callable[[str, Any], None]


class PodWatch:
    """``changed`` is called after every change of ``evidence``, which ``lock`` guards."""

    def __init__(
        self, evidence: PodEvidence, lock: threading.Lock, release: str, changed: OnPodChange
    ) -> None:
        """Raises :class:`ImportError` when the package ``kubernetes`` is missing."""
        from kubernetes import client, config, watch

        config.load_incluster_config()
        self._api = client.CoreV1Api()
        self._watch = watch.Watch
        self._evidence = evidence
        self._lock = lock
        self._changed = changed
        self._namespace = os.environ.get("POD_NAMESPACE") or (ACCOUNT / "namespace").read_text().strip()
        self._selector = SELECTOR + release

    def follow_pods(self, stopping: threading.Event) -> None:
        """Until ``stopping`` is set."""
        options = {"namespace": self._namespace, "label_selector": self._selector}
        list_pods = self._api.list_namespaced_pod
        self._follow(PodSource("pods", list_pods, options, self._replace_pods, self._change_pod), stopping)

    def follow_nodes(self, stopping: threading.Event) -> None:
        """Until ``stopping`` is set. That may be forbidden; then only pods are known."""
        source = PodSource("nodes", self._api.list_node, {}, self._replace_nodes, self._change_node)
        self._follow(source, stopping)

    def _follow(self, source: PodSource, stopping: threading.Event) -> None:
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        problem = ""
        while not stopping.is_set():
            try:
                self._list_and_watch(source)
                backoff.reset()
                problem = ""
            except Exception as error:  # whatever is wrong with the API is no reason to end the coordinator
                reason = str(getattr(error, "reason", None) or error)
                if reason != problem:
                    problem = reason
                    _log.warning("kubernetes.unavailable", extra={"what": source.what, "reason": reason})
                stopping.wait(backoff.next())

    def _list_and_watch(self, source: PodSource) -> None:
        """List, then follow the changes for a while."""
        found = source.method(**source.options, _request_timeout=TIMEOUT)
        self._record(partial(source.every, found.items))
        since = {"resource_version": found.metadata.resource_version, "timeout_seconds": WATCH_SECONDS}
        for event in self._watch().stream(source.method, **source.options, **since, _request_timeout=TIMEOUT):
            self._record(partial(source.one, event["type"], event["object"]))

    def _record(self, event: Callable[[], None]) -> None:
        with self._lock:
            event()
        self._changed()

    def _replace_pods(self, found: Iterable[Any]) -> None:
        self._evidence.replace_pods(map(pod_from_kubernetes, found))

    def _change_pod(self, kind: str, found: Any) -> None:
        seen = pod_from_kubernetes(found)
        if kind == "DELETED":
            self._evidence.remove_pod(seen)
        else:
            self._evidence.update_pod(seen)

    def _replace_nodes(self, found: Iterable[Any]) -> None:
        self._evidence.replace_nodes(map(node_from_kubernetes, found))

    def _change_node(self, kind: str, found: Any) -> None:
        seen = node_from_kubernetes(found)
        if kind == "DELETED":
            self._evidence.remove_node(seen.name)
        else:
            self._evidence.update_node(seen)


def pod_from_kubernetes(found: Any) -> PodSeen:
    """From a ``V1Pod``. The container that counts has the name of the component."""
    meta = found.metadata
    status = found.status
    component = (meta.labels or {}).get(COMPONENT, "")
    container = next((one for one in status.container_statuses or () if one.name == component), None)
    states = (container.state, container.last_state) if container is not None else ()
    ends = [state.terminated for state in states if state is not None and state.terminated is not None]
    end = next((one for one in ends if one.finished_at is not None), None)
    return PodSeen(
        meta.name,
        meta.uid,
        status.pod_ip or "",
        found.spec.node_name or "",
        end.finished_at.timestamp() if end is not None else 0.0,
        f"{end.reason or 'it ended'}, exit code {end.exit_code}" if end is not None else "",
        meta.deletion_timestamp is not None,
    )


def node_from_kubernetes(found: Any) -> NodeSeen:
    """From a ``V1Node``."""
    ready = any(one.type == "Ready" and one.status == "True" for one in found.status.conditions or ())
    return NodeSeen(found.metadata.name, ready, frozenset(taint.key for taint in found.spec.taints or ()))
