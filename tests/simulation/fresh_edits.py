"""Ten edits of the protocol's code, chosen by reading it and written down before any of them was tried.

Each takes away a thing on which a promise rests. None is one of scripts/breaks: no test was written for it.
One was replaced: that a worker does not settle before its last push is on its way is held twice, by the order
of what it sends and by a question, and without the question nothing is different.
"""

from __future__ import annotations

from dataclasses import dataclass

from scripts.breaks.kind import Break

TEST = "tests/simulation/test_bugs.py"


@dataclass(frozen=True)
class FreshEdit:
    """``why``: what it takes away."""

    name: str
    why: str
    edit: Break


def _edit(name: str, why: str, file: str, old: str, new: str) -> FreshEdit:
    return FreshEdit(name, why, Break(name, file, old, new, TEST))


FRESH_EDITS = (
    _edit(
        "drops-sealed",
        "what a dead worker pushed for clocks that it had finished goes with what it had not",
        "services/scar_ps/core/admission.py",
        "self._state.bsp_buffer.drop_replaced(sender, first)",
        "self._state.bsp_buffer.drop_replaced(sender, 0)",
    ),
    _edit(
        "promotes-saved",
        "blocks that a replica takes over count as saved, and the checkpoint has them older",
        "services/scar_ps/core/replica_store.py",
        "        contents.saved = differing_values(contents.values)\n",
        "",
    ),
    _edit(
        "repeats-last",
        "the last push of a worker is applied again when its answer was lost",
        "services/scar_ps/core/push_sequences.py",
        "return seq <= last",
        "return seq < last",
    ),
    _edit(
        "closes-early",
        "a clock closes, and restored blocks are settled, by marks from before the blocks came",
        "services/scar_ps/core/epochs.py",
        "            state.gained_epoch = epoch.number\n",
        "            pass\n",
    ),
    _edit(
        "saves-unsettled",
        "a block is saved while a worker owes it pushes that the watermark says it has",
        "services/scar_ps/core/checkpoint_round.py",
        "(store.loading == 0) & ~store.unsettled",
        "store.loading == 0",
    ),
    _edit(
        "counts-ahead",
        "what was pushed while a batch of copies was on its way is acknowledged as if the batch had it",
        "services/scar_ps/core/replication_chain.py",
        "self.replicated = max(self.replicated, batch.updates)",
        "self.replicated = self.updates",
    ),
    _edit(
        "skips-lease",
        "a suspect is replaced while its lease lets it serve",
        "services/scar_recovery/core/membership.py",
        "allowed = now if report.proved else max(now, last + self._lease_of(key))",
        "allowed = now",
    ),
    _edit(
        "late-clock",
        "what is owed to lost blocks of a closed clock joins the open one, which workers have to finish",
        "services/scar_ps/core/ownership.py",
        'if job.consistency == "bsp" and restored and pushed:',
        "if job.heals_by_clock and restored and pushed:",
    ),
    _edit(
        "own-lease",
        "recovery waits for its own lease, though a shard has a longer one",
        "services/scar_recovery/core/membership.py",
        "return max(self._lease, member.lease_seconds) if member is not None else self._lease",
        "return self._lease",
    ),
    _edit(
        "commits-behind",
        "a round that was overtaken by a recovery is committed behind what the recovery has sealed",
        "services/scar_checkpoint/core/coordinator.py",
        "        if manifest.author == self._author:\n",
        "        if True:\n",
    ),
    _edit(
        "accuses-once",
        "a death of which recovery did not hear the first time is never told again",
        "services/scar_detector/core/reports.py",
        "report.due = now + report.pause",
        "report.due = math.inf",
    ),
    _edit(
        "overwrites",
        "a numbered record is written over the one of whoever was first",
        "services/scar_runtime/store/records.py",
        "store.create(key, encode_record(",
        "store.put(key, encode_record(",
    ),
)
