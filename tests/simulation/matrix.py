"""The fault matrix: what can go wrong, what is promised then, and where that is tried.

Kinds of simulated faults name their rows; a row that none names says where it is tried, or why it is not.
``docs/faults.md`` is made from this by ``make docs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MatrixRow:
    """``elsewhere``: test files (and functions) that try it on real parts; ``reason``: why no simulated fault
    does.
    """

    key: str
    fault: str
    promise: str
    elsewhere: tuple[str, ...] = ()
    reason: str = ""


ROWS = (
    MatrixRow("P1", "a shard is killed", "only its blocks are put back; clients follow the new epoch"),
    MatrixRow("P2", "a shard crashes inside C", "as P1"),
    MatrixRow("P3", "a shard is paused for less than its lease", "late answers still count"),
    MatrixRow("P4", "a shard is paused for longer, and wakes", "it is replaced, and refuses everything"),
    MatrixRow("P5", "a shard's thread hangs while its port answers", "it is suspected and replaced"),
    MatrixRow("P6", "a shard is killed for its memory, again and again", "as P1, and no loop of epochs"),
    MatrixRow("P7", "several shards at once", "one recovery"),
    MatrixRow("P8", "all shards", "everything comes back from the checkpoint, and the ledger says so"),
    MatrixRow("P9", "a worker is killed, slow or hung", "nobody waits for it longer than detection takes"),
    MatrixRow("P10", "a worker dies between a push and its answer", "the push is applied once or not at all"),
    MatrixRow(
        "C1", "the checkpoint coordinator dies at any step", "the old manifest stays; orphans go later"
    ),
    MatrixRow(
        "C2", "the recovery coordinator dies at any step", "its successor finishes or replaces the plan"
    ),
    MatrixRow("C3", "two coordinators lead for a moment", "one manifest, one epoch of each number"),
    MatrixRow("C4", "the detector dies", "training goes on; it learns again without a burst of suspicions"),
    MatrixRow(
        "D1", "a second fault while the first is repaired", "the plan is made again; see the pairs below"
    ),
    MatrixRow("D2", "what replaces the dead dies, too", "the others serve; epochs stay bounded"),
    MatrixRow("D3", "a node with a shard, a worker and a coordinator", "as one fault"),
    MatrixRow("N1", "a shard does not reach the detector, but its workers", "a second path confirms it"),
    MatrixRow("N2", "workers do not reach a shard", "they wait and try again; that is no death"),
    MatrixRow("N3", "messages pass in one direction only", "as N1"),
    MatrixRow("N4", "the network falls into two halves", "the smaller one stops to serve by itself"),
    MatrixRow("N5", "delay, jitter, resets, slow links", "slower, and correct"),
    MatrixRow("N6", "links clog one by one and open in another order", "every guarantee"),
    MatrixRow("N7", "the answer is lost after the effect, on every method", "nothing is done twice"),
    MatrixRow("N8", "a name that is stale or empty", "the next try asks again"),
    MatrixRow("R1", "Redis dies and comes back empty", "no recovery, no loss"),
    MatrixRow("R2", "Redis forgets everything", "known again within two heartbeats"),
    MatrixRow("R3", "Redis is slow, paused, full or read-only", "probes decide, not its silence"),
    MatrixRow("R4", "Redis loses its last writes in a failover", "epochs come from the store alone"),
    MatrixRow("R5", "Redis refuses the password", "it is said at the start, with the variable to set"),
    MatrixRow("S1", "the store is away for minutes", "training goes on; recoveries wait for it"),
    MatrixRow("S2", "503 for 1 to 50 % of the requests", "tried again; rounds take longer, not more memory"),
    MatrixRow("S3", "the store is slow", "training does not notice"),
    MatrixRow("S4", "a put is cut in the middle", "nothing of it can be seen"),
    MatrixRow("S5", "an error page with status 200, a cut body", "found by length and checksum, tried again"),
    MatrixRow("S6", "409, a lost race, an answer lost after a conditional put", "it is read back; one wins"),
    MatrixRow(
        "S7", "an object is damaged, cut, swapped, removed by hand", "an older copy is used and counted"
    ),
    MatrixRow(
        "S8",
        "the newest manifest is damaged, or of a newer format",
        "the one before it counts; a newer format is refused by name",
        ("tests/unit/test_records.py::test_a_newer_format_says_so", "tests/system/test_damage.py"),
    ),
    MatrixRow("S9", "clocks too far apart for the store, credentials that expire", "one clear error"),
    MatrixRow(
        "S10",
        "a store whose conditional put is none",
        "refused at the start",
        ("tests/contract/test_store_s3.py::test_a_store_that_ignores_conditions_is_refused",),
        reason="it never comes to a run",
    ),
    MatrixRow("L1", "the disk is full", "no crash; rounds are missed"),
    MatrixRow(
        "L2",
        "a port that is taken",
        "a clear error",
        ("tests/component/test_app.py::test_a_taken_port_names_the_variable",),
        reason="every simulated process has a host of its own",
    ),
    MatrixRow("T1", "a wall clock jumps, strobes or drifts", "no suspicion: leases use monotonic clocks"),
    MatrixRow("T2", "everything stands still for a while", "nobody is suspected when it wakes"),
    MatrixRow("M1", "bytes that are no message", "a typed error; the server is as it was"),
    MatrixRow("M2", "too many or too large messages", "refused; memory stays bounded"),
    MatrixRow(
        "M3",
        "tensors of a wrong shape, type, size or job",
        "refused before memory is taken for them",
        ("tests/system/test_sdk_errors.py", "tests/unit/test_tensor_reader.py"),
        reason="a wrong call by the one who makes it: nothing of it depends on time or order",
    ),
    MatrixRow(
        "M4", "calls that come twice, late or in another order", "typed refusals, nothing applied twice"
    ),
    MatrixRow(
        "X1",
        "a caller without a permission",
        "refused on every method",
        (
            "tests/unit/test_access.py::test_exactly_the_declared_pairs_pass",
            "tests/component/test_tls.py::test_a_role_that_may_not_call_is_told_so",
            "tests/security/test_attacks.py::test_no_method_of_a_server_answers_who_may_not_call_it",
        ),
        reason="simulated channels are plain: who calls is not known there",
    ),
    MatrixRow(
        "X2",
        "no certificate, or a wrong one",
        "refused",
        (
            "tests/component/test_tls.py::test_nobody_gets_in_without_a_certificate",
            "tests/system/test_tls.py::test_who_has_no_certificate_or_the_wrong_one_reaches_nothing",
        ),
        reason="simulated channels are plain",
    ),
    MatrixRow(
        "X3",
        "a member speaks another protocol",
        "refused by its number; training goes on without it",
        (
            "tests/component/test_protocol_number.py::test_another_protocol_is_refused_and_training_goes_on",
            "tests/e2e/test_upgrade_release.py::test_a_member_of_a_newer_protocol_is_refused_and_stops_nothing",
        ),
        reason="simulated members are all of one version",
    ),
    MatrixRow(
        "K1",
        "pods deleted, nodes drained, releases upgraded",
        "as P1, or nothing at all is lost",
        ("tests/e2e/test_upgrade_release.py::test_an_upgrade_replaces_all_and_training_goes_on",),
    ),
    MatrixRow(
        "K2",
        "the Kubernetes API is away",
        "recovery goes on with the members it knows",
        ("tests/component/test_recovery_kubernetes.py",),
        reason="the API is not simulated",
    ),
    MatrixRow(
        "K3",
        "shards are added and removed under load",
        "blocks move, nothing is lost",
        ("tests/e2e/test_release.py", "tests/system/test_membership.py"),
    ),
)


@dataclass(frozen=True)
class WatchedGuarantee:
    """``watched``: modules of oracles; ``reason``: why no simulated run can break it."""

    key: str
    promise: str
    watched: tuple[str, ...] = ()
    reason: str = ""


CHAOS = "services/scar_chaos/oracles/"
OWN = "tests/simulation/oracles/"
GUARANTEES = (
    WatchedGuarantee(
        "G1", "a push is applied as a whole; a pull never sees half a block", (CHAOS + "checkers.py",)
    ),
    WatchedGuarantee("G2", "exactly once while the epoch lives", (CHAOS + "exactly_once.py",)),
    WatchedGuarantee(
        "G3",
        "an acknowledged update is in the model or in the ledger",
        (
            *(CHAOS + "exactly_once.py", CHAOS + "ledger_audit.py"),
            *(OWN + "true_costs.py", OWN + "owed_pushes.py", OWN + "replica_copies.py"),
        ),
    ),
    WatchedGuarantee("G4", "unknown is never reported as failed", (CHAOS + "exactly_once.py",)),
    WatchedGuarantee(
        "G5",
        "a restorable checkpoint exists at every moment",
        (OWN + "restores.py", OWN + "manifest_chain.py", OWN + "saved_values.py"),
    ),
    WatchedGuarantee("G6", "manifests are a chain", (OWN + "manifest_chain.py",)),
    WatchedGuarantee("G7", "no split brain", (OWN + "serving.py", OWN + "epoch_chain.py")),
    WatchedGuarantee("G8", "survivors never go backwards", (CHAOS + "checkers.py", OWN + "serving.py")),
    WatchedGuarantee("G9", "partial never costs more than full", (OWN + "true_costs.py",)),
    WatchedGuarantee(
        "G10",
        "a wrong suspicion costs a recovery, never correctness",
        (CHAOS + "verdict.py", OWN + "repair_time.py"),
    ),
    WatchedGuarantee("G11", "losing Redis loses nothing", (CHAOS + "verdict.py",)),
    WatchedGuarantee(
        "G12", "losing the store does not stop training; memory is bounded", (OWN + "memory.py",)
    ),
    WatchedGuarantee("G13", "damage is never loaded", (CHAOS + "exactly_once.py", OWN + "restores.py")),
    WatchedGuarantee("G14", "workers can be replaced", (CHAOS + "reported_losses.py",)),
    WatchedGuarantee("G15", "a shutdown that is asked for loses nothing", (CHAOS + "exactly_once.py",)),
    WatchedGuarantee(
        "G16", "coordinators may die at any instruction", (OWN + "epoch_chain.py", CHAOS + "verdict.py")
    ),
    WatchedGuarantee("G17", "the same seed is the same run", ("tests/simulation/test_determinism.py",)),
    WatchedGuarantee(
        "G18",
        "nothing that is read executes code",
        ("tests/repo/test_sources.py",),
        reason="a rule for the sources, and no matter of time",
    ),
)


def kinds_by_row(kinds: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """``kinds``: the rows of each kind of fault. Row or guarantee -> kinds that try it."""
    found: dict[str, list[str]] = {}
    for kind, keys in kinds.items():
        for key in keys:
            found.setdefault(key, []).append(kind)
    return found
