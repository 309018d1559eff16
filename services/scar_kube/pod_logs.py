"""The logs of a release's pods, read again and again through the API server."""

from __future__ import annotations

import math
import time
from datetime import datetime
from typing import Protocol

from scar.errors import ConfigError
from scar_admin.log_text import LogText
from scar_kube.api import Api
from scar_kube.pods import Pod

PODS = 20  # that one look asks for; of more, each in its turn
LINES = 200  # of one pod at a look
MARGIN_SECONDS = 2.0  # asked again, since clocks differ; what was seen is left out by its time


class LoggedRelease(Protocol):
    """A release, seen from anywhere."""

    api: Api
    namespace: str

    def pods(self) -> list[Pod]: ...


class PodLogs:
    """For one thread at a time."""

    def __init__(self, release: LoggedRelease) -> None:
        self._release = release
        self._allowed = False
        self._asked = dict[str, float]()  # by pod: when
        self._newest = dict[str, str]()  # by pod: the time of the last line, as the API server says it

    def read(self) -> list[LogText]:
        """At most :data:`LINES` of each pod.

        Raises :class:`ConfigError` for a context that may not read them, :class:`scar.errors.Unreachable`.
        """
        self._check_rights()
        pods = sorted(self._release.pods(), key=lambda pod: self._asked.get(pod.name, 0.0))
        names = {pod.name for pod in pods}
        self._newest = {name: seen for name, seen in self._newest.items() if name in names}
        self._asked = {name: at for name, at in self._asked.items() if name in names}
        return [line for pod in pods[:PODS] for line in self._read_pod(pod)]

    def _check_rights(self) -> None:
        release = self._release
        if not self._allowed and not release.api.is_allowed(release.namespace, "get", "pods/log"):
            raise ConfigError(
                f"context {release.api.context!r} may not read the logs of pods in namespace"
                f" {release.namespace}",
                "Ask for the right to get pods/log, or choose another context by --context",
            )
        self._allowed = True

    def _read_pod(self, pod: Pod) -> list[LogText]:
        """Nothing of one whose container has not begun, or that is gone."""
        now = time.monotonic()
        before = self._asked.get(pod.name)
        since = {} if before is None else {"since_seconds": math.ceil(now - before + MARGIN_SECONDS)}
        self._asked[pod.name] = now
        try:
            text = self._release.api.ask(
                f"read the log of pod {pod.name}",
                self._release.api.core.read_namespaced_pod_log,
                pod.name,
                self._release.namespace,
                container=pod.component,
                timestamps=True,
                tail_lines=LINES,
                **since,
            )
        except (KeyError, ConfigError):
            return []
        stamped = [line.partition(" ") for line in str(text).splitlines()]
        fresh = [(stamp, said) for stamp, _, said in stamped if stamp > self._newest.get(pod.name, "")]
        if fresh:
            self._newest[pod.name] = fresh[-1][0]
        return [LogText(pod.name, said, _seconds(stamp)) for stamp, said in fresh]


def _seconds(stamp: str) -> float:
    """Since 1970; 0: this is no time."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return 0.0
