"""The options that say which cluster a command means: one set, shared by all commands that need it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any

import typer

from scar.errors import ConfigError
from scar_cli.places import Place
from scar_kube.where import Where

PANEL = "Where"


class On(StrEnum):
    """Where a cluster runs."""

    local = "local"
    kubernetes = "kubernetes"


def _option(text: str, *names: str, metavar: str | None = None, envvar: str | None = None) -> Any:
    return typer.Option(*names, metavar=metavar, envvar=envvar, help=text, rich_help_panel=PANEL)


SHARED: dict[str, tuple[Any, object]] = {
    "cluster": (Annotated[str, _option("The cluster in ./.scar/NAME.", "--cluster", "-c", metavar="NAME")], "local"),
    "recovery": (
        Annotated[
            str, _option("A cluster elsewhere, by its recovery coordinator.", metavar="HOST:PORT", envvar="SCAR_RECOVERY")
        ],
        "",
    ),
    "on": (Annotated[On, _option("kubernetes: a release of the chart, reached by the kubeconfig.")], On.local),
    "context": (Annotated[str, _option("Context of the kubeconfig; default: the current one.", metavar="NAME")], ""),
    "namespace": (
        Annotated[str, _option("The release's namespace; default: the context's.", "--namespace", "-n", metavar="NAME")],
        "",
    ),
    "release": (Annotated[str, _option("The release; default: the only one in the namespace.", metavar="NAME")], ""),
}


def placed(*, recovery: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of :data:`SHARED`; it gets what they say as ``place``. ``recovery``: with --recovery, too."""
    shared = {name: made for name, made in SHARED.items() if name != "recovery" or recovery}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "place"]

        @wraps(command)
        def run(**given: Any) -> None:
            chosen = {name: given.pop(name) for name in shared}
            command(place=place_of(**chosen), **given)

        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in shared.items()
        ]
        named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own] + more
        run.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in named}
        return run

    return decorate


def place_of(cluster: str, on: On, context: str, namespace: str, release: str, recovery: str = "") -> Place:
    """Naming a context, a namespace or a release is enough to mean Kubernetes. Raises :class:`ConfigError` for two places."""
    if on is On.local and not (context or namespace or release):
        return Place(cluster, recovery)
    if recovery or cluster != "local":
        raise ConfigError("a cluster on this machine and a release on Kubernetes are named at once", "Leave out one of them")
    return Place(release=Where(context, namespace, release))
