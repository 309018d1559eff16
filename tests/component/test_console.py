"""The page's server: who gets what, and one look for all. A real server, a cluster that is made up."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from scar.errors import ConfigError
from scar_admin.log_text import LogText
from scar_admin.observer import ClusterObserver
from scar_admin.status import ClusterStatus, ProcessInfo
from scar_cli.console import ConsoleOptions
from scar_console.server import serve_cluster

TIMEOUT = 60.0
SECRET = "what nobody else shall read"


class WrittenLogs:
    """Says something at its first look."""

    def __init__(self) -> None:
        self._said = [LogText("worker-0", SECRET)]

    def read(self) -> list[LogText]:
        said, self._said = self._said, []
        return said


class MadeUpCluster:
    """Each look at it is a problem with its number.

    ``broken``: how, and names that were asked for. ``observers``: how many were made.
    """

    def __init__(self, *can_break: str) -> None:
        self.can_break = can_break
        self.cannot_break = ("it is only looked at",)
        self.broken: list[tuple[str, str]] = []
        self.observers = 0
        self.over = threading.Event()
        self._looks = itertools.count(1)

    def observer(self) -> ClusterObserver:
        self.observers += 1
        return cast(ClusterObserver, self)

    def __enter__(self) -> MadeUpCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def read(self, since_clock: int = 0) -> ClusterStatus:
        return ClusterStatus(problems=(f"look {next(self._looks)}",))

    def processes(self) -> tuple[ProcessInfo, ...]:
        return ()

    def ended(self) -> bool:
        return self.over.is_set()

    def store(self) -> None: ...

    def logs(self) -> WrittenLogs:
        return WrittenLogs()

    def break_member(self, how: str, name: str) -> str:
        if name == "ps-9":
            raise ConfigError("there is no process 'ps-9'", "Choose another one")
        self.broken.append((how, name))
        return f"{name} done"


class Served:
    """A server in a thread of its own, and requests to it."""

    def __init__(self, cluster: MadeUpCluster) -> None:
        self.cluster = cluster
        self.stop = threading.Event()
        self._server = serve_cluster(cluster, self.stop, interval=0.05)
        where = urlsplit(self._server.url)
        self.host = where.netloc
        self.token = where.query.removeprefix("token=")
        self.thread = threading.Thread(target=self._server.run)
        self.thread.start()

    def request(
        self, method: str, path: str, **headers: str
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        connection = http.client.HTTPConnection(self.host, timeout=TIMEOUT)
        connection.request(method, path, headers={name.replace("_", "-"): to for name, to in headers.items()})
        return connection.getresponse(), connection

    def ask(self, method: str, path: str, **headers: str) -> tuple[int, str]:
        answer, connection = self.request(method, path, **headers)
        said = answer.read().decode()
        connection.close()
        return answer.status, said

    def looks(self) -> Iterator[dict[str, Any]]:
        """As a viewer has them, until the stream ends."""
        state: dict[str, Any] = {}
        answer, connection = self.request("GET", f"/events?token={self.token}")
        assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
        while line := answer.readline():
            if line.startswith(b"data: "):
                look = json.loads(line.removeprefix(b"data: "))
                state |= look["state"]
                yield look | {"state": dict(state)}
        connection.close()

    def close(self) -> None:
        self.stop.set()
        self.thread.join(TIMEOUT)
        assert not self.thread.is_alive()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served(MadeUpCluster("kill", "freeze"))
    yield made
    made.close()


def problem_of(look: dict[str, Any]) -> str:
    [said] = look["state"]["problems"]
    return str(said)


def test_with_the_token_there_is_a_page_that_asks_no_other_host(served: Served) -> None:
    answer, connection = served.request("GET", f"/?token={served.token}")
    page = answer.read().decode()
    connection.close()
    assert (answer.status, "<title>SCAR</title>" in page) == (200, True)
    assert "://" not in page
    policy = str(answer.getheader("content-security-policy"))
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    assert "unsafe" not in policy
    assert answer.getheader("referrer-policy") == "no-referrer"
    assert answer.getheader("set-cookie") is None, "browsers send cookies to every port of this machine"


@pytest.mark.parametrize(
    "path", ["/", "/?token=", "/?token=wrong", "/events", "/events?token=wrong", "/other"]
)
def test_without_the_token_nothing_of_the_run_is_shown(served: Served, path: str) -> None:
    next(look for look in served.looks() if look["logs"])  # there is something to tell
    status, said = served.ask("GET", path)
    assert (status, "open the whole URL" in said, SECRET in said) == (403, True, False)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:80", ""])
def test_another_name_that_leads_here_is_refused(served: Served, host: str) -> None:
    status, said = served.ask("GET", f"/?token={served.token}", Host=host)
    assert (status, "only by the name" in said) == (403, True)


def test_by_the_name_localhost_it_answers_too(served: Served) -> None:
    port = served.host.partition(":")[2]
    assert served.ask("GET", f"/?token={served.token}", Host=f"localhost:{port}")[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"])
def test_another_site_cannot_ask_even_with_the_token(served: Served, origin: str) -> None:
    assert served.ask("GET", f"/events?token={served.token}", Origin=origin)[0] == 403
    assert served.ask("POST", "/kill/ps-0", X_Scar_Token=served.token, Origin=origin)[0] == 403
    assert served.cluster.broken == []


def test_a_kill_needs_the_token_in_its_header(served: Served) -> None:
    """What a page of another site can send unasked has no header of its own; a link or a form has no body."""
    assert served.ask("POST", "/kill/ps-0")[0] == 403
    assert served.ask("POST", f"/kill/ps-0?token={served.token}")[0] == 403
    assert served.ask("POST", "/kill/ps-0", X_Scar_Token="wrong")[0] == 403
    assert served.ask("GET", f"/kill/ps-0?token={served.token}")[0] == 405
    assert served.cluster.broken == []
    origin = f"http://{served.host}"
    status, said = served.ask("POST", "/kill/ps-0", X_Scar_Token=served.token, Origin=origin)
    assert (status, json.loads(said)) == (200, {"done": "ps-0 done"})
    assert served.ask("POST", "/freeze/ps-1", X_Scar_Token=served.token)[0] == 200
    assert served.ask("POST", "/cut/ps-1", X_Scar_Token=served.token)[0] == 404, "this cluster has no cut"
    assert served.cluster.broken == [("kill", "ps-0"), ("freeze", "ps-1")]


def test_a_kill_that_is_not_possible_says_why(served: Served) -> None:
    status, said = served.ask("POST", "/kill/ps-9", X_Scar_Token=served.token)
    assert status == 409
    assert json.loads(said) == {"error": "there is no process 'ps-9'", "next": "Choose another one"}


def test_what_is_not_on_this_machine_is_only_looked_at() -> None:
    served = Served(MadeUpCluster())
    try:
        assert served.ask("POST", "/kill/ps-0", X_Scar_Token=served.token)[0] == 404
        assert not next(served.looks())["state"]["can_break"]
        assert served.cluster.broken == []
    finally:
        served.close()


@pytest.mark.parametrize(
    "path", ["/static/../index.html", "/static/%2e%2e/%2e%2e/server.py", "/static/none.js"]
)
def test_files_are_those_of_the_page_alone(served: Served, path: str) -> None:
    assert served.ask("GET", path)[0] in (403, 404)


@pytest.mark.parametrize(
    "path", ["console.js", "chart.js", "console.css", "uplot/uPlot.iife.min.js", "uplot/LICENSE"]
)
def test_scripts_and_styles_are_served(served: Served, path: str) -> None:
    status, text = served.ask("GET", f"/static/{path}")
    assert (status, bool(text)) == (200, True)


def test_one_observer_looks_for_all_viewers(served: Served) -> None:
    viewers = [served.looks() for _ in range(5)]
    for _ in range(2):
        seen = [problem_of(next(viewer)) for viewer in viewers]
        assert all(said.startswith("look ") for said in seen)
    assert served.cluster.observers == 1


def test_streams_end_with_the_server(served: Served) -> None:
    viewer = served.looks()
    next(viewer)
    served.close()
    assert len(list(viewer)) < 1000


def test_the_server_ends_with_the_cluster(served: Served) -> None:
    viewer = served.looks()
    assert not next(viewer)["state"]["ended"]
    served.cluster.over.set()
    assert list(viewer)[-1]["state"]["ended"]
    served.thread.join(TIMEOUT)
    assert not served.thread.is_alive()


def test_a_token_that_was_given_opens_the_page(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789-abc_DEF\n")
    token = ConsoleOptions(token_file=file).read_token()
    stop = threading.Event()
    server = serve_cluster(MadeUpCluster(), stop, token=token)
    url = server.url
    stop.set()
    server.run()
    assert url.endswith("/?token=0123456789-abc_DEF")
    assert ConsoleOptions().read_token() == ""


@pytest.mark.parametrize("token", ["", "short", "0123456789 abcdef", "0123456789abcde"])
def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path, token: str) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(ConfigError, match="has no token of at least 16"):
        ConsoleOptions(token_file=file).read_token()
    with pytest.raises(ConfigError, match="cannot be read"):
        ConsoleOptions(token_file=tmp_path / "none").read_token()


def test_a_port_that_is_taken_is_said(served: Served) -> None:
    with pytest.raises(ConfigError, match="cannot be listened at"):
        serve_cluster(served.cluster, threading.Event(), int(served.host.partition(":")[2]))
