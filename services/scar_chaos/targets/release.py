"""The release in which a chaos job runs: what its pod is told, and the workers that it makes."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scar.errors import ConfigError

VARIABLES = {  # attribute of :class:`ReleaseEnvironment` -> environment variable
    "release": "SCAR_RELEASE",
    "fullname": "SCAR_FULLNAME",
    "namespace": "POD_NAMESPACE",
    "address": "POD_IP",
    "node": "NODE_NAME",
    "recovery": "SCAR_RECOVERY",
    "checkpoint": "SCAR_CHECKPOINT",
    "detector": "SCAR_DETECTOR",
    "store": "SCAR_STORE",
}


@dataclass(frozen=True)
class ReleaseEnvironment:
    """The release, as the chart tells the pod of a chaos job.

    ``fullname``: what names of its objects begin with. ``address``, ``node``: of this pod.
    """

    release: str
    fullname: str
    namespace: str
    address: str
    node: str
    recovery: str
    checkpoint: str
    detector: str
    store: str

    @classmethod
    def of_this_pod(cls) -> ReleaseEnvironment:
        """Raises :class:`ConfigError` outside of such a pod."""
        missing = [name for name in VARIABLES.values() if not os.environ.get(name)]
        if missing:
            raise ConfigError(
                f"{', '.join(missing)} not set: this is no pod of a chaos job",
                "From outside the cluster use: scar chaos --on kubernetes",
            )
        return cls(**{attribute: os.environ[name] for attribute, name in VARIABLES.items()})


def fill_worker_template(
    template: Mapping[str, Any],
    replicas: int,
    image: str,
    environment: Mapping[str, str],
    owner: Mapping[str, str],
) -> dict[str, Any]:
    """The chart's StatefulSet of workers, for a training file that is in the image."""
    made = copy.deepcopy(dict(template))
    made["metadata"]["ownerReferences"] = [dict(owner)]
    made["spec"]["replicas"] = replicas
    pod = made["spec"]["template"]["spec"]
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "training"]
    worker = next(container for container in pod["containers"] if container["name"] == "worker")
    worker["volumeMounts"] = [mount for mount in worker["volumeMounts"] if mount["name"] != "training"]
    kept = [entry for entry in worker["env"] if entry["name"] not in environment]
    worker["env"] = kept + [{"name": name, "value": value} for name, value in environment.items()]
    worker["image"] = image
    return made
