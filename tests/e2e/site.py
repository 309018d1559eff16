"""Where the end-to-end tests run: a cluster that is there, or one that is made for them; and a namespace
of their own in it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.stream import stream

from scar.version import __version__
from scar_admin.status import ClusterStatus
from scar_kube.release import Release
from scar_kube.where import Where

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "scar"
TOOLS = ROOT / ".venv" / "tools"  # where `make tools` puts what is not on PATH
ENFORCED = "pod-security.kubernetes.io/enforce"
MAKE_SECONDS = 540.0  # to make a cluster and an image
READY_SECONDS = 360  # for all pods of a release, which an upgrade replaces one after the other
HELM_SECONDS = READY_SECONDS + 40.0
WAIT_SECONDS = 240.0  # on busy nodes, too
NO_CLUSTER = (
    "no Kubernetes: set KUBECONFIG, or install kind (or name a script like kind by SCAR_KUBE); nothing was"
    " tested on a cluster"
)
NO_HELM = "no helm: run `make tools`; NOTHING WAS TESTED ON A CLUSTER"


def missing() -> str:
    """Why nothing can be tested here; empty: it can."""
    if not any((os.environ.get("KUBECONFIG"), os.environ.get("SCAR_KUBE"), shutil.which("kind"))):
        return NO_CLUSTER
    return "" if helm() else NO_HELM


def helm() -> str:
    return shutil.which("helm") or shutil.which("helm", path=str(TOOLS)) or ""


def prepare() -> str:
    """Make what has to be made, point this process at the cluster, and return the image as its nodes know it.

    The cluster of KUBECONFIG has the image already: ``SCAR_IMAGE`` names it, else it is called as `make
    image` does. SCAR_KUBE names a script that makes a cluster and knows ``up``, ``base``, ``build`` and
    ``env``; else kind does it.
    """
    image = os.environ.get("SCAR_IMAGE", f"scar:{__version__}")
    if os.environ.get("KUBECONFIG"):
        return image
    if script := os.environ.get("SCAR_KUBE"):
        image = "scar:e2e"
        for command in (["up", "--nodes", "3"], ["base"], ["build", image, "-f", "docker/Dockerfile", "."]):
            subprocess.run([script, *command], cwd=ROOT, check=True, timeout=MAKE_SECONDS)
        ask = 'eval "$("$0" env)" && echo "$KUBECONFIG" && echo "$PATH"'
        told = subprocess.check_output(["bash", "-c", ask, script], text=True, timeout=60)
        os.environ["KUBECONFIG"], os.environ["PATH"] = told.splitlines()
        return image
    subprocess.run(["make", "kind"], cwd=ROOT, check=True, timeout=MAKE_SECONDS)
    return image


def prepare_next(image: str, name: str = "next") -> str:
    """Make an image of another version out of this one, by the Dockerfile of that ``name``, and return its
    name; empty: nobody can here.

    ``SCAR_NEXT_IMAGE``, ``SCAR_LATER_IMAGE``: one that the nodes have already. Call :func:`prepare` first.
    """
    if given := os.environ.get(f"SCAR_{name.upper()}_IMAGE"):
        return given
    made, file = f"{image.removesuffix('-next')}-{name}", f"tests/e2e/{name}.Dockerfile"
    if script := os.environ.get("SCAR_KUBE"):
        command = [script, "build", made, "--build-arg", f"PYTHON={image}", "-f", file, "tests/e2e"]
    elif shutil.which("kind") and not os.environ.get("KUBECONFIG"):
        command = [
            "make",
            "kind",
            f"IMAGE=docker.io/library/{made}",
            f"BASE=docker.io/library/{image}",
            f"DOCKERFILE={file}",
        ]
    else:
        return ""
    subprocess.run(command, cwd=ROOT, check=True, timeout=MAKE_SECONDS)
    return made


@dataclass
class Site:
    """``namespace``: made for one module of tests. ``image``: repository:tag."""

    namespace: str
    image: str
    release: str = "scar"

    def __post_init__(self) -> None:
        config.load_kube_config(os.environ.get("KUBECONFIG"))
        self.core, self.apps = client.CoreV1Api(), client.AppsV1Api()

    # --- doing
    # --------------------------------------------------------------------------------------------------------

    def helm(self, *arguments: str) -> str:
        command = [helm(), *arguments, "--namespace", self.namespace]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HELM_SECONDS)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def install(self, verb: str = "install", *flags: str, wait: bool = True, **values: str) -> float:
        """``values``: of the chart, with __ for the dots; ``flags``: of helm. Returns how many seconds it
        took until all was ready.
        """
        repository, _, tag = self.image.rpartition(":")
        told = {"image__repository": repository, "image__tag": tag, "chaos__enabled": "true", **values}
        options = [
            word for name, value in told.items() for word in ("--set", f"{name.replace('__', '.')}={value}")
        ]
        started = time.monotonic()
        ready = ("--wait", "--timeout", f"{READY_SECONDS}s") if wait else ()
        self.helm(verb, self.release, str(CHART), *options, *flags, *ready)
        return time.monotonic() - started

    def scar(self, *arguments: str) -> list[str]:
        where = ["--on", "kubernetes", "--namespace", self.namespace, "--release", self.release]
        return [sys.executable, "-m", "scar_cli", *arguments, *where]

    def run(self, *arguments: str, timeout: float = 240.0) -> str:
        """A command of the CLI on this release; what it says."""
        done = subprocess.run(
            self.scar(*arguments), capture_output=True, text=True, timeout=timeout, env=environment()
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def background(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on meanwhile; only watching it ends with the block."""
        process = subprocess.Popen(
            self.scar(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=10)

    @contextmanager
    def privileged(self) -> Iterator[None]:
        """Meanwhile the namespace admits any container."""
        self._admit("privileged")
        try:
            yield
        finally:
            self._admit("restricted")

    def _admit(self, level: str) -> None:
        self.core.patch_namespace(self.namespace, {"metadata": {"labels": {ENFORCED: level}}})

    # --- looking
    # --------------------------------------------------------------------------------------------------------

    def pods(self, component: str = "") -> dict[str, Any]:
        part = f",app.kubernetes.io/component={component}" if component else ""
        found = self.core.list_namespaced_pod(
            self.namespace, label_selector=f"app.kubernetes.io/instance={self.release}{part}"
        )
        return {pod.metadata.name: pod for pod in found.items}

    def python(self, pod: str, script: str, *arguments: str) -> str:
        """Run a script in a pod, whose container is named after its component; what it wrote."""
        container = self.core.read_namespaced_pod(pod, self.namespace).spec.containers[0].name
        said: str = stream(
            client.CoreV1Api(client.ApiClient()).connect_get_namespaced_pod_exec,
            pod,
            self.namespace,
            container=container,
            command=["python", "-c", script, *arguments],
            stderr=True,
            stdout=True,
            _request_timeout=WAIT_SECONDS,
        )
        return said

    def left(self) -> set[str]:
        """Names of all that is still there of the release, when what is going has gone."""
        batch, rights, net = client.BatchV1Api(), client.RbacAuthorizationV1Api(), client.NetworkingV1Api()
        lists = (
            self.core.list_namespaced_pod,
            self.core.list_namespaced_service,
            self.core.list_namespaced_config_map,
            self.core.list_namespaced_secret,
            self.core.list_namespaced_service_account,
            self.core.list_namespaced_persistent_volume_claim,
            self.apps.list_namespaced_stateful_set,
            self.apps.list_namespaced_deployment,
            batch.list_namespaced_job,
            batch.list_namespaced_cron_job,
            rights.list_namespaced_role,
            rights.list_namespaced_role_binding,
            net.list_namespaced_network_policy,
            client.PolicyV1Api().list_namespaced_pod_disruption_budget,
        )
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            names = {one.metadata.name for found in lists for one in found(self.namespace).items}
            if len(names) <= 4 or time.monotonic() > deadline:
                return names - {"kube-root-ca.crt", "default"}  # of every namespace
            time.sleep(0.5)

    def until(
        self, condition: Callable[[ClusterStatus], bool], what: str, timeout: float = WAIT_SECONDS
    ) -> ClusterStatus:
        """Look through port-forwards until ``condition`` holds."""
        deadline = time.monotonic() + timeout
        with (
            Release.find(Where(namespace=self.namespace, release=self.release)) as release,
            release.observer() as observer,
        ):
            while not condition(status := observer.read()):
                assert time.monotonic() < deadline, (
                    f"waited {timeout:g} s for {what}: {status.problems} {status.waits}"
                )
                time.sleep(0.3)
        return status


def environment() -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("sdk", "services"))}


@contextmanager
def settled(image: str) -> Iterator[Site]:
    """A namespace in which every pod must keep to the restricted security standard; gone afterwards, with
    all that is in it.
    """
    site = Site(f"scar-e2e-{secrets.token_hex(3)}", image)
    site.core.create_namespace({"metadata": {"name": site.namespace, "labels": {ENFORCED: "restricted"}}})
    try:
        yield site
    finally:
        site.core.delete_namespace(site.namespace)
