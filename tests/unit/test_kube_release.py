"""A release as the command line sees it: pods, forwards, the workers' StatefulSet, and what is said when
one is missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace as Made
from typing import Any

import pytest
import yaml

from scar import Job, Table
from scar.errors import ConfigError
from scar_kube.api import Api
from scar_kube.forwards import Forward, Forwards, PodAssignment
from scar_kube.pods import Pod, read_pod
from scar_kube.release import Release
from scar_kube.training import FILE, JOB, MOST_BYTES, Work, fill_template
from scar_kube.where import Where

JOB_OF_TEST = Job("digits", [Table("w", (4, 2))], workers=3, shards=2)


# --- pods
# ------------------------------------------------------------------------------------------------------------


def pod(
    state: str = "running", code: int | None = None, last: int | None = None, leaving: bool = False
) -> Any:
    """As the API client gives it."""
    kinds = {"running": None, "waiting": None, "terminated": None}
    if state == "running":
        kinds["running"] = Made(started_at=0)
    elif code is None:
        kinds["waiting"] = Made(reason=state)
    else:
        kinds["terminated"] = Made(reason=state, exit_code=code)
    past = Made(terminated=Made(exit_code=last) if last is not None else None)
    container = Made(name="worker", restart_count=2, state=Made(**kinds), last_state=past)
    meta = Made(name="scar-worker-0", labels={"app.kubernetes.io/component": "worker"})
    meta.deletion_timestamp = "now" if leaving else None
    return Made(
        metadata=meta,
        status=Made(
            phase="Running",
            pod_ip="10.0.0.7",
            container_statuses=[container],
            ephemeral_container_statuses=None,
        ),
    )


def test_a_pod_that_runs() -> None:
    found = read_pod(pod())
    assert found == Pod("scar-worker-0", "worker", "10.0.0.7", "running", 2)
    assert (found.running, found.failed) == (True, False)
    process = found.process()
    assert (process.component, process.alive, process.pid, process.restarts) == ("worker", True, 0, 2)


@pytest.mark.parametrize(
    ("found", "failed"),
    [
        (pod("CrashLoopBackOff", last=1), True),
        (pod("Error", code=2), True),
        (pod(last=1), True),
        (pod(last=3), False),  # it was fenced, and is back
        (pod(last=137), False),  # it was killed, and is back
        (pod("Completed", code=0), False),
        (pod("ImagePullBackOff"), False),
    ],
)
def test_which_end_of_a_worker_is_the_end_of_the_training(found: Any, failed: bool) -> None:
    assert read_pod(found).failed is failed


def test_what_does_not_run_says_why() -> None:
    assert read_pod(pod("ImagePullBackOff")).process().state == "ImagePullBackOff"
    assert not read_pod(pod("ImagePullBackOff")).process().alive
    assert not read_pod(pod(leaving=True)).running


# --- forwards
# ------------------------------------------------------------------------------------------------------------


class Echo:
    """A pod that says its name and then what it hears. Takes the place of a tunnel."""

    def __init__(self, name: str) -> None:
        self.ours, self._theirs = socket.socketpair()
        threading.Thread(target=self._serve, args=(name,), daemon=True).start()

    def _serve(self, name: str) -> None:
        with contextlib.suppress(OSError):
            self._theirs.sendall(name.encode())
            while data := self._theirs.recv(100):
                self._theirs.sendall(data.upper())

    pending = False

    def fileno(self) -> int:
        return self.ours.fileno()

    def receive(self) -> bytes | None:
        return self.ours.recv(100) or None

    def send(self, data: bytes) -> None:
        self.ours.sendall(data)

    def close(self) -> None:
        self.ours.close()

    def die(self) -> None:
        self._theirs.shutdown(socket.SHUT_RDWR)


def dial(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=5)


@pytest.fixture
def world() -> Iterator[tuple[list[str], list[Echo], Forwards]]:
    """Names of the pods of one service, the connections to them, and the forwards."""
    names, made = ["a", "b"], list[Echo]()
    assignment = PodAssignment(lambda: names)

    def connect(seat: int) -> Echo:
        made.append(Echo(assignment.pod_of(seat)))
        return made[-1]

    routes = {
        "service": lambda: [Forward(lambda: connect(0)), Forward(lambda: connect(1))],  # type: ignore[arg-type,return-value]
        "10.0.0.7:7070": lambda: [Forward(lambda: connect(0))],  # type: ignore[arg-type,return-value]
    }
    forwards = Forwards(lambda address: routes[address]())
    yield names, made, forwards
    forwards.close()


def test_each_replica_has_its_port_and_keeps_its_pod(world: tuple[list[str], list[Echo], Forwards]) -> None:
    names, _, forwards = world
    target = forwards.target_of("service")
    assert target.startswith("ipv4:")
    first, second = target.removeprefix("ipv4:").split(",")
    with dial(first) as one, dial(second) as two:
        before = [one.recv(10), two.recv(10)]
        assert sorted(before) == [b"a", b"b"]
        two.sendall(b"hello")
        assert two.recv(10) == b"HELLO"
    names[:] = ["b", "c"]  # a was replaced by c: its seat is free, b stays where it was
    with dial(first) as one, dial(second) as two:
        assert [one.recv(10), two.recv(10)] == [b"c" if name == b"a" else name for name in before]
    assert forwards.target_of("service") == target


def test_a_pod_that_dies_breaks_its_connections_and_the_next_goes_to_its_successor(
    world: tuple[list[str], list[Echo], Forwards],
) -> None:
    names, made, forwards = world
    address = forwards.target_of("10.0.0.7:7070")
    with dial(address) as one:
        assert one.recv(10) == b"a"
        made[0].die()
        assert one.recv(10) == b""
    names[:] = []
    with dial(address) as nobody:
        assert nobody.recv(10) == b"", "closed at once, so that whoever dials tries again"
    names[:] = ["z"]
    with dial(address) as successor:
        assert successor.recv(10) == b"z"


def test_a_tunnel_that_came_too_late_serves_the_next_dialer() -> None:
    ready, made = threading.Event(), list[Echo]()

    def connect() -> Echo:
        made.append(Echo("a"))
        ready.wait(5)
        return made[-1]

    forward = Forward(connect)  # type: ignore[arg-type,return-value]
    with dial(forward.address) as impatient:
        impatient.sendall(b"is anybody there?")
        while not made:
            time.sleep(0.001)
    ready.set()
    while forward._spare is None:
        time.sleep(0.001)
    with dial(forward.address) as next_one:
        next_one.sendall(b"hello")
        said = b""
        while len(said) < len(b"aHELLO"):
            said += next_one.recv(10)
        assert said == b"aHELLO"
    forward.close()
    assert len(made) == 1


def test_what_is_not_needed_any_more_is_closed(world: tuple[list[str], list[Echo], Forwards]) -> None:
    _, _, forwards = world
    pod, service = (
        forwards.target_of("10.0.0.7:7070"),
        forwards.target_of("service").removeprefix("ipv4:").split(",")[0],
    )
    with dial(pod) as one:
        assert one.recv(10) == b"a"
        forwards.keep_only([])
        assert one.recv(10) == b""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            dial(pod).close()
        except ConnectionRefusedError:
            break
    else:
        raise AssertionError("the port is still open")
    dial(service).close()


# --- workers
# ------------------------------------------------------------------------------------------------------------

TEMPLATE = """
metadata:
  name: scar-worker
  labels: {app.kubernetes.io/instance: scar}
