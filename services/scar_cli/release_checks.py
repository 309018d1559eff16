"""`scar doctor --on kubernetes`: can a release be reached and used from here, and is it well?"""

from __future__ import annotations

import os
from collections.abc import Callable

from scar.errors import ScarError
from scar_cli.certificate_checks import BY_CHART, check_certificates
from scar_cli.checks import HealthCheck, check_cluster, check_redis, check_store
from scar_cli.clusters import ReleaseTarget, find_release
from scar_kube.release import Release
from scar_kube.where import Where

RIGHTS = (
    ("list", "pods", "look at it"),
    ("create", "pods/portforward", "look at it"),
    ("get", "secrets", "read its checkpoints, and to be its operator where it has TLS"),
    ("create", "configmaps", "train on it"),
    ("create", "statefulsets", "train on it"),
    ("create", "pods/exec", "use `scar kill`"),
)


def check_release(where: Where) -> list[HealthCheck]:
    """First what everything else needs; when that is missing, nothing else is asked."""
    try:
        release = find_release(where)
    except ScarError as error:
        return [HealthCheck("release", "fail", error.message, error.next_step)]
    found = [HealthCheck("release", "ok", str(release))]
    for what in (_rights, _tls, _pods, _store, _redis, _services):
        found += _run_check(what, release)
    return found


def _run_check(check: Callable[[Release], list[HealthCheck]], release: Release) -> list[HealthCheck]:
    try:
        return check(release)
    except ScarError as error:
        return [HealthCheck(check.__name__.strip("_"), "fail", error.message, error.next_step)]


def _rights(release: Release) -> list[HealthCheck]:
    missing = [
        (verb, what, use)
        for verb, what, use in RIGHTS
        if not release.api.is_allowed(release.namespace, verb, what)
    ]
    if not missing:
        return [HealthCheck("rights", "ok", "enough to look, train, read checkpoints and break things")]
    return [
        HealthCheck(
            "rights", "warn", f"you may not {verb} {what}: needed to {use}", "Ask for a role that allows it"
        )
        for verb, what, use in missing
    ]


def _tls(release: Release) -> list[HealthCheck]:
    release.operator.become()
    return check_certificates(None, BY_CHART)


def _pods(release: Release) -> list[HealthCheck]:
    ill = [pod for pod in release.pods() if not pod.running]
    found = [
        HealthCheck(
            "pod",
            "fail",
            f"{pod.name}: {pod.state}",
            f"See `kubectl describe pod {pod.name} -n {release.namespace}`",
        )
        for pod in ill
    ]
    return found or [HealthCheck("pods", "ok", f"all {len(release.pods())} run")]


def _store(release: Release) -> list[HealthCheck]:
    url, credentials = release.store()
    os.environ.update(credentials)
    return [check_store(url)]


def _redis(release: Release) -> list[HealthCheck]:
    return [check_redis(release.redis())]


def _services(release: Release) -> list[HealthCheck]:
    return check_cluster(ReleaseTarget(release))
