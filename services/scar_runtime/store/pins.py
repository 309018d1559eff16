"""Pins: whoever reads a checkpoint for long says so in the store, and what it reads is not deleted meanwhile.

    with pinned(store, [7, 8]):
        ...                                  # as long as it takes

A pin is renewed while its holder lives. Nobody compares clocks: the clean-up honours a pin as long as it sees
it change, so what a killed holder leaves behind is worth nothing after :data:`PIN_SECONDS`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from scar.errors import CorruptCheckpoint, ObjectNotFound, ScarError
from scar.v1.checkpoint_pb2 import Pin
from scar_runtime.store import Store
from scar_runtime.store.layout import PINS, folder, pin_key
from scar_runtime.store.records import decode_record, put_record

RENEW_SECONDS = 5.0
PIN_SECONDS = 30.0
MOST = 64  # pins that are looked at, and manifests of each
LAST_SECONDS = 30.0  # for the renewal that is under way when the reading ends


@contextmanager
def pinned(store: Store, manifests: Sequence[int], holder: str) -> Iterator[str]:
    """Keep these manifests and what they name. Yields why that is impossible, in words; empty: they are
    pinned.
    """
    key = pin_key(uuid.uuid4().hex)
    pin = Pin(manifests=manifests[-MOST:], holder=holder, count=1)
    problem = ""
    try:
        put_record(store, key, pin)
    except ScarError as error:  # it may be read and not written
        problem = error.message
    done = threading.Event()
    thread = threading.Thread(target=_renew_pin, args=(store, key, pin, done), name="pin", daemon=True)
    thread.start()
    try:
        yield problem
    finally:
        done.set()
        thread.join(LAST_SECONDS)
        with suppress(ScarError):
            store.delete(key)


def _renew_pin(store: Store, key: str, pin: Pin, done: threading.Event) -> None:
    """Write it again and again, with a higher count each time, until ``done``."""
    while not done.wait(RENEW_SECONDS):
        pin.count += 1
        with suppress(ScarError):  # a store that is away deletes nothing
            put_record(store, key, pin)


class Pins:
    """What is pinned, for the clean-up. ``now``: seconds of a clock that does not jump."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._seen: dict[str, tuple[int, float]] = {}  # key -> its last count, and when that was seen first

    def manifests(self) -> set[int]:
        """Manifests that somebody reads. Pins that nobody renews any more are deleted. Raises store
        errors.
        """
        keys = self._store.list(folder(PINS))[:MOST]
        self._seen = {key: seen for key, seen in self._seen.items() if key in keys}
        found: set[int] = set()
        for key in keys:
            try:
                pin = decode_record(Pin, self._store.get(key), key)  # whoever reads may have no key
            except ObjectNotFound:
                continue
            except CorruptCheckpoint:
                pin = Pin()
            if self._seen.get(key, (-1, 0.0))[0] != pin.count:
                self._seen[key] = pin.count, self._now()
            if self._now() - self._seen[key][1] > PIN_SECONDS:
                self._store.delete(key)
            else:
                found.update(pin.manifests[:MOST])
        return found
