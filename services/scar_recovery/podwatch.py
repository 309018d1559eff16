"""Brings pods and nodes from the Kubernetes API to a :class:`Witness`. The only module here that knows that API.

One thread lists and watches the release's pods, one the nodes. When the API server is away the witness knows nothing new, and
nobody depends on it: the detector goes on by itself.
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

from scar.transport import Backoff
from scar_recovery.witness import NodeSeen, PodSeen, Witness

COMPONENT = "app.kubernetes.io/component"
SELECTOR = "app.kubernetes.io/name=scar,app.kubernetes.io/instance="
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
WATCH_SECONDS = 30  # after which everything is listed anew
TIMEOUT = (3.0, 40.0)  # seconds to connect, and without a word from the API server
FIRST, MOST = 0.5, 30.0  # seconds between attempts while the API server is away

_log = logging.getLogger(__name__)
Change = Callable[[], None]


def in_kubernetes() -> bool:
    """Whether this process runs in a pod that may talk to the API server."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and (ACCOUNT / "token").exists()


@dataclass(frozen=True)
class Source:
    """One kind of objects: how the API lists them, and who takes all of them, or one with what happened to it."""

    what: str
    method: Callable[..., Any]
    options: Mapping[str, str]
    every: Callable[[Iterable[Any]], None]
    one: Callable[[str, Any], None]


class PodWatch:
    """``changed`` is called after every change of the witness, which ``lock`` guards."""

    def __init__(self, witness: Witness, lock: threading.Lock, release: str, changed: Change) -> None:
        """Raises :class:`ImportError` when the package ``kubernetes`` is missing."""
        from kubernetes import client, config, watch

        config.load_incluster_config()
        self._core, self._watch = client.CoreV1Api(), watch.Watch
        self._witness, self._lock, self._changed = witness, lock, changed
        self._namespace = os.environ.get("POD_NAMESPACE") or (ACCOUNT / "namespace").read_text().strip()
        self._selector = SELECTOR + release

    def pods(self, stopping: threading.Event) -> None:
        """Follow the pods until ``stopping`` is set."""
        options = {"namespace": self._namespace, "label_selector": self._selector}
        self._follow(Source("pods", self._core.list_namespaced_pod, options, self._all_pods, self._pod), stopping)

    def nodes(self, stopping: threading.Event) -> None:
        """Follow the nodes until ``stopping`` is set. That may be forbidden; then only pods are known."""
        self._follow(Source("nodes", self._core.list_node, {}, self._all_nodes, self._node), stopping)

    def _follow(self, source: Source, stopping: threading.Event) -> None:
        backoff, problem = Backoff(FIRST, MOST), ""
        while not stopping.is_set():
            try:
                self._once(source)
                backoff.reset()
                problem = ""
            except Exception as error:  # whatever is wrong with the API is no reason to end the coordinator
                reason = str(getattr(error, "reason", None) or error)
                if reason != problem:
                    problem = reason
                    _log.warning("kubernetes.unavailable", extra={"what": source.what, "reason": reason})
                stopping.wait(backoff.next())

    def _once(self, source: Source) -> None:
        """List, then follow the changes for a while."""
        found = source.method(**source.options, _request_timeout=TIMEOUT)
        self._tell(partial(source.every, found.items))
        since = {"resource_version": found.metadata.resource_version, "timeout_seconds": WATCH_SECONDS}
        for event in self._watch().stream(source.method, **source.options, **since, _request_timeout=TIMEOUT):
            self._tell(partial(source.one, event["type"], event["object"]))

    def _tell(self, event: Callable[[], None]) -> None:
        with self._lock:
            event()
        self._changed()

    def _all_pods(self, found: Iterable[Any]) -> None:
        self._witness.pods(map(pod_seen, found))

    def _pod(self, kind: str, found: Any) -> None:
        (self._witness.pod_gone if kind == "DELETED" else self._witness.pod)(pod_seen(found))

    def _all_nodes(self, found: Iterable[Any]) -> None:
        self._witness.nodes(map(node_seen, found))

    def _node(self, kind: str, found: Any) -> None:
        node = node_seen(found)
        self._witness.node_gone(node.name) if kind == "DELETED" else self._witness.node(node)


def pod_seen(found: Any) -> PodSeen:
    """From a ``V1Pod``. The container that counts has the name of the component."""
    meta, status = found.metadata, found.status
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


def node_seen(found: Any) -> NodeSeen:
    """From a ``V1Node``."""
    ready = any(one.type == "Ready" and one.status == "True" for one in found.status.conditions or ())
    return NodeSeen(found.metadata.name, ready, frozenset(taint.key for taint in found.spec.taints or ()))
