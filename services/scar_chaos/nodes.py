"""Stopping nodes: a pod cannot, so the chaos job asks whoever watches it from outside, through a ConfigMap.

The job writes a request and its number ("3 stop node2"); the watcher carries it out and writes the number back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from scar.errors import DeadlineExceeded
from scar_chaos.inside import save
from scar_kube.api import Api

ANSWER_SECONDS = 60.0  # for the watcher to carry out one request
LOOK = 0.1  # seconds between two looks

Carry = Callable[[str, str], None]  # ("stop" or "start", node)


class Nodes:
    """The side of the chaos job. ``name``: of the ConfigMap, which goes when ``owner`` goes. ``own``: this pod's node."""

    def __init__(self, api: Api, name: str, owner: str, own: str) -> None:
        self._api, self._name, self._owner, self._own = api, name, owner, own
        self._number, self._stopped = 0, ""

    def stop(self, node: str) -> None:
        """Not this pod's own node: nobody would be left to judge."""
        if node and node != self._own and not self._stopped:
            self._stopped = node
            self._ask("stop", node)

    def start(self) -> None:
        if self._stopped:
            self._ask("start", self._stopped)
            self._stopped = ""

    def _ask(self, verb: str, node: str) -> None:
        self._number += 1
        save(self._api, self._name, self._owner, {}, {"request": f"{self._number} {verb} {node}"})
        deadline = time.monotonic() + ANSWER_SECONDS
        while _answered(_read(self._api, self._name, self._api.namespace)) < self._number:
            if time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"nobody outside has done: {verb} node {node}", "Start it by: scar chaos --on kubernetes"
                )
            time.sleep(LOOK)


def serve(api: Api, name: str, namespace: str, carry: Carry) -> None:
    """The side of the watcher: one look, and the request that it finds."""
    data = _read(api, name, namespace)
    number, _, rest = data.get("request", "").partition(" ")
    if not number or _answered(data) >= int(number):
        return
    verb, _, node = rest.partition(" ")
    carry(verb, node)
    body = {"data": {"done": number}}
    api.ask("answer the chaos job", api.core.patch_namespaced_config_map, name, namespace, body)


def _answered(data: Mapping[str, str]) -> int:
    """Number of the last request that was carried out; 0: none."""
    return int(data.get("done", "0"))


def _read(api: Api, name: str, namespace: str) -> Mapping[str, str]:
    try:
        return dict(api.ask("read a request", api.core.read_namespaced_config_map, name, namespace).data or {})
    except KeyError:
        return {}
