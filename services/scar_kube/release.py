"""One release of the chart: where it is, what runs in it, and how to reach that from here.

    with Release.find(Where(context="kind-scar")) as release:
        with release.observer() as observer:
            observer.read().clock

Everything is found by the chart's labels, so the release's name is all that has to be known, and not even
that when there is only one in the namespace.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from scar.errors import ConfigError, NotServing
from scar_admin.observer import ClusterObserver
from scar_admin.status import ProcessInfo
from scar_kube.api import Api
from scar_kube.forwards import Forward, Forwards, PodAssignment
from scar_kube.operator import SECRET, ReleaseOperator
from scar_kube.pods import COMPONENT, INSTANCE, NAME, Pod, list_pods
from scar_kube.settings import Container, read_environment
from scar_kube.tunnel import Tunnel
from scar_kube.where import Where
from scar_runtime.store.schemes import is_credential

GRPC_PORT = 7070
CHAOS = "scar.dev/chaos"  # annotation of the recovery service
LOOK_SECONDS = 3.0  # that one service may take to answer through a forward
FRESH_SECONDS = 0.5  # that a list of pods is used again


class Release:
    """``fullname``: what the names of its objects begin with. ``annotations``: of its recovery service.
    ``allows_chaos``: its members may be broken, by its chart's values. Close it when it is not needed any
    more.
    """

    def __init__(
        self, api: Api, namespace: str, name: str, fullname: str, where: Where, annotations: Mapping[str, str]
    ) -> None:
        self.api = api
        self.namespace = namespace
        self.name = name
        self.fullname = fullname
        self.where = where
        self.allows_chaos = annotations.get(CHAOS) == "allowed"
        self.operator = ReleaseOperator(api, namespace, annotations.get(SECRET, ""))
        self._dialers: list[Forwards] = []
        self._pods: tuple[float, list[Pod]] = (0.0, [])  # fresh until
        self._asked = 0.0  # when they were asked for; monotonic
        self._asking = threading.Lock()  # many ask at once, and one answer is enough

    @classmethod
    def find(cls, where: Where) -> Self:
        """Raises :class:`ConfigError` that names what is missing: kubeconfig, context, namespace or
        release.
        """
        api = Api(where.context)
        namespace = where.namespace or api.namespace
        services = api.ask(
            f"list services in namespace {namespace}",
            api.core.list_namespaced_service,
            namespace,
            label_selector=f"{NAME},{COMPONENT}=recovery",
        )
        known = {one.metadata.labels[INSTANCE]: one.metadata for one in services.items}
        name = where.release or (next(iter(known)) if len(known) == 1 else "")
        if name not in known:
            raise _not_found(api, namespace, name, sorted(known))
        fullname = known[name].name.removesuffix("-recovery")
        return cls(api, namespace, name, fullname, where, known[name].annotations or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for dialer in self._dialers:
            dialer.close()
        self.operator.resign()

    def __str__(self) -> str:
        return f"release {self.name!r} in namespace {self.namespace!r} of context {self.api.context!r}"

    # --- looking

    def pods(self) -> list[Pod]:
        """All of its pods, by name; at most :data:`FRESH_SECONDS` old, or asked for since the call.

        So one answer serves all who wait for it, however long it takes: else, where the API server is slow,
        they would ask one after the other, and ever more would wait.
        """
        called = time.monotonic()
        with self._asking:
            if called > self._asked and time.monotonic() > self._pods[0]:
                asked = time.monotonic()
                pods = list_pods(self.api, self.namespace, self.name)
                self._asked = asked
                self._pods = (time.monotonic() + FRESH_SECONDS, pods)
            return self._pods[1]

    def processes(self) -> tuple[ProcessInfo, ...]:
        return tuple(pod.process() for pod in self.pods())

    def shards(self) -> int:
        """How many shards the release is to have."""
        return int(self._read_shards().spec.replicas)

    def shard_container(self) -> Container:
        """Of a shard, with the release's own image."""
        container: Container = self._read_shards().spec.template.spec.containers[0]
        return container

    def _read_shards(self) -> Any:
        return self.api.ask(
            "read the StatefulSet of the shards",
            self.api.apps.read_namespaced_stateful_set,
            f"{self.fullname}-ps",
            self.namespace,
        )

    def observer(self) -> ClusterObserver:
        """Looks at the release's services through forwards that it opens."""
        return ClusterObserver(
            "recovery", {"checkpoint": "checkpoint", "detector": "detector"}, LOOK_SECONDS, self.dialer()
        )

    # --- reaching

    def dialer(self) -> Forwards:
        """``to("recovery")`` leads to all replicas of that coordinator, ``to("10.1.2.3:7070")`` to the pod
        of this address. From now on this process is the release's operator.
        """
        self.operator.become()
        return self._open_forwards()

    def _open_forwards(self) -> Forwards:
        dialer = Forwards(self._forwards_to)
        self._dialers.append(dialer)
        return dialer

    def _forwards_to(self, address: str) -> list[Forward]:
        host, _, port = address.rpartition(":")
        if host:
            return [Forward(lambda: self._open_tunnel(self._forward_at(host), int(port)))]
        component, _, number = address.partition("/")
        assignment = PodAssignment(
            lambda: [pod.name for pod in self.pods() if pod.component == component and pod.running]
        )
        if number:
            return [Forward(lambda: self._open_tunnel(assignment.pod_of(0), int(number)))]
        replicas = max(2, sum(pod.component == component for pod in self.pods()))
        return [Forward(partial(self._tunnel_to_replica, assignment, replica)) for replica in range(replicas)]

    def _tunnel_to_replica(self, assignment: PodAssignment, replica: int) -> Tunnel:
        return self._open_tunnel(assignment.pod_of(replica), GRPC_PORT)

    def _forward_at(self, address: str) -> str:
        """Name of the pod that has this address now."""
        return next(pod.name for pod in self.pods() if pod.address == address)

    def _open_tunnel(self, pod: str, port: int) -> Tunnel:
        return self.api.tunnel(self.namespace, pod, port)

    # --- store and Redis

    def store(self) -> tuple[str, Mapping[str, str]]:
        """URL of the release's store as it is reached from here, and its credentials."""
        found = self._read_environment("checkpoint")
        parts = urlsplit(found["SCAR_STORE"])
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        if query.get("endpoint"):
            query["endpoint"] = self._check_reachable(query["endpoint"], "minio")
        url = urlunsplit(parts._replace(query=urlencode(query, safe=":/")))
        return url, {name: value for name, value in found.items() if is_credential(name)}

    def redis(self) -> str:
        """URL of the release's Redis as it is reached from here."""
        return self._check_reachable(self._read_environment("recovery")["SCAR_REDIS"], "redis")

    def _read_environment(self, component: str) -> dict[str, str]:
        """What the chart tells this coordinator, Secrets included."""
        name = f"{self.fullname}-{component}"
        found = self.api.ask(
            f"read deployment {name}", self.api.apps.read_namespaced_deployment, name, self.namespace
        )
        container: Container = next(
            one for one in found.spec.template.spec.containers if one.name == component
        )
        return read_environment(self.api, self.namespace, container)

    def _check_reachable(self, url: str, component: str) -> str:
        """An address outside of the release stays as it is; the release's own service is reached by a
        forward.
        """
        parts = urlsplit(url)
        if (parts.hostname or "").partition(".")[0] != f"{self.fullname}-{component}":
            return url
        if not any(pod.component == component and pod.running for pod in self.pods()):
            raise NotServing(
                f"{component} of {self} does not run", "Wait for its start, or see `kubectl get pods`"
            )
        login = parts.netloc.rpartition("@")[0]
        address = self._open_forwards().target_of(f"{component}/{parts.port}")
        return urlunsplit(parts._replace(netloc=f"{login}@{address}" if login else address))


def _not_found(api: Api, namespace: str, name: str, known: list[str]) -> ConfigError:
    if known:
        wanted = f"no release {name!r}" if name else f"{len(known)} releases"
        return ConfigError(
            f"namespace {namespace!r} has {wanted}", f"Choose one by --release: {', '.join(known)}"
        )
    try:
        api.ask(f"read namespace {namespace}", api.core.read_namespace, namespace)
    except KeyError:
        return ConfigError(
            f"context {api.context!r} has no namespace {namespace!r}",
            "Choose another one by --namespace, or another cluster by --context",
        )
    except ConfigError:  # not allowed to ask; then it exists for all that we know
        pass
    return ConfigError(
        f"namespace {namespace!r} of context {api.context!r} has no release{f' {name!r}' if name else ''} of"
        " SCAR",
        f"Install one by `helm install {name or 'scar'} deploy/helm/scar --namespace {namespace}`, or choose"
        " by --namespace",
    )
