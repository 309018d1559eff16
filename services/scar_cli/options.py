"""Options that several commands have, and how a command gets them: as arguments or as one request."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from scar.errors import ConfigError
from scar_cli.cluster_ref import ClusterRef
from scar_cli.output import OutputFormat
from scar_kube.where import Where
from scar_runtime.store.schemes import URL_EXAMPLES

PANEL = "Where"
REF = "ref"  # the parameter or field that the options of SHARED make

Command = Callable[..., None]
Request = TypeVar("Request")

OutputOption = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="text for people, json for programs.")
]
StoreUrl = Annotated[
    str,
    typer.Option("--store", metavar="URL", help=f"{URL_EXAMPLES}; default: the cluster's."),
]
RedisUrl = Annotated[
    str, typer.Option(metavar="URL", help="A Redis that runs, redis://host:port/0; default: one of its own.")
]
# as services and the chart's test are told; an argument would show their passwords to whoever lists processes
CheckedStore = Annotated[
    str,
    typer.Option(
        "--store", metavar="URL", envvar="SCAR_STORE", help=f"{URL_EXAMPLES}; default: the cluster's."
    ),
]
CheckedRedis = Annotated[
    str,
    typer.Option(
        "--redis", metavar="URL", envvar="SCAR_REDIS", help="redis://host:port/0; default: the cluster's."
    ),
]
ClusterName = Annotated[
    str, typer.Option("--cluster", "-c", metavar="NAME", help="The cluster in ./.scar/NAME.")
]
JobName = Annotated[
    str,
    typer.Option(
        "--job", metavar="NAME", help="The job; default: the cluster's, or the only one in the store."
    ),
]
ShardCount = Annotated[
    int | None, typer.Option(min=1, help="Parameter server shards; default: what the job asks for, or 4.")
]
StoryOf = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Instead: why this process did what it did, by its last events: ps-0, recovery-0, ...",
    ),
]
LastEvents = Annotated[int, typer.Option(min=0, help="Events of a story at most; 0: all that are kept.")]
RecordedOnly = Annotated[bool, typer.Option("--recorded", help="Run nothing; report what is recorded.")]


class RunsOn(StrEnum):
    """Where a cluster runs."""

    local = "local"
    kubernetes = "kubernetes"


def _where_option(text: str, *names: str, metavar: str | None = None, envvar: str | None = None) -> Any:
    return typer.Option(*names, metavar=metavar, envvar=envvar, help=text, rich_help_panel=PANEL)


SHARED: dict[str, tuple[Any, object]] = {
    "cluster": (
        Annotated[str, _where_option("The cluster in ./.scar/NAME.", "--cluster", "-c", metavar="NAME")],
        "local",
    ),
    "recovery": (
        Annotated[
            str,
            _where_option(
                "A cluster elsewhere, by its recovery coordinator.",
                metavar="HOST:PORT",
                envvar="SCAR_RECOVERY",
            ),
        ],
        "",
    ),
    "on": (
        Annotated[RunsOn, _where_option("kubernetes: a release of the chart, reached by the kubeconfig.")],
        RunsOn.local,
    ),
    "context": (
        Annotated[str, _where_option("Context of the kubeconfig; default: the current one.", metavar="NAME")],
        "",
    ),
    "namespace": (
        Annotated[
            str,
            _where_option(
                "The release's namespace; default: the context's.", "--namespace", "-n", metavar="NAME"
            ),
        ],
        "",
    ),
    "release": (
        Annotated[str, _where_option("The release; default: the only one in the namespace.", metavar="NAME")],
        "",
    ),
}


def with_cluster(*, recovery: bool = False) -> Callable[[Command], Command]:
    """Give a command the options of :data:`SHARED`; it gets what they say as ``ref``.

    ``recovery``: --recovery is one of them.
    """
    shared = _shared_options(recovery)

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters.values()

        def run(**given: Any) -> None:
            ref = cluster_ref_of(**{name: given.pop(name) for name in shared})
            command(ref=ref, **given)

        return _with_parameters(command, run, [*_keyword_only(own), *_shared_parameters(shared)])

    return decorate


def with_request(
    request: type[Request], *, recovery: bool = False
) -> Callable[[Callable[[Request], None]], Command]:
    """Give a command one option for each field of a dataclass; it gets an instance of it.

    A field ``ref`` becomes the options of :data:`SHARED`. ``recovery``: --recovery is one of them.
    """
    own = _field_parameters(request)
    has_ref = any(one.name == REF for one in fields(request))  # type: ignore[arg-type]
    shared = _shared_options(recovery) if has_ref else {}

    def decorate(command: Callable[[Request], None]) -> Command:
        def run(**given: Any) -> None:
            if shared:
                given[REF] = cluster_ref_of(**{name: given.pop(name) for name in shared})
            command(request(**given))

        return _with_parameters(command, run, [*own, *_shared_parameters(shared)])

    return decorate


def _shared_options(recovery: bool) -> dict[str, tuple[Any, object]]:
    return {name: made for name, made in SHARED.items() if name != "recovery" or recovery}


def _shared_parameters(shared: dict[str, tuple[Any, object]]) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in shared.items()
    ]


def _keyword_only(parameters: Any) -> list[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    return [one.replace(kind=kind) for one in parameters if one.name != REF]


def _field_parameters(request: type[Any]) -> list[inspect.Parameter]:
    kinds = get_type_hints(request, include_extras=True)
    found = []
    for field in fields(request):
        if field.name != REF:
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            found.append(
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=kinds[field.name],
                )
            )
    return found


def _with_parameters(
    command: Callable[..., None], run: Command, parameters: list[inspect.Parameter]
) -> Command:
    """``run`` under the name and the help of ``command``, with these parameters for typer to read."""
    made = wraps(command)(run)
    made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    made.__annotations__ = {one.name: one.annotation for one in parameters}
    return made


def cluster_ref_of(
    cluster: str, on: RunsOn, context: str, namespace: str, release: str, recovery: str = ""
) -> ClusterRef:
    """The cluster that the options mean; a context, a namespace or a release is enough to mean Kubernetes.

    Raises :class:`ConfigError` when two clusters are named.
    """
    if on is RunsOn.local and not (context or namespace or release):
        return ClusterRef(cluster, recovery)
    if recovery or cluster != "local":
        raise ConfigError(
            "a cluster on this machine and a release on Kubernetes are named at once", "Leave out one of them"
        )
    return ClusterRef(release=Where(context, namespace, release))


def unwrap_paragraphs(function: Callable[..., object]) -> str:
    """The docstring with each paragraph as one line: the terminal, not the source, says where lines end."""
    text = inspect.getdoc(function) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
