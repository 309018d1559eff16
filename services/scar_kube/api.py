"""The Kubernetes API as this package uses it: one context, deadlines everywhere, and errors that say what to
do.

The package ``kubernetes`` is loaded with this module, which nothing imports before it is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import urllib3

from scar.errors import ConfigError, Unreachable

try:
    from kubernetes import client, config
    from kubernetes.stream import stream

    from scar_kube.tunnel import Tunnel
except ImportError as error:
    raise ConfigError(
        "the package kubernetes is missing", "Run: pip install 'scar-ps[kubernetes]'"
    ) from error

TIMEOUT = (3.0, 10.0)  # seconds to connect, and to answer
EXEC_SECONDS = 10.0

Answer = TypeVar("Answer")


class Api:
    """One context of the user's kubeconfig; empty: the current one. ``namespace``: the context's, or
    "default".
    """

    def __init__(self, context: str = "") -> None:
        """Raises :class:`ConfigError` when there is no kubeconfig, or no such context in it."""
        chosen = _find_context(context)
        self.context = str(chosen["name"])
        self.namespace = str(chosen["context"].get("namespace") or "default")
        try:
            self._client = self._new_client()
        except config.ConfigException as error:
            raise ConfigError(
                f"context {self.context!r} cannot be used: {error}", "Correct the kubeconfig"
            ) from error
        self.core = client.CoreV1Api(self._client)
        self.apps = client.AppsV1Api(self._client)

    def ask(self, what: str, method: Callable[..., Answer], *arguments: object, **options: object) -> Answer:
        """Call a method of :attr:`core` or :attr:`apps`. ``what``: for people, such as "list pods in
        namespace default".

        Raises :class:`KeyError` for what is not there, :class:`ConfigError` when it is not allowed,
        :class:`Unreachable`.
        """
        try:
            return method(*arguments, **options, _request_timeout=TIMEOUT)
        except client.ApiException as error:
            if error.status == 404:
                raise KeyError(what) from error
            raise self._explain_refusal(what, error) from error
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(
                f"the API server of context {self.context!r} does not answer: {_innermost_reason(error)}",
                "Check that the cluster runs, by `kubectl cluster-info`, or choose another one by --context",
            ) from error

    def is_allowed(self, namespace: str, verb: str, resource: str) -> bool:
        """Whether this context may do that, such as "create" "pods/exec"."""
        kind, _, part = resource.partition("/")
        group = "apps" if kind == "statefulsets" else ""
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": kind, "subresource": part}
        review = {"spec": {"resourceAttributes": asked}}
        create = client.AuthorizationV1Api(self._client).create_self_subject_access_review
        return bool(self.ask("ask for its rights", create, review).status.allowed)

    def refused_right(self, namespace: str, verb: str, resource: str) -> str:
        """As :meth:`is_allowed`, in words; empty: it is."""
        if self.is_allowed(namespace, verb, resource):
            return ""
        return f"context {self.context!r} may not {verb} {resource} in namespace {namespace!r}"

    def tunnel(self, namespace: str, pod: str, port: int) -> Tunnel:
        """A connection to a port of a pod. Raises what the client raises, and
        :data:`scar_kube.tunnel.ENDED`.
        """
        own = self._new_client()  # its requests become websockets
        own.request = partial(self._open_tunnel, own.configuration)
        core = client.CoreV1Api(own)
        tunnel: Tunnel = core.connect_get_namespaced_pod_portforward(
            pod, namespace, ports=str(port), _preload_content=False
        )
        return tunnel

    @staticmethod
    def _open_tunnel(configuration: Any, _method: str, url: str, **options: Any) -> Tunnel:
        return Tunnel.open(configuration, url, **options)

    def execute(self, namespace: str, pod: str, container: str, command: list[str]) -> None:
        """Run a command in a container and wait for its start. Raises as :meth:`ask`."""
        core = client.CoreV1Api(self._new_client())
        try:
            stream(
                core.connect_get_namespaced_pod_exec,
                pod,
                namespace,
                container=container,
                command=command,
                stdout=True,
                stderr=True,
                _request_timeout=EXEC_SECONDS,
            )
        except client.ApiException as error:
            if error.status == 404:
                raise KeyError(pod) from error
            raise self._explain_refusal(f"run a command in pod {pod}", error) from error

    def _new_client(self) -> Any:
        settings = client.Configuration()
        config.load_kube_config(_kubeconfig_path(), context=self.context, client_configuration=settings)
        settings.retries = False
        return client.ApiClient(settings)

    def _explain_refusal(self, what: str, error: Any) -> ConfigError:
        """403 is said of missing rights, and by admission: of quotas, and of what Pod Security forbids."""
        message = _error_message(error)
        if error.status == 401 or (error.status == 403 and " cannot " in message):
            return ConfigError(
                f"context {self.context!r} may not {what}",
                "Choose a context with that right, or ask for a role that has it",
            )
        return ConfigError(f"the API server refused to {what}: {message}", "Change what it complains about")


def _kubeconfig_path() -> str | None:
    """The variable as it is now: the package looks at it only once, when it is imported."""
    return os.environ.get("KUBECONFIG")


def _find_context(context: str) -> Mapping[str, Any]:
    try:
        contexts, current = config.list_kube_config_contexts(_kubeconfig_path())
    except (config.ConfigException, OSError) as error:
        raise ConfigError(
            f"there is no usable kubeconfig: {error}",
            "Set KUBECONFIG to the file of your cluster, or write ~/.kube/config (kind and clouds do it by"
            " themselves)",
        ) from error
    found: Mapping[str, Any] | None = (
        next((one for one in contexts if one["name"] == context), None) if context else current
    )
    if found is None:
        names = ", ".join(str(one["name"]) for one in contexts)
        raise ConfigError(f"the kubeconfig has no context {context!r}", f"Choose one by --context: {names}")
    return found


def _error_message(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, TypeError, KeyError):
        return str(error.reason)


def _innermost_reason(error: BaseException) -> str:
    """What really happened, without the layers of the HTTP client around it."""
    reason = getattr(error, "reason", None) or error.__cause__
    return _innermost_reason(reason) if isinstance(reason, BaseException) else str(error)
