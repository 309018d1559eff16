"""Pods of a release as this package sees them, read from what the API says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scar_admin.status import ProcessInfo

if TYPE_CHECKING:
    from scar_kube.api import Api

COMPONENT = "app.kubernetes.io/component"
INSTANCE = "app.kubernetes.io/instance"
NAME = "app.kubernetes.io/name=scar"

# exit codes after which it is right that a worker starts again: asked to end, fenced
RETRIED = frozenset({0, 3})
SIGNALLED = 128  # exit codes from here on: ended by a signal
CUT = "cut-"  # how names of containers begin that cut their pod off


@dataclass(frozen=True)
class Pod:
    """``state``: "running", "cut" (so, but off from the network), or why it is not, in Kubernetes' words.
    ``code``: exit code of its container's last end.

    ``leaving``: it was asked to end.
    """

    name: str
    component: str
    address: str
    state: str
    restarts: int = 0
    code: int | None = None
    leaving: bool = False

    @property
    def running(self) -> bool:
        return self.state == "running" and not self.leaving

    @property
    def failed(self) -> bool:
        """Its program has ended with an error of its own, which another start does not repair."""
        return self.code is not None and self.code not in RETRIED and self.code < SIGNALLED

    def process(self) -> ProcessInfo:
        state = "exited" if self.leaving else self.state
        return ProcessInfo(self.name, 0, state, self.restarts, self.code, part=self.component)


def list_pods(api: Api, namespace: str, release: str) -> list[Pod]:
    """All of a release, by name. Raises as :meth:`Api.ask`."""
    found = api.ask(
        f"list pods in namespace {namespace}",
        api.core.list_namespaced_pod,
        namespace,
        label_selector=f"{NAME},{INSTANCE}={release}",
    )
    return sorted(map(read_pod, found.items), key=lambda pod: pod.name)


def read_pod(found: Any) -> Pod:
    """From a ``V1Pod``. A pod of a release has one container, named after its component."""
    labels = found.metadata.labels or {}
    status = found.status
    component = labels.get(COMPONENT, "")
    container = next((one for one in status.container_statuses or () if one.name == component), None)
    state = str(status.phase or "Pending")
    code = None
    if container is not None:
        state = _state_of(container.state)
        if state == "running" and any(map(_cuts_off, status.ephemeral_container_statuses or ())):
            state = "cut"
        ended = container.state.terminated or (
            container.last_state.terminated if container.last_state else None
        )
        code = int(ended.exit_code) if ended is not None else None
    return Pod(
        found.metadata.name,
        component,
        str(status.pod_ip or ""),
        state,
        int(container.restart_count) if container is not None else 0,
        code,
        found.metadata.deletion_timestamp is not None,
    )


def _cuts_off(joined: Any) -> bool:
    return joined.name.startswith(CUT) and joined.state.running is not None


def _state_of(state: Any) -> str:
    if state.running is not None:
        return "running"
    for other in (state.waiting, state.terminated):
        if other is not None and other.reason:
            return str(other.reason)
    return "starting"
