"""Lines of logs: what is read of them, how few are kept, and who can read them where."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scar.errors import ConfigError, Unreachable
from scar_admin.log_text import LogText
from scar_console.log_ring import MAX_LINES, MAX_TEXT, LogLine, LogRing, read_line
from scar_kube.pod_logs import LINES, PODS, PodLogs
from scar_kube.pods import Pod
from scar_local.cluster_logs import ClusterLogs
from scar_local.growing_files import READ_BYTES
from tests.unit.test_console_page import STATUS, Looks

RECORD = {
    "time": "2026-11-23T16:00:00.250+00:00",
    "level": "warning",
    "logger": "scar_shard",
    "event": "shard.slow",
    "role": "shard",
    "member": "ps-0",
    "incarnation": "a" * 12,
    "epoch": 3,
    "seconds": 1.5,
}


def test_a_record_becomes_its_event_and_its_data() -> None:
    line = read_line(LogText("ps-0", json.dumps(RECORD)))
    assert line == LogLine("ps-0", "warning", "shard.slow seconds=1.5", 1_795_449_600.25)


@pytest.mark.parametrize("text", ["loss 0.5", "{torn", "[1]", "{}", '{"event": 1}', '{"a":' * 100_000, ""])
def test_what_is_no_record_is_shown_as_it_was_written(text: str) -> None:
    assert read_line(LogText("worker-0", text, 7.0)) == LogLine("worker-0", "printed", text[:MAX_TEXT], 7.0)


@pytest.mark.parametrize("wrong", [{"time": "then"}, {"time": 1}, {"level": "loud"}, {"level": ["a"]}])
def test_a_record_with_nonsense_in_it_is_still_shown(wrong: dict[str, object]) -> None:
    assert read_line(LogText("ps-0", json.dumps(RECORD | wrong))).text == "shard.slow seconds=1.5"


def lines(member: str, count: int, level: str = "info", begin: float = 0.0) -> list[LogLine]:
    return [LogLine(member, level, f"line {index}", begin + index) for index in range(count)]


def test_who_writes_without_end_hides_neither_others_nor_what_is_severe() -> None:
    ring = LogRing()
    ring.add([LogLine("ps-0", "info", "rare", 1.0), LogLine("worker-0", "error", "it broke", 2.0)])
    for begin in range(10, 20):
        ring.add(lines("worker-0", 10_000, begin=1e6 * begin))
    kept = ring.newest()
    assert [one.text for one in kept[:2]] == ["rare", "it broke"]
    assert len(kept) <= MAX_LINES
    assert kept[-1].text == "line 9999"
    assert [one.number for one in kept] == sorted(one.number for one in kept)


def test_however_many_members_write_few_lines_are_kept() -> None:
    ring = LogRing()
    ring.add([line for number in range(1000) for line in lines(f"ps-{number}", 3, "error", number)])
    assert MAX_LINES / 2 < len(ring.newest()) <= MAX_LINES


def test_lines_of_a_look_are_in_the_order_of_their_times() -> None:
    ring = LogRing()
    ring.add(
        [
            LogLine("a", "error", "third", 3.0),
            LogLine("a", "printed", "its traceback"),
            LogLine("b", "info", "first", 1.0),
        ]
    )
    assert [one.text for one in ring.newest()] == ["first", "third", "its traceback"]


class LoggingCluster(Looks):
    """Its members write what it is told, or their logs cannot be read."""

    def __init__(self, *answers: list[LogText] | Exception) -> None:
        super().__init__(*[STATUS] * 9)
        self._answers = answers

    def logs(self) -> WrittenLogs:  # type: ignore[override]
        return WrittenLogs(*self._answers)


class WrittenLogs:
    def __init__(self, *answers: list[LogText] | Exception) -> None:
        self._answers = iter(answers)

    def read(self) -> list[LogText]:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_look_sends_each_line_once_and_says_why_there_are_none() -> None:
    view = LoggingCluster([LogText("ps-0", "one")], Unreachable("the API is away", "Wait"), []).view()
    view.read_logs()
    assert [one["text"] for one in json.loads(view.look().whole)["logs"]] == ["one"]
    assert json.loads(view.look().step)["logs"] == []
    view.read_logs()
    look = json.loads(view.look().whole)
    assert look["state"]["log_problem"] == "the API is away. Wait"
    assert [one["text"] for one in look["logs"]] == ["one"], "it is kept"
    view.read_logs()
    assert json.loads(view.look().whole)["state"]["log_problem"] == ""
    elsewhere = Looks(STATUS, STATUS).view()
    elsewhere.read_logs()
    assert "cannot be read from here" in json.loads(elsewhere.look().whole)["state"]["log_problem"]


def test_logs_of_this_machine_are_read_once_from_their_ends_and_anew_when_they_begin_anew(
    tmp_path: Path,
) -> None:
    logs = ClusterLogs(tmp_path)
    assert logs.read() == []
    (tmp_path / "ps-0.log").write_bytes(b"x" * READ_BYTES + b"\none\ntw")
    (tmp_path / "worker-0.out").write_bytes(b"printed\n")
    (tmp_path / "other.json").write_bytes(b"no log\n")
    assert logs.read() == [LogText("ps-0", "one"), LogText("worker-0", "printed")]
    with (tmp_path / "ps-0.log").open("ab") as file:
        file.write(b"o\n")
    assert logs.read() == [LogText("ps-0", "two")]
    (tmp_path / "ps-0.log").write_bytes(b"another life\n")
    assert logs.read() == [LogText("ps-0", "another life")]
    (tmp_path / "ps-0.log").unlink()
    assert logs.read() == []


class PodApi:
    """``texts``: what pods have written, by name; notes how it was asked. ``allowed``: whether it answers."""

    context = "here"

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.allowed = True
        self.core = SimpleNamespace(read_namespaced_pod_log=None)

    def is_allowed(self, *_: str) -> bool:
        return self.allowed

    def ask(self, what: str, method: object, pod: str, namespace: str, **options: Any) -> str:
        self.asked.append((pod, options))
        if pod not in self.texts:
            raise KeyError(what)
        return self.texts[pod]


def pod_logs(api: PodApi, *pods: Pod) -> PodLogs:
    return PodLogs(cast(Any, SimpleNamespace(api=api, namespace="ml", pods=lambda: list(pods))))


def shard_pod(number: int) -> Pod:
    return Pod(f"scar-ps-{number}", "ps", "10.0.0.1", "running")


def test_logs_of_pods_are_told_once_with_their_times() -> None:
    api = PodApi()
    logs = pod_logs(api, shard_pod(0))
    api.texts["scar-ps-0"] = "1970-01-01T00:00:01.500000000Z one\n1970-01-01T00:00:02.000000000Z two words\n"
    told = [LogText("scar-ps-0", "one", 1.5), LogText("scar-ps-0", "two words", 2.0)]
    assert logs.read() == told
    api.texts["scar-ps-0"] += "1970-01-01T00:00:03.000000000Z three\n"
    assert logs.read() == [LogText("scar-ps-0", "three", 3.0)]
    (_, first), (_, second) = api.asked
    assert (first["container"], first["tail_lines"], first["timestamps"]) == ("ps", LINES, True)
    assert "since_seconds" not in first
    assert second["since_seconds"] >= 1


def test_of_many_pods_each_has_its_turn() -> None:
    api = PodApi()
    found = [shard_pod(number) for number in range(2 * PODS)]
    logs = pod_logs(api, *found)
    assert logs.read() == [], "one that has no log yet is no error"
    assert len(api.asked) == PODS
    logs.read()
    assert {name for name, _ in api.asked} == {pod.name for pod in found}


def test_who_may_not_read_logs_of_pods_hears_it() -> None:
    api = PodApi()
    logs = pod_logs(api, shard_pod(0))
    api.allowed = False
    with pytest.raises(ConfigError, match="'here' may not read the logs of pods in namespace ml"):
        logs.read()
    assert api.asked == []
