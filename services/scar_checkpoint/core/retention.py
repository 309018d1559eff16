"""What may be deleted from a job's store. Pure.

An object that no remaining manifest names may still be about to be named: by the round under way, whose
number is higher than that of any manifest, or by a compaction that waits for the next manifest. Everything
older is garbage for certain, because a manifest names only new objects of its own round, and what its parent
named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from scar_checkpoint.core.rounds import REWRITE_AGE
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.store.layout import compacted_manifest, saved_round


def newest_manifests(readable: Sequence[int], keep: int) -> set[int]:
    """The last ``keep`` manifests, of those that can be read (ascending)."""
    return set(readable[-keep:])


def remaining_manifests(
    existing: Sequence[int], read: Callable[[int], Manifest | None], keep: int, want_full: bool
) -> set[int]:
    """Manifests that stay whatever their age, of those that exist (ascending). ``read`` returns None for one
    that is damaged, and is asked for no more than are needed.

    The last K states: a recovery takes numbers by copies (the same round), which are no states of their
    own. And the last K numbers: a coordinator that was paused may try to take a number again, and must
    find it taken. ``want_full``: and the newest consistent state.
    """
    found: dict[int, int] = {}  # round -> its newest manifest
    newest_full = 0
    for number in reversed(existing):
        if len(found) >= keep and (newest_full or not want_full):
            break
        manifest = read(number)
        if manifest is None:
            continue
        found.setdefault(manifest.round, number)
        if manifest.full and not newest_full:
            newest_full = number
    remaining = newest_manifests(sorted(found.values()), keep)
    remaining |= {number for number in existing if number > max(existing) - keep}
    if want_full and newest_full:
        remaining.add(newest_full)
    return remaining


def garbage_objects(objects: Iterable[str], remaining: Mapping[int, Manifest]) -> list[str]:
    """Which of these keys nobody needs, now or later, when these manifests (by number, at least one)
    remain.
    """
    named = {ref.key for manifest in remaining.values() for ref in manifest.objects}
    newest = remaining[max(remaining)]
    return [key for key in objects if key not in named and _is_past(key, newest)]


def _is_past(key: str, newest: Manifest) -> bool:
    saved = saved_round(key)
    if saved is not None:
        return saved <= newest.round
    compacted = compacted_manifest(key)
    return compacted is not None and compacted + 2 * REWRITE_AGE < newest.number
