"""The checkpoint coordinator's thread, with a real store."""

from __future__ import annotations

from pathlib import Path

import pytest

import scar
from scar.errors import NotServing
from scar_checkpoint.conductor import Conductor
from scar_checkpoint.coordinator import RESIGNED
from scar_runtime.running import Headers
from scar_runtime.store import open_store


def test_a_round_asked_for_while_a_term_ends_is_refused_at_once(tmp_path: Path) -> None:
    """The end of a term may take seconds: shards that are gone are told of it."""
    job = scar.Job("first", [scar.Table("w", 4)])
    store = open_store(f"file://{tmp_path}").under(job.name)
    conductor = Conductor(job, "0" * 12, store, Headers(store, job), 1.0)
    conductor.run(lambda: True, lambda: None)
    with pytest.raises(NotServing, match=RESIGNED):
        conductor.trigger("full", 1.0, timeout=60.0)
