"""Timing: one interval, from which the others follow in an order that the protocol needs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import scar
from scar.errors import ConfigError
from scar.wire.timing import HEARTBEAT, TIMING, Timing, heartbeat_seconds
from scar_detector.core.policy import DetectorPolicy
from scar_runtime.process.config import ServiceSettings, load_settings

DERIVED = sorted(name for name, kind in vars(Timing).items() if isinstance(kind, property))


@pytest.mark.parametrize("name", DERIVED)
def test_everything_grows_with_the_heartbeat(name: str) -> None:
    assert getattr(Timing(0.3), name) == pytest.approx(3 * getattr(Timing(0.1), name))


def test_the_times_that_the_documents_name() -> None:
    named = {"lease": 2.0, "hung": 2.5, "leader_lease": 1.0, "deviation": 0.05, "patience": 1.5}
    named |= {"probe_timeout": 0.4, "beat_timeout": 0.3, "redis_timeout": 0.2, "own_pause": 1.0}
    assert {name: getattr(TIMING, name) for name in named} == pytest.approx(named)
    assert TIMING.heartbeat == 0.1


def test_all_paths_of_a_heartbeat_fit_into_a_lease() -> None:
    assert TIMING.redis_timeout + 2 * TIMING.beat_timeout + TIMING.heartbeat < TIMING.lease


def test_a_death_is_suspected_before_the_lease_ends_and_a_hung_thread_after_it() -> None:
    suspicion = TIMING.heartbeat + 5.6 * TIMING.deviation
    assert TIMING.heartbeat < suspicion < TIMING.patience < TIMING.lease < TIMING.hung
    assert TIMING.remember(60.0) == 120.0
    assert TIMING.remember(TIMING.lease) > 2 * TIMING.lease


def test_settings_and_the_detectors_policy_take_their_defaults_from_it() -> None:
    assert ServiceSettings.model_fields["lease_seconds"].default == TIMING.lease
    policy = DetectorPolicy()
    assert (policy.floor, policy.patience, policy.pause) == (
        TIMING.deviation,
        TIMING.patience,
        TIMING.own_pause,
    )


def test_a_process_is_told_its_heartbeat_and_takes_all_times_from_it() -> None:
    show = (
        "from scar_detector.service import DetectorSettings as D; from scar_recovery.config import"
        " RecoverySettings as R; from scar_detector.prober import PROBE_SECONDS as P;"
        "print(D().lease_seconds, D().phi_floor, D().patience_seconds, R().leader_seconds, P)"
    )
    for seconds, times in (
        ("0.5", [10, 0.25, 7.5, 5, 2]),
        ("2", [40, 1, 30, 20, 8]),
        ("", [2, 0.05, 1.5, 1, 0.4]),
    ):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), HEARTBEAT: seconds}
        said = subprocess.run(
            [sys.executable, "-c", show], env=environment, capture_output=True, text=True, check=True
        )
        assert [float(one) for one in said.stdout.split()] == pytest.approx(times)


@pytest.mark.parametrize("given", ["soon", "nan", "0", "-1", "0.01", "3", "inf"])
def test_a_heartbeat_that_cannot_be_is_refused_by_name(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=f"{HEARTBEAT} is '{given}'"):
        heartbeat_seconds({HEARTBEAT: given})
    monkeypatch.setenv(HEARTBEAT, given)
    with pytest.raises(ConfigError, match=HEARTBEAT):
        load_settings(ServiceSettings, [])
    with pytest.raises(ConfigError, match=HEARTBEAT):
        scar.join("127.0.0.1:1", "worker-0")
