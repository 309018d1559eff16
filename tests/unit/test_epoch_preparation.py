"""What is asked before an epoch is created, and what is kept until the answers come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from scar_recovery.core.actions import ReadClocks
from scar_recovery.core.epoch_preparation import EpochPreparation
from scar_recovery.core.events import ClocksRead


def commit(number: int, rewinds: bool) -> Any:
    intent = SimpleNamespace(number=number, restarts_clocks=rewinds, previous=None, shards=())
    return SimpleNamespace(intent=intent)


def test_an_epoch_without_a_question_is_not_kept() -> None:
    preparation = EpochPreparation()
    plain = commit(2, rewinds=False)
    assert preparation.start(plain) is plain
    assert preparation.with_answer(ClocksRead(2, 7)) is None


def test_an_epoch_waits_for_the_answer() -> None:
    preparation = EpochPreparation()
    assert preparation.start(commit(2, rewinds=True)) == ReadClocks(2, ())
    assert preparation.start(commit(3, rewinds=False)), "which replaces it"
    assert preparation.with_answer(ClocksRead(2, 7)) is None
