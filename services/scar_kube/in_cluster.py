"""The Kubernetes API as a pod of a release may use it, by the pod's own service account."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubernetes import client, config

from scar.errors import ConfigError
from scar_kube.api import Api
from scar_kube.pods import Pod, list_pods

NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class InClusterApi(Api):
    """Raises :class:`ConfigError` outside of a pod, or in one without an account of its own."""

    def __init__(self, namespace: str) -> None:
        self.context = "of this pod"
        self.namespace = namespace
        self._client = self._new_client()
        self.core = client.CoreV1Api(self._client)
        self.apps = client.AppsV1Api(self._client)

    def _new_client(self) -> Any:
        settings = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException as error:
            raise ConfigError(
                f"this process runs in no pod with an account of its own: {error}",
                "From outside the cluster use --on kubernetes",
            ) from error
        settings.retries = False
        return client.ApiClient(settings)


class OwnRelease:
    """The release in one of whose pods this process runs. Raises as :class:`InClusterApi`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.namespace = NAMESPACE.read_text() if NAMESPACE.exists() else "default"
        self.api: Api = InClusterApi(self.namespace)

    def pods(self) -> list[Pod]:
        return list_pods(self.api, self.namespace, self.name)
