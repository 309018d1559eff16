"""What the containers of a release are told: their environment, with the values that come from Secrets and
ConfigMaps.
"""

from __future__ import annotations

import base64
from typing import Any

from scar.errors import ConfigError
from scar_kube.api import Api

Container = Any  # the client makes its classes at run time


def read_environment(api: Api, namespace: str, container: Container) -> dict[str, str]:
    """Name -> value. What only a running pod knows (its name, its address) is left out."""
    found: dict[str, str] = {}
    for entry in container.env or ():
        if entry.value is not None:
            found[entry.name] = str(entry.value)
        elif entry.value_from is not None:
            value = _read_reference(api, namespace, entry.value_from)
            found |= {entry.name: value} if value is not None else {}
    return found


def _read_reference(api: Api, namespace: str, source: Any) -> str | None:
    if source.secret_key_ref is not None:
        reference = source.secret_key_ref
        read = api.core.read_namespaced_secret
        what = "secret"
    elif source.config_map_key_ref is not None:
        reference = source.config_map_key_ref
        read = api.core.read_namespaced_config_map
        what = "ConfigMap"
    else:
        return None
    try:
        value = api.ask(f"read {what} {reference.name}", read, reference.name, namespace).data[reference.key]
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{what} {reference.name} has no key {reference.key}",
            "Create it, or correct the values of the chart",
        ) from error
    return base64.b64decode(value).decode() if what == "secret" else str(value)
