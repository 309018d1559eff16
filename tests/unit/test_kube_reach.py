"""What stays of a connection, of a password and of a training when a release is reached from outside."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace as Made

import pytest

from scar import Job, Table
from scar.errors import ConfigError
from scar_kube.forwards import Forward
from scar_kube.pods import Pod
from scar_kube.release import Release
from scar_kube.training import JOB, Training, Work
from scar_kube.where import Where

JOB_OF_TEST = Job("digits", [Table("w", (4, 2))], workers=3, shards=2)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("job = None\n")
    return path


def test_a_tunnel_that_waited_too_long_is_not_used() -> None:
    """Its pod may be gone by then."""
    stale = Made(close=lambda: None)
    forward = Forward(lambda: Made(close=lambda: None))  # type: ignore[arg-type,return-value]
    forward._spare = (time.monotonic() - 0.1, stale)  # type: ignore[assignment]
    assert forward._take_spare() is None
    forward._spare = (time.monotonic() + 60, stale)  # type: ignore[assignment]
    assert forward._take_spare() is stale
    forward.close()


def test_a_password_of_redis_stays_when_it_is_reached_by_a_forward() -> None:
    release = Release(Made(), "mine", "scar", "scar", Where(), {})  # type: ignore[arg-type]
    release._pods = (time.monotonic() + 60, [Pod("scar-redis-0", "redis", "10.0.0.9", "running")])
    address = release._check_reachable("redis://:secret@scar-redis:6379/0", "redis")
    assert address.startswith("redis://:secret@127.0.0.1:")
    assert (
        release._check_reachable("redis://:secret@elsewhere:6379/0", "redis")
        == "redis://:secret@elsewhere:6379/0"
    )
    release.close()


@pytest.mark.parametrize(
    ("job", "changed", "same"), [("digits", False, True), ("digits", True, False), ("other", False, False)]
)
def test_a_training_is_followed_only_when_job_and_file_are_the_same(
    file: Path, job: str, changed: bool, same: bool
) -> None:
    marks = Work(JOB_OF_TEST, file).marks() | {JOB: job}
    if changed:
        file.write_text(file.read_text() + "\n# another file\n")
    found = Made(metadata=Made(annotations=marks), spec=Made(replicas=3))
    api = Made(ask=lambda *_, **__: found, apps=Made(read_namespaced_stateful_set=None), core=None)
    release = Made(api=api, namespace="mine", fullname="scar", dialer=lambda: None, pods=list)
    training = Training(release, Work(JOB_OF_TEST, file))  # type: ignore[arg-type]
    if same:
        assert training._is_running()
    else:
        with pytest.raises(ConfigError, match=f"job '{job}' is being trained"):
            training._is_running()


class CountedLock:
    """``asked``: how often it was wanted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.asked = 0

    def __enter__(self) -> None:
        self.asked += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_one_answer_serves_all_who_wait_for_it_however_slow_the_api_server_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or they would ask one after the other, and with new ones all the time that would never end."""
    answers, begun, go_on = [], threading.Event(), threading.Event()

    def answer(*_: object) -> list[Pod]:
        begun.set()
        go_on.wait(60)
        answers.append(len(answers))
        return []

    monkeypatch.setattr("scar_kube.release.list_pods", answer)
    monkeypatch.setattr("scar_kube.release.FRESH_SECONDS", -1.0)
    release = Release(Made(), "mine", "scar", "scar", Where(), {})  # type: ignore[arg-type]
    lock = CountedLock()
    release._asking = lock  # type: ignore[assignment]
    with ThreadPoolExecutor(21) as threads:
        first = threads.submit(release.pods)
        assert begun.wait(60)
        waiting = [threads.submit(release.pods) for _ in range(20)]
        while lock.asked < 21:
            time.sleep(0.001)
        go_on.set()
        assert [one.result(60) for one in (first, *waiting)] == [[]] * 21
    assert len(answers) == 2, "the first was asked for before they came"
