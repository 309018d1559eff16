"""How a chaos job has nodes stopped by whoever watches it: every request is carried out once, before the job goes on."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from scar.errors import DeadlineExceeded
from scar_chaos import nodes
from scar_chaos.nodes import Nodes, serve


class FakeApi:
    """ConfigMaps of one namespace in memory; :class:`KeyError` for one that is not there, as of the real one."""

    namespace = "here"

    def __init__(self) -> None:
        self.maps: dict[str, dict[str, str]] = {"owner": {}}
        names = ("read", "replace", "create", "patch")
        self.core = SimpleNamespace(**{f"{name}_namespaced_config_map": getattr(self, f"_{name}") for name in names})

    def ask(self, _what: str, method: Any, *arguments: Any) -> Any:
        return method(*arguments)

    def _read(self, name: str, _namespace: str) -> Any:
        return SimpleNamespace(data=dict(self.maps[name]), metadata=SimpleNamespace(uid="1"))

    def _replace(self, name: str, _namespace: str, body: Any) -> None:
        if name not in self.maps:
            raise KeyError(name)
        self.maps[name] = dict(body["data"])

    def _create(self, _namespace: str, body: Any) -> None:
        self.maps[body["metadata"]["name"]] = dict(body["data"])

    def _patch(self, name: str, _namespace: str, body: Any) -> None:
        self.maps[name] |= body["data"]


@pytest.fixture
def watched() -> Any:
    """An API, what was carried out, and a watcher that looks all the time."""
    api, done, over = FakeApi(), list[tuple[str, str]](), threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            serve(api, "requests", "here", lambda verb, node: done.append((verb, node)))  # type: ignore[arg-type]

    thread = threading.Thread(target=watch)
    thread.start()
    yield api, done
    over.set()
    thread.join()


def test_every_request_is_carried_out_once(watched: Any) -> None:
    api, done = watched
    asking = Nodes(api, "requests", "owner", own="node1")
    asking.stop("node2")
    asking.start()
    asking.stop("node3")
    asking.start()
    assert done == [("stop", "node2"), ("start", "node2"), ("stop", "node3"), ("start", "node3")]


def test_what_a_former_job_asked_is_forgotten(watched: Any) -> None:
    api, done = watched
    for _ in range(2):
        asking = Nodes(api, "requests", "owner", own="node1")
        asking.stop("node2")
        asking.start()
    assert done == [("stop", "node2"), ("start", "node2")] * 2


def test_neither_its_own_node_nor_two_at_once(watched: Any) -> None:
    api, done = watched
    asking = Nodes(api, "requests", "owner", own="node1")
    asking.stop("node1")
    asking.start()
    asking.stop("node2")
    asking.stop("node3")
    assert done == [("stop", "node2")]


def test_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "ANSWER_SECONDS", 0.2)
    with pytest.raises(DeadlineExceeded, match="stop node node2"):
        Nodes(FakeApi(), "requests", "owner", own="node1").stop("node2")  # type: ignore[arg-type]
