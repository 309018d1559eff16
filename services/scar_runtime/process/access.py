"""Who may call what: it stands at each method in ``proto/`` as the option ``callers``. Who has the token of a
cluster on one machine may call all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import grpc
from google.protobuf import descriptor_pool

from scar.errors import PermissionDenied
from scar.v1 import callers_pb2
from scar.wire.certificates import TlsIdentity
from scar.wire.cluster_token import TOKEN_FILE
from scar.wire.credentials import caller_identity, has_token

CallerCheck = Callable[[grpc.ServicerContext, str], None]  # of a call, and its method: "Recovery/Join"


@cache
def allowed_roles(method: str) -> frozenset[str]:
    """Roles that may call ``Service/Method`` of scar.v1; empty: nobody, as for what is not declared."""
    try:
        known = descriptor_pool.Default().FindMethodByName(f"scar.v1.{method.replace('/', '.')}")
    except KeyError:
        return frozenset()
    roles = known.GetOptions().Extensions[callers_pb2.callers].roles
    return frozenset(callers_pb2.Callers.CallerRole.Name(role).lower() for role in roles)


def check_nobody(_context: grpc.ServicerContext, _method: str) -> None:
    """Without TLS and token nobody is known, so everybody may call."""


def caller_check(own: TlsIdentity | None, token: str = "") -> CallerCheck:
    """A check for servers of this identity, which raises :class:`PermissionDenied`; None: TLS is off, and
    ``token`` is what a call has to carry (empty: nothing).
    """
    if own is None:
        return _token_check(token) if token else check_nobody

    def check(context: grpc.ServicerContext, method: str) -> None:
        caller = caller_identity(context)
        if caller is None or caller.cluster != own.cluster:
            who = f"{caller.name} of another cluster" if caller else "a certificate without one of our names"
            raise PermissionDenied(f"{who} may call nothing of {own.cluster}")
        allowed = allowed_roles(method)
        if caller.role not in allowed:
            raise PermissionDenied(
                f"the role {caller.role} may not call {method}",
                f"Call it with a certificate of the role {' or '.join(sorted(allowed)) or '(none may)'}",
            )

    return check


def _token_check(token: str) -> CallerCheck:
    def check(context: grpc.ServicerContext, method: str) -> None:
        if not has_token(context, token):
            raise PermissionDenied(
                f"{method} was called without the token of this cluster, the file `token` in its folder",
                f"Call it by `scar` where that folder is .scar/local, or set {TOKEN_FILE} to the file",
            )

    return check