spec:
  replicas: 0
  template:
    spec:
      containers:
        - name: worker
          image: scar:1
          env:
            - {name: SCAR_RECOVERY, value: "scar-recovery:7070"}
            - {name: SCAR_START, value: "no"}
            - {name: SCAR_TRAIN, value: /etc/scar/training/train.py}
          volumeMounts: [{name: training, mountPath: /etc/scar/training}]
      volumes:
        - {name: tmp, emptyDir: {}}
        - {name: training, configMap: {name: scar-training}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my model.py"
    path.write_text("job = 1\n")
    return path


def test_the_template_is_filled_in(file: Path) -> None:
    template = yaml.safe_load(TEMPLATE)
    owner = {"kind": "ConfigMap", "name": "scar-worker-template", "uid": "1"}
    made = fill_template(template, Work(JOB_OF_TEST, file, "me/model:2"), "scar-worker-file", owner)
    assert made["metadata"]["ownerReferences"] == [owner], "it goes with the release"
    assert made["metadata"]["annotations"] == {JOB: "digits", FILE: hashlib.sha256(b"job = 1\n").hexdigest()}
    spec = made["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert environment == {
        "SCAR_RECOVERY": "scar-recovery:7070",
        "SCAR_TRAIN": "/etc/scar/training/my_model.py",
        "SCAR_ARGUMENTS": "",
        "SCAR_JOB": "digits",
        "SCAR_START": "auto",
        "SCAR_WORKERS": "3",
        "SCAR_SHARDS": "2",
    }
    assert len(container["env"]) == len(environment)
    assert container["image"] == "me/model:2"
    assert spec["volumes"] == [
        {"name": "tmp", "emptyDir": {}},
        {"name": "training", "configMap": {"name": "scar-worker-file"}},
    ]
    assert made["spec"]["replicas"] == 0, "nobody runs before the job is started"
    assert template == yaml.safe_load(TEMPLATE), "the template is left as it was"
    assert (
        fill_template(template, Work(JOB_OF_TEST, file), "f", owner)["spec"]["template"]["spec"][
            "containers"
        ][0]["image"]
        == "scar:1"
    )


def test_a_file_that_no_config_map_holds(file: Path) -> None:
    file.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(ConfigError, match="900 KiB") as caught:
        Work(JOB_OF_TEST, file).text()
    assert "--image" in caught.value.next_step


# --- what is missing
# --------------------------------------------------------------------------------------------------------

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts:
  - {name: here, context: {cluster: c, user: u, namespace: mine}}
  - {name: there, context: {cluster: c, user: u}}
"""


def find(where: Where, monkeypatch: pytest.MonkeyPatch, path: Path) -> Exception:
    """What is said when a release is looked for with this kubeconfig."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller looks at it
        Release.find(where)
    return caught.value


def test_no_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    error = find(Where(), monkeypatch, tmp_path / "none")
    assert "no usable kubeconfig" in str(error)
    assert "KUBECONFIG" in str(error)


def test_no_such_context_names_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    error = find(Where(context="prod"), monkeypatch, tmp_path / "config")
    assert "no context 'prod'" in str(error)
    assert "here, there" in str(error)


def test_an_api_server_that_is_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    error = find(Where(), monkeypatch, tmp_path / "config")
    assert "API server of context 'here' does not answer" in str(error)
    assert "refused" in str(error)


class FakeApi:
    """A cluster with two releases in one namespace."""

    context, namespace = "here", "mine"

    def __init__(self, _context: str = "") -> None:
        self.core = Made(list_namespaced_service="services", read_namespace="namespace")

    def ask(self, _what: str, method: object, namespace: str, **options: object) -> object:
        if method == "namespace":
            if namespace == "gone":
                raise KeyError(namespace)
            return None
        names = {"mine": ["one", "two"], "single": ["scar"]}.get(namespace, [])
        return Made(
            items=[
                Made(
                    metadata=Made(
                        name=f"{name}-scar-recovery",
                        labels={"app.kubernetes.io/instance": name},
                        annotations=None,
                    )
                )
                for name in names
            ]
        )


@pytest.fixture
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scar_kube.release.Api", FakeApi)


@pytest.mark.usefixtures("_fake")
def test_the_only_release_need_not_be_named() -> None:
    release = Release.find(Where(namespace="single"))
    assert (release.name, release.fullname) == ("scar", "scar-scar")


@pytest.mark.usefixtures("_fake")
@pytest.mark.parametrize(
    ("where", "words"),
    [
        (Where(), ["2 releases", "--release", "one, two"]),
        (Where(release="three"), ["no release 'three'", "one, two"]),
        (Where(namespace="empty"), ["has no release", "helm install"]),
        (Where(namespace="gone"), ["no namespace 'gone'", "--namespace"]),
    ],
)
def test_what_to_do_when_it_is_not_there(where: Where, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        Release.find(where)
    for word in words:
        assert word in str(caught.value)


def test_the_real_api_has_the_interface_of_the_fake() -> None:
    assert {name for name in vars(FakeApi) if not name.startswith("_")} <= {
        *vars(Api),
        "context",
        "namespace",
    }
