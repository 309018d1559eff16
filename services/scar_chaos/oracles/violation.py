"""What an oracle raises."""

from __future__ import annotations


class Violation(AssertionError):
    """A guarantee does not hold; the text says what was found instead."""


def require(condition: bool, text: str) -> None:
    """Raises :class:`Violation` with this text when the condition does not hold."""
    if not condition:
        raise Violation(text)
