"""Lets the leading coordinator act on what a :class:`PodEvidence` knows: at once, and as carefully as on the
detector's word.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from scar.placement import Member
from scar_recovery.config import RecoverySettings
from scar_recovery.core.pod_evidence import PodEvidence, PodFinding
from scar_recovery.pod_watch import PodWatch, in_kubernetes

if TYPE_CHECKING:
    from scar_recovery.leader_session import RecoverySession
    from scar_runtime.process.app import App

LOOK_SECONDS = 0.5  # between looks when nothing has changed: members come and go, too

_log = logging.getLogger(__name__)


class PodMonitor:
    """``session``: the current leadership; None on standby, when there is nothing to do."""

    def __init__(self, settings: RecoverySettings, session: Callable[[], RecoverySession | None]) -> None:
        self._settings = settings
        self._session = session
        self._evidence = PodEvidence(settings.notices)
        self._lock = threading.Lock()
        self._changed = threading.Event()

    def start(self, app: App) -> None:
        """Watch from here on, if this process is in Kubernetes and may."""
        if self._settings.kubernetes == "off" or not self._settings.release or not in_kubernetes():
            return
        try:
            watch = PodWatch(self._evidence, self._lock, self._settings.release, self._changed.set)
        except ImportError:
            _log.warning("kubernetes.missing", extra={"reason": "the package kubernetes is not installed"})
            return
        app.spawn("pods", lambda: watch.follow_pods(app.stopping))
        app.spawn("nodes", lambda: watch.follow_nodes(app.stopping))
        app.spawn("lookout", lambda: self.run(app.stopping))

    def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._changed.wait(LOOK_SECONDS)
            self._changed.clear()
            session = self._session()
            if session is not None and session.jobs.job is not None:
                self.act_on_news(session)

    def act_on_news(self, session: RecoverySession) -> None:
        members = session.members.all_members()
        with self._lock:
            findings = self._evidence.find_news(members, time.time())
        session.members.review_shards()
        for finding in findings:
            self._report_finding(session, finding)

    def must_leave(self, shard: Member) -> bool:
        """Was its pod asked to end, or is its node about to go?

        The session asks, also about every shard that joins.
        """
        with self._lock:
            return self._evidence.must_leave(shard)

    @staticmethod
    def _report_finding(session: RecoverySession, finding: PodFinding) -> None:
        dead = session.members.report_pod(finding)
        _log.info(
            "pod.finding",
            extra={
                "key": finding.member.key,
                "proof": finding.proof,
                "evidence": finding.evidence,
                "dead": dead,
            },
        )
