"""Stopping nodes: a pod cannot, so the chaos job asks whoever watches it from outside, through a ConfigMap.

The job writes a request and its number ("3 stop node2"); the watcher carries it out and writes the number
back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping

from scar.errors import ConfigError, DeadlineExceeded
from scar_chaos.targets.pod_api import save_config_map
from scar_kube.api import Api

ANSWER_SECONDS = 60.0  # for the watcher to carry out one request
LOOK = 0.1  # seconds between two looks

MOST_DIGITS = 9  # of a request's number
# RFC 1123, as Kubernetes has it
NODE_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

NodeCommand = Callable[[str, str], None]  # ("stop" or "start", node)


class NodeControl:
    """The side of the chaos job.

    ``name``: of the ConfigMap, which goes when ``owner`` goes. ``own_node``: where this pod runs.
    """

    def __init__(self, api: Api, name: str, owner: str, own_node: str) -> None:
        self._api = api
        self._name = name
        self._owner = owner
        self._own_node = own_node
        self._requests = 0
        self._stopped = ""

    def stop_node(self, node: str) -> None:
        """Not this pod's own node: nobody would be left to judge."""
        if node and node != self._own_node and not self._stopped:
            self._stopped = node
            self._request("stop", node)

    def start_node(self) -> None:
        """Start the one that was stopped, if any."""
        if self._stopped:
            self._request("start", self._stopped)
            self._stopped = ""

    def _request(self, verb: str, node: str) -> None:
        self._requests += 1
        request = {"request": f"{self._requests} {verb} {node}"}
        save_config_map(self._api, self._name, self._owner, {}, request)
        deadline = time.monotonic() + ANSWER_SECONDS
        while _done_number(_read_data(self._api, self._name, self._api.namespace)) < self._requests:
            if time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"nobody outside has done: {verb} node {node}", "Start it by: scar chaos --on kubernetes"
                )
            time.sleep(LOOK)


def serve_node_request(
    api: Api, name: str, namespace: str, carry_out: NodeCommand, nodes: Callable[[], Collection[str]]
) -> None:
    """The side of the watcher: one look, and the request that it finds.

    ``nodes``: that may be stopped. What others write becomes part of a command of whoever watches. Raises
    :class:`ConfigError` for anything else.
    """
    data = _read_data(api, name, namespace)
    number, _, rest = data.get("request", "").partition(" ")
    if _parse_number(number) <= _done_number(data):
        return
    verb, _, node = rest.partition(" ")
    if verb not in ("stop", "start") or not NODE_NAME.fullmatch(node) or node not in nodes():
        raise ConfigError(
            f"the chaos job asks for {rest[:80]!r}: no node that the release runs on",
            f"See who else may write the ConfigMap {name}",
        )
    carry_out(verb, node)
    body = {"data": {"done": number}}
    api.ask("answer the chaos job", api.core.patch_namespaced_config_map, name, namespace, body)


def _done_number(data: Mapping[str, str]) -> int:
    """Of the last request that was carried out; 0: none."""
    return _parse_number(data.get("done", "0"))


def _parse_number(text: str) -> int:
    """Number of a request; 0: none."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else 0


def _read_data(api: Api, name: str, namespace: str) -> Mapping[str, str]:
    try:
        config_map = api.ask("read a request", api.core.read_namespaced_config_map, name, namespace)
    except KeyError:
        return {}
    return dict(config_map.data or {})
