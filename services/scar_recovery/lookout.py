"""Lets the leading coordinator act on what a :class:`Witness` knows: at once, and as carefully as on the detector's word."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from scar.placement import Member
from scar_recovery.config import RecoverySettings
from scar_recovery.podwatch import PodWatch, in_kubernetes
from scar_recovery.witness import Finding, Witness

if TYPE_CHECKING:
    from scar_recovery.term import Term
    from scar_runtime.app import App

LOOK_SECONDS = 0.5  # between looks when nothing has changed: members come and go, too

_log = logging.getLogger(__name__)


class Lookout:
    """``term``: the current leadership; None on standby, when there is nothing to do."""

    def __init__(self, settings: RecoverySettings, term: Callable[[], Term | None]) -> None:
        self._settings, self._term = settings, term
        self._witness = Witness(settings.notices)
        self._lock = threading.Lock()
        self._changed = threading.Event()

    def start(self, app: App) -> None:
        """Watch from here on, if this process is in Kubernetes and may."""
        if self._settings.kubernetes == "off" or not in_kubernetes():
            return
        try:
            watch = PodWatch(self._witness, self._lock, self._settings.cluster, self._changed.set)
        except ImportError:
            _log.warning("kubernetes.missing", extra={"reason": "the package kubernetes is not installed"})
            return
        app.spawn("pods", lambda: watch.pods(app.stopping))
        app.spawn("nodes", lambda: watch.nodes(app.stopping))
        app.spawn("lookout", lambda: self.run(app.stopping))

    def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._changed.wait(LOOK_SECONDS)
            self._changed.clear()
            term = self._term()
            if term is not None and term.job is not None:
                self.look(term)

    def look(self, term: Term) -> None:
        """Act on what is new."""
        members = term.members()
        with self._lock:
            findings = self._witness.look(members, time.time())
        term.review()
        for finding in findings:
            self._act(term, finding)

    def goes(self, shard: Member) -> bool:
        """Was its pod asked to end, or is its node about to go? The term asks, also about every shard that joins."""
        with self._lock:
            return self._witness.goes(shard)

    @staticmethod
    def _act(term: Term, finding: Finding) -> None:
        dead = term.doubted(finding)
        _log.info(
            "pod.finding",
            extra={"key": finding.member.key, "proof": finding.proof, "evidence": finding.evidence, "dead": dead},
        )
