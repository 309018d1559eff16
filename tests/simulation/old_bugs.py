"""Bugs that were mended, with all parts of each mending taken back: what seeds have to find again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scripts.breaks import BREAKS
from scripts.breaks.kind import Break

TEST = "tests/simulation/test_bugs.py"


def _break(label: str, fragment: str) -> Break:
    """The one of scripts/breaks with this label that edits these words."""
    found = [one for one in BREAKS if one.label == label and fragment in one.old]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} breaks {label} edit {fragment!r}, not one")
    return found[0]


# by what calls itself so; where it was mended more than once, each part alone is held by the others
OLD_BUGS: dict[str, Callable[[], Sequence[Break]]] = {
    # a batch for the next replica is dropped when its sender stops waiting while it is copied
    "B1": lambda: [
        _break("B2", "call.withdraw()"),
        _break("B1", "chain.unanswered"),
        _break("B1", "self.unanswered"),
    ],
    # the loads of a recovery are dropped when Adopt times out inside the apply thread
    "B2": lambda: [
        _break("B2", "self._loads.start_due()"),
        Break(
            "B2",
            "services/scar_ps/apply_thread.py",
            "            case _:\n",
            "            case _ if time.monotonic() < call.request.deadline:\n",
            TEST,
        ),
    ],
    # the sender of copies is refused with the workers, and takes its process along
    "B3": lambda: [_break("B3", "request.limited and limited"), _break("B3", "except ScarError")],
    # a second cluster takes a job: nobody claims it, an owner is not looked at, or not waited for
    "B5-claim": lambda: [_break("B5", "claim(job.name, take_over)")],
    "B5-gone": lambda: [_break("B5", "_check_gone(job, owner)")],
    "B5-silent": lambda: [_break("B5", "EXPIRY else")],
    # the manifest of a slow load is collected, and nobody hears that what it names is gone
    "B6": lambda: [
        _break("B6", "epoch.restoring"),
        _break("B6", "pending.loaded"),
        _break("B6", "except (CorruptCheckpoint, ObjectNotFound)"),
    ],
    # what an epoch cost a worker is told for 30 seconds, then never again
    "B7": lambda: [_break("B7", "return False")],
    # a leader that was replaced takes reports, and writes over its successor's record
    "B8": lambda: [
        _break("B8", "executor.check_leads()"),
        _break("B8", "self._unread"),
        Break(
            "B8",
            "services/scar_runtime/store/failure_log.py",
            "            key = failure_key(record.number, version, author)\n"
            "            try:\n"
            "                create_record(self._store, key, record)\n"
            "                break\n"
            "            except AlreadyExists:  # from an attempt whose answer was lost\n"
            "                known.add(key)\n",
            '            key = failure_key(record.number, 1, "anybody")\n'
            "            self._store.put(key, encode_record(record))\n"
            "            known.clear()\n"
            "            break\n",
            TEST,
        ),
        Break(
            "B8",
            "services/scar_runtime/store/failure_log.py",
            "import create_record, get_record\n",
            "import create_record, encode_record, get_record\n",
            TEST,
        ),
    ],
    # a worker that was frozen hears that its clock is finished, and its successor does the clock again
    "B9": lambda: [_break("B9", "self._marking")],
    # the end of a paused leader's round is taken for that of its successor's
    "B11": lambda: [_break("B11", "(number, author)"), _break("B11", "object_key == own")],
    # what one shard had sent later voids what a worker has just given back of another
    "voids-neighbours": lambda: [_break("own-history", "later and self._by_clock")],
    # a push is given up that only a copy has of which recovery does not know
    "frees-after-answer": lambda: [_break("after-answer", "complete and not self._has_answered")],
}
