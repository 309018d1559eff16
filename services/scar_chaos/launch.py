"""Chaos on a release, asked for from outside: starts a Job like those of the chart's CronJob, and follows it to its end."""

from __future__ import annotations

import secrets
import shlex
import subprocess
import time
from typing import Any

from kubernetes import client
from rich.console import Console

from scar.errors import ConfigError, ScarError, Unreachable
from scar_chaos.nodes import serve
from scar_chaos.plans import Wish
from scar_kube.release import Release
from scar_kube.where import Where

LOOK = 0.2  # seconds between two looks
NODE_SECONDS = 50.0  # for a command that stops or starts a node


def launch(wish: Wish, where: Where, stop: str, start: str) -> bool:
    """``stop``, ``start``: commands for nodes, with {node}; empty: nodes are let alone. True: every run passed.

    Raises :class:`ConfigError` when there is no such release, or no chaos on it.
    """
    if bool(stop) != bool(start):
        raise ConfigError("a node would be stopped for ever, or never", "Give both: --node-stop-command, --node-start-command")
    with Release.find(where) as release:
        job = _Job(release, _arguments(wish), bool(stop))
        Console(stderr=True).print(f"job {job.name} on {release}", soft_wrap=True)
        commands = {"stop": stop, "start": start}
        return job.follow(lambda verb, node: _carry(commands[verb], node))


def _arguments(wish: Wish) -> list[str]:
    given = {"seed": wish.seed, "runs": wish.runs, "groups": wish.groups, "workers": wish.workers, "output": wish.output}
    found = ["python", "-m", "scar_chaos", "--on", "kubernetes"]
    for name, value in given.items():
        found += [f"--{name}", str(value)] if value is not None else []
    found += ["--strategy", wish.strategy] if wish.strategy else []
    for fault in wish.faults:
        found += ["--fault", fault]
    return found


def _carry(command: str, node: str) -> None:
    """Raises :class:`ConfigError` with what the command said."""
    words = [word.replace("{node}", node) for word in shlex.split(command)]
    try:
        subprocess.run(words, check=True, timeout=NODE_SECONDS, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"{shlex.join(words)} failed: {error.stderr or error.stdout}", "Mend the command") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{shlex.join(words)} failed: {error}", "Mend the command") from error


class _Job:
    """``nodes``: it may ask for nodes to be stopped, in a ConfigMap of its own."""

    def __init__(self, release: Release, arguments: list[str], nodes: bool) -> None:
        self._release, self._api, self._namespace = release, release.api, release.namespace
        self._batch = client.BatchV1Api(release.api.core.api_client)
        self.name = f"{release.fullname}-chaos-{secrets.token_hex(3)}"
        self._shown, self._requests = 0, f"{self.name}-nodes"
        body = self._made(arguments + (["--nodes", self._requests] if nodes else []))
        self._api.ask("create a chaos job", self._batch.create_namespaced_job, self._namespace, body)

    def _made(self, arguments: list[str]) -> Any:
        name = f"{self._release.fullname}-chaos"
        try:
            found = self._api.ask("read the chaos job", self._batch.read_namespaced_cron_job, name, self._namespace)
        except KeyError as error:
            raise ConfigError(
                f"{self._release} allows no chaos", "Allow it by `helm upgrade --reuse-values --set chaos.enabled=true`"
            ) from error
        spec = found.spec.job_template.spec
        spec.template.spec.containers[0].args = arguments
        reference = client.V1OwnerReference(api_version="batch/v1", kind="CronJob", name=name, uid=found.metadata.uid)
        meta = client.V1ObjectMeta(name=self.name, labels=found.spec.job_template.metadata.labels, owner_references=[reference])
        return client.V1Job(metadata=meta, spec=spec)

    def follow(self, carry: Any) -> bool:
        """Until it ends: its output here, and its requests for nodes carried out."""
        while True:
            try:
                ended = self._ended()
                self._show()
                serve(self._api, self._requests, self._namespace, carry)
            except Unreachable:
                ended = None  # the next look may be luckier
            if ended is not None:
                return ended
            time.sleep(LOOK)

    def _ended(self) -> bool | None:
        """Whether it passed; None: it runs."""
        status = self._api.ask("read the job", self._batch.read_namespaced_job_status, self.name, self._namespace).status
        return None if not (status.succeeded or status.failed) else bool(status.succeeded)

    def _show(self) -> None:
        """What is new in the log of its pod."""
        pods = self._api.ask(
            "list pods", self._api.core.list_namespaced_pod, self._namespace, label_selector=f"job-name={self.name}"
        ).items
        try:
            log = self._api.ask("read its log", self._api.core.read_namespaced_pod_log, pods[0].metadata.name, self._namespace)
        except (IndexError, KeyError, ScarError):  # it has not started
            return
        if fresh := log[self._shown :]:
            self._shown = len(log)
            Console(soft_wrap=True).print(fresh, end="", markup=False, highlight=False)
