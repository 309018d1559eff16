"""For unit tests of damage in checkpoints."""

from __future__ import annotations

import pytest

from scar_runtime.checkpoint import objects


@pytest.fixture
def digest_per_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects are written with a digest for each block, so that damage takes no neighbours along."""
    monkeypatch.setattr(objects, "SEGMENT_BYTES", 1)
