"""Who may call what: all methods of all services, with all roles."""

from __future__ import annotations

import importlib
import pkgutil
from itertools import product

import pytest

import scar.v1
from scar.errors import PermissionDenied
from scar.v1 import callers_pb2
from scar.wire.certificates import ROLES, TlsIdentity
from scar.wire.credentials import SUBJECT_NAMES, answering_role
from scar_runtime.process.access import allowed_roles, caller_check

MODULES = [
    importlib.import_module(f"scar.v1.{one.name}")
    for one in pkgutil.iter_modules(scar.v1.__path__)
    if one.name.endswith("_pb2")
]
METHODS = {
    f"{service.name}/{method.name}": method
    for module in MODULES
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
OWN = TlsIdentity("shard", "one")

# What a stolen certificate of a role can do: whoever changes this table changes what is promised.
WORKER = {
    *("Recovery/StartJob", "Recovery/GetJob", "Recovery/Join", "Recovery/Leave", "Recovery/GetEpochs"),
    *("Recovery/ReportReroute", "ShardData/Push", "ShardData/Pull", "ShardControl/Share"),
    *("ShardControl/Clock", "ShardControl/Settle", "ShardControl/DirectPort", "Detector/Beat"),
    *("ShardData/PushSmall", "ShardData/PullSmall"),
    *("Recovery/Offer", "Recovery/RequestRollback", "Recovery/UploadInitial", "ShardData/Restore"),
}
LOOKS = {
    *("Recovery/GetJob", "Recovery/GetEpochs", "Recovery/ListFailures", "Recovery/Status"),
    *("ShardData/Pull", "ShardData/PullSmall", "ShardControl/Share", "ShardControl/Status"),
    *("ShardControl/DirectPort", "Checkpoint/Status", "Worker/Status", "Worker/Stack"),
    *("Detector/ListMembers", "MemberService/Probe", "MemberService/GetStory"),
}
TABLE = {
    "worker": WORKER,
    "reader": LOOKS,
    "operator": {*LOOKS, "Recovery/StartJob", "Recovery/UploadInitial", "Checkpoint/Trigger"},
    "shard": {
        *("Recovery/Join", "Recovery/Leave", "Recovery/Renew", "Detector/Beat"),
        *("ShardData/Fetch", "ShardData/Ship", "ShardControl/Release", "ShardControl/DirectPort"),
    },
    "checkpoint": {
        *("Recovery/Join", "Recovery/GetJob", "Recovery/GetEpochs", "Detector/Beat"),
        *("ShardControl/Distances", "ShardControl/Count", "ShardControl/Save", "ShardControl/Finish"),
    },
    "recovery": {
        *("ShardControl/Adopt", "ShardControl/Freeze", "ShardControl/Receive", "ShardControl/Claim"),
        *("ShardControl/Status", "Checkpoint/Trigger", "Detector/Beat"),
        *("MemberService/Probe", "Worker/Status"),
    },
    "detector": {"Recovery/ReportFailure", "Detector/Beat", "MemberService/Probe", "MemberService/Watch"},
}


class Caller:
    """A call's context, as far as it says who calls."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def auth_context(self) -> dict[str, list[bytes]]:
        return {SUBJECT_NAMES: [name.encode() for name in self.names]} if self.names else {}


def test_every_method_declares_its_callers() -> None:
    silent = [
        name
        for name, method in METHODS.items()
        if not method.GetOptions().Extensions[callers_pb2.callers].roles
    ]
    assert silent == []
    assert {role.lower() for role in callers_pb2.Callers.CallerRole.DESCRIPTOR.values_by_name} == {
        "unspecified",
        *ROLES,
    }


def test_methods_declare_what_the_table_says() -> None:
    declared = {role: {name for name in METHODS if role in allowed_roles(name)} for role in ROLES}
    assert declared == TABLE


@pytest.mark.parametrize(("method", "role"), [*product(METHODS, ROLES)])
def test_exactly_the_declared_pairs_pass(method: str, role: str) -> None:
    check = caller_check(OWN)
    call = Caller(f"{role}.one.scar")
    if method in TABLE[role]:
        check(call, method)
    else:
        with pytest.raises(PermissionDenied, match=f"{role} may not call {method}"):
            check(call, method)


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("recovery.two.scar",),
        ("example.org",),
        ("recovery.one.scar", "worker.one.scar"),
        ("\u00e4.one.scar",),
    ],
)
def test_who_is_nobody_of_ours_may_call_nothing(names: tuple[str, ...]) -> None:
    for method in METHODS:
        with pytest.raises(PermissionDenied, match="may call nothing of one"):
            caller_check(OWN)(Caller(*names), method)


@pytest.mark.parametrize("method", ["Recovery/Nothing", "Nothing/Join", "", "Recovery"])
def test_what_is_not_declared_is_denied_to_all(method: str) -> None:
    for role in ROLES:
        with pytest.raises(PermissionDenied):
            caller_check(OWN)(Caller(f"{role}.one.scar"), method)


def test_without_tls_everybody_may_call() -> None:
    for method in METHODS:
        caller_check(None)(Caller(), method)


def test_who_answers_a_method_is_known() -> None:
    found = {answering_role(f"/scar.v1.{method}", "known") for method in METHODS}
    assert found == {"shard", "recovery", "checkpoint", "detector", "worker", "known"}
