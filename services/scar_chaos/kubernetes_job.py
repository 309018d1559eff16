"""Chaos on a release, asked for from outside: starts a Job like the chart's CronJob, and follows it."""

from __future__ import annotations

import secrets
import shlex
import subprocess
import time
from typing import Any

from kubernetes import client
from rich.console import Console

from scar.errors import ConfigError, ScarError, Unreachable
from scar_chaos.options import ChaosOptions
from scar_chaos.targets.node_control import NodeCommand, serve_node_request
from scar_kube.release import Release
from scar_kube.where import Where

LOOK = 0.2  # seconds between two looks
NODE_SECONDS = 50.0  # for a command that stops or starts a node


def launch_job(options: ChaosOptions, where: Where, node_stop: str, node_start: str) -> bool:
    """Whether every run passed.

    ``node_stop``, ``node_start``: commands for nodes, with {node}; empty: nodes are let alone. Raises
    :class:`ConfigError` when there is no such release, or no chaos on it.
    """
    if bool(node_stop) != bool(node_start):
        raise ConfigError(
            "one of the two commands is missing, so no node could be stopped and started again",
            "Give both: --node-stop-command, --node-start-command",
        )
    commands = {"stop": node_stop, "start": node_start}

    def carry_out(verb: str, node: str) -> None:
        _run_command(commands[verb], node)

    with Release.find(where) as release:
        job = _ChaosJob(release, _arguments(options), bool(node_stop))
        Console(stderr=True).print(f"job {job.name} on {release}", soft_wrap=True)
        return job.follow(carry_out)


def _arguments(options: ChaosOptions) -> list[str]:
    given = {
        "seed": options.seed,
        "runs": options.runs,
        "groups": options.groups,
        "workers": options.workers,
        "output": options.output,
        "strategy": options.strategy or None,
        "profile": options.profile if options.profile != "default" else None,
    }
    arguments = ["python", "-m", "scar_chaos", "--on", "kubernetes"]
    for name, value in given.items():
        if value is not None:
            arguments += [f"--{name}", str(value)]
    for fault in options.faults:
        arguments += ["--fault", fault]
    return arguments


def _run_command(command: str, node: str) -> None:
    """Raises :class:`ConfigError` with what the command said."""
    words = [word.replace("{node}", node) for word in shlex.split(command)]
    try:
        subprocess.run(words, check=True, timeout=NODE_SECONDS, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        said = error.stderr or error.stdout
        raise ConfigError(f"{shlex.join(words)} failed: {said}", "Correct the command") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{shlex.join(words)} failed: {error}", "Correct the command") from error


class _ChaosJob:
    """``stops_nodes``: it may ask for nodes to be stopped, in a ConfigMap of its own."""

    def __init__(self, release: Release, arguments: list[str], stops_nodes: bool) -> None:
        self._release = release
        self._api = release.api
        self._namespace = release.namespace
        self._batch = client.BatchV1Api(release.api.core.api_client)
        self.name = f"{release.fullname}-chaos-{secrets.token_hex(3)}"
        self._node_requests = f"{self.name}-nodes"
        self._nodes: set[str] = set()  # on which the release has been seen
        self._shown = 0  # characters of its log
        if stops_nodes:
            arguments = [*arguments, "--nodes", self._node_requests]
        body = self._make_body(arguments)
        self._api.ask("create a chaos job", self._batch.create_namespaced_job, self._namespace, body)

    def _make_body(self, arguments: list[str]) -> Any:
        """Like the jobs of the release's CronJob, with other arguments."""
        name = f"{self._release.fullname}-chaos"
        try:
            found = self._api.ask(
                "read the chaos job", self._batch.read_namespaced_cron_job, name, self._namespace
            )
        except KeyError as error:
            raise ConfigError(
                f"{self._release} allows no chaos",
                "Allow it by `helm upgrade --reuse-values --set chaos.enabled=true`",
            ) from error
        spec = found.spec.job_template.spec
        spec.template.spec.containers[0].args = arguments
        reference = client.V1OwnerReference(
            api_version="batch/v1", kind="CronJob", name=name, uid=found.metadata.uid
        )
        meta = client.V1ObjectMeta(
            name=self.name, labels=found.spec.job_template.metadata.labels, owner_references=[reference]
        )
        return client.V1Job(metadata=meta, spec=spec)

    def follow(self, carry_out: NodeCommand) -> bool:
        """Show its output and carry out its requests for nodes until it ends; whether it passed."""
        while True:
            try:
                passed = self._passed()
                self._show_log()
                requests = self._node_requests
                serve_node_request(self._api, requests, self._namespace, carry_out, self._find_nodes)
            except Unreachable:
                passed = None  # the next look may be luckier
            if passed is not None:
                return passed
            time.sleep(LOOK)

    def _find_nodes(self) -> set[str]:
        """Also those that it has left, because they were stopped."""
        selector = f"app.kubernetes.io/instance={self._release.name}"
        list_pods = self._api.core.list_namespaced_pod
        pods = self._api.ask("list pods", list_pods, self._namespace, label_selector=selector).items
        self._nodes |= {pod.spec.node_name for pod in pods if pod.spec.node_name}
        return self._nodes

    def _passed(self) -> bool | None:
        """None: it runs."""
        read_status = self._batch.read_namespaced_job_status
        status = self._api.ask("read the job", read_status, self.name, self._namespace).status
        if not (status.succeeded or status.failed):
            return None
        return bool(status.succeeded)

    def _show_log(self) -> None:
        """What is new in the log of its pod."""
        core = self._api.core
        namespace = self._namespace
        selector = f"job-name={self.name}"
        pods = self._api.ask("list pods", core.list_namespaced_pod, namespace, label_selector=selector).items
        try:
            pod = pods[0].metadata.name
            log = self._api.ask("read its log", core.read_namespaced_pod_log, pod, namespace)
        except (IndexError, KeyError, ScarError):  # it has not started
            return
        if fresh := log[self._shown :]:
            self._shown = len(log)
            Console(soft_wrap=True).print(fresh, end="", markup=False, highlight=False)
