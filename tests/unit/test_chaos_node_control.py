"""How a chaos job has nodes stopped by whoever watches it: every request is carried out once, before the
job goes on.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from scar.errors import ConfigError, DeadlineExceeded
from scar_chaos.targets import node_control
from scar_chaos.targets.node_control import NodeControl, serve_node_request

NODES = ("node2", "node3", "-oProxyCommand=id")


class FakeApi:
    """ConfigMaps of one namespace in memory; :class:`KeyError` for one that is not there, as of the real
    one.
    """

    namespace = "here"

    def __init__(self) -> None:
        self.maps: dict[str, dict[str, str]] = {"owner": {}}
        names = ("read", "replace", "create", "patch")
        self.core = SimpleNamespace(
            **{f"{name}_namespaced_config_map": getattr(self, f"_{name}") for name in names}
        )

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
            serve_node_request(api, "requests", "here", lambda *request: done.append(request), lambda: NODES)  # type: ignore[arg-type]

    thread = threading.Thread(target=watch)
    thread.start()
    yield api, done
    over.set()
    thread.join()


def test_every_request_is_carried_out_once(watched: Any) -> None:
    api, done = watched
    asking = NodeControl(api, "requests", "owner", own_node="node1")
    asking.stop_node("node2")
    asking.start_node()
    asking.stop_node("node3")
    asking.start_node()
    assert done == [("stop", "node2"), ("start", "node2"), ("stop", "node3"), ("start", "node3")]


def test_what_a_former_job_asked_is_forgotten(watched: Any) -> None:
    api, done = watched
    for _ in range(2):
        asking = NodeControl(api, "requests", "owner", own_node="node1")
        asking.stop_node("node2")
        asking.start_node()
    assert done == [("stop", "node2"), ("start", "node2")] * 2


def test_neither_its_own_node_nor_two_at_once(watched: Any) -> None:
    api, done = watched
    asking = NodeControl(api, "requests", "owner", own_node="node1")
    asking.stop_node("node1")
    asking.start_node()
    asking.stop_node("node2")
    asking.stop_node("node3")
    assert done == [("stop", "node2")]


def test_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_control, "ANSWER_SECONDS", 0.2)
    with pytest.raises(DeadlineExceeded, match="stop node node2"):
        NodeControl(FakeApi(), "requests", "owner", own_node="node1").stop_node("node2")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "asked",
    [
        *("stop -oProxyCommand=id", "stop node9", "stop node2 node3", "stop ", "stop node2\n", "kill node2"),
        *("stop Node2", "stop node2;id", "stop " + "a" * 254, ""),
    ],
)
def test_no_other_request_reaches_the_command(asked: str) -> None:
    """Whoever may write the ConfigMap does not choose an argument of a command on another machine."""
    api = FakeApi()
    api.maps["requests"] = {"request": f"1 {asked}"}
    carried_out: list[str] = []
    with pytest.raises(ConfigError):
        serve_node_request(
            api,  # type: ignore[arg-type]
            "requests",
            "here",
            lambda verb, node: carried_out.append(f"{verb} {node}"),
            lambda: NODES,
        )
    assert carried_out == []
    assert "done" not in api.maps["requests"]


@pytest.mark.parametrize("data", [{"request": "x stop node2"}, {"request": "\u00b2 stop node2"}, {}])
def test_what_is_no_request_is_left_alone(data: dict[str, str]) -> None:
    api = FakeApi()
    api.maps["requests"] = data
    serve_node_request(api, "requests", "here", lambda *_: pytest.fail("carried out"), lambda: NODES)  # type: ignore[arg-type]
