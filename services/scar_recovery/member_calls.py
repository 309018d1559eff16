"""The same question to many members at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

PARALLEL = 16  # calls to members at once

Item = TypeVar("Item")
MemberAnswer = TypeVar("MemberAnswer")


def call_in_parallel(call: Callable[[Item], MemberAnswer], items: Sequence[Item]) -> list[MemberAnswer]:
    """Answers in the order of ``items``."""
    if len(items) <= 1:
        return [call(item) for item in items]
    with ThreadPoolExecutor(min(PARALLEL, len(items))) as pool:
        return list(pool.map(call, items))
