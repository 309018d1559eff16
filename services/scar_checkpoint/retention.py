"""What may be deleted from a job's store. Pure.

An object that no remaining manifest names may still be about to be named: by the round under way, whose number is higher than
that of any manifest, or by a compaction that waits for the next manifest. Everything older is garbage for certain, because a
manifest names only new objects of its own round, and what its parent named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from scar.v1.checkpoint_pb2 import Manifest
from scar_checkpoint.rounds import REWRITE_AGE

_SAVED = re.compile(r"objects/e\d+-.+-r(\d+)(-\d+)?")
_COMPACT = re.compile(r"objects/compact-(\d+)-.+")


def compact_key(manifest: int, author: str) -> str:
    """Key of a compaction of this manifest's objects."""
    return f"objects/compact-{manifest:08d}-{author}"


def window(readable: Sequence[int], keep: int) -> set[int]:
    """The last ``keep`` manifests, of those that can be read (ascending)."""
    return set(readable[-keep:])


def garbage(objects: Iterable[str], remaining: Mapping[int, Manifest]) -> list[str]:
    """Which of these keys nobody needs, now or later, when these manifests (by number, at least one) remain."""
    named = {ref.key for manifest in remaining.values() for ref in manifest.objects}
    newest = remaining[max(remaining)]
    return [key for key in objects if key not in named and _is_past(key, newest)]


def _is_past(key: str, newest: Manifest) -> bool:
    saved, compact = _SAVED.fullmatch(key), _COMPACT.fullmatch(key)
    if saved is not None:
        return int(saved[1]) <= newest.round
    return compact is not None and int(compact[1]) + 2 * REWRITE_AGE < newest.number
