"""What a caller says of itself: checked before anything is made of it, or its address is dialled."""

from __future__ import annotations

import re
from dataclasses import dataclass

import grpc

from scar.errors import InvalidRequest, PermissionDenied
from scar.placement import Member
from scar.v1 import types_pb2
from scar.wire import codec
from scar.wire.credentials import caller_identity
from scar_runtime.process.addresses import caller_host, is_address, is_host_of


@dataclass(frozen=True)
class ClaimCheck:
    """``any_address``: members may be behind an address translation, so theirs need not be the caller's."""

    any_address: bool = False

    def read_member(self, message: types_pb2.Member, context: grpc.ServicerContext) -> Member:
        """Who calls, with an address that will be dialled."""
        member = self.read_caller(message, context)
        if member.address:
            self._check_address(member, caller_host(context.peer()))
        return member

    def read_caller(self, message: types_pb2.Member, context: grpc.ServicerContext) -> Member:
        """Who calls. Keys of members become names of objects in the store.

        Raises :class:`PermissionDenied` for a member of another role than the caller's certificate.
        """
        member = codec.member_from_proto(message)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", member.name):
            raise InvalidRequest(
                f"member name {member.name[:80]!r} is not valid",
                "Use 1 to 63 letters, digits, '_', '.', '-'",
            )
        if not re.fullmatch(r"[0-9a-f]{12}", member.incarnation):
            raise InvalidRequest(
                f"incarnation {member.incarnation[:80]!r} of {member.name} is not 12 hex digits"
            )
        caller = caller_identity(context)
        if caller is not None and caller.role != member.role.label:
            raise PermissionDenied(
                f"the role {caller.role} may not speak for {member.name}, which is a {member.role.label}",
                f"Call with a certificate of the role {member.role.label}",
            )
        return member

    def _check_address(self, member: Member, caller: str) -> None:
        """A caller may have the services dial itself and nobody else."""
        if not is_address(member.address):
            raise InvalidRequest(f"address {member.address[:80]!r} of {member.name} is not host:port")
        if caller and not self.any_address and not is_host_of(member.address, caller):
            raise InvalidRequest(
                f"{member.name} says that it is at {member.address}, but calls from {caller}",
                "Set its SCAR_ADVERTISE to an address of its machine; where addresses are translated, set"
                " SCAR_PEER_ADDRESSES=any for the recovery coordinator and the failure detector",
            )
