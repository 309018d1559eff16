"""`scar doctor --on kubernetes`: can a release be reached and used from here, and is it well?"""

from __future__ import annotations

import os
from collections.abc import Callable

from scar.errors import ScarError
from scar_cli.checks import Check, check_cluster, check_redis, check_store
from scar_cli.clusters import ReleaseTarget, find_release
from scar_kube.release import Release
from scar_kube.where import Where

RIGHTS = (
    ("list", "pods", "look at it"),
    ("create", "pods/portforward", "look at it"),
    ("get", "secrets", "read its checkpoints"),
    ("create", "configmaps", "train on it"),
    ("create", "statefulsets", "train on it"),
    ("create", "pods/exec", "use `scar kill`"),
)


def checks(where: Where) -> list[Check]:
    """First what everything else needs; when that is missing, nothing else is asked."""
    try:
        release = find_release(where)
    except ScarError as error:
        return [Check("release", "fail", error.message, error.next_step)]
    found = [Check("release", "ok", str(release))]
    for what in (_rights, _pods, _store, _redis, _services):
        found += _tried(what, release)
    return found


def _tried(check: Callable[[Release], list[Check]], release: Release) -> list[Check]:
    try:
        return check(release)
    except ScarError as error:
        return [Check(check.__name__.strip("_"), "fail", error.message, error.next_step)]


def _rights(release: Release) -> list[Check]:
    missing = [(verb, what, use) for verb, what, use in RIGHTS if not release.api.may(release.namespace, verb, what)]
    if not missing:
        return [Check("rights", "ok", "enough to look, train, read checkpoints and break things")]
    return [
        Check("rights", "warn", f"you may not {verb} {what}: needed to {use}", "Ask for a role that allows it")
        for verb, what, use in missing
    ]


def _pods(release: Release) -> list[Check]:
    ill = [pod for pod in release.pods() if not pod.running]
    found = [
        Check("pod", "fail", f"{pod.name}: {pod.state}", f"See `kubectl describe pod {pod.name} -n {release.namespace}`")
        for pod in ill
    ]
    return found or [Check("pods", "ok", f"all {len(release.pods())} run")]


def _store(release: Release) -> list[Check]:
    url, credentials = release.store()
    os.environ.update(credentials)
    return [check_store(url)]


def _redis(release: Release) -> list[Check]:
    return [check_redis(release.redis())]


def _services(release: Release) -> list[Check]:
    return check_cluster(ReleaseTarget(release))
