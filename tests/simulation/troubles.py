"""What a simulated server suffers from."""

from __future__ import annotations


class Troubles:
    """Kinds of trouble with an amount each. One that was begun twice has to end twice, and until then the
    larger amount counts.
    """

    def __init__(self) -> None:
        self._amounts: dict[str, list[float]] = {}

    def begin(self, kind: str, amount: float = 1.0) -> None:
        self._amounts.setdefault(kind, []).append(amount)

    def end(self, kind: str, amount: float = 1.0) -> None:
        """Nothing happens when it is over already."""
        amounts = self._amounts.get(kind, [])
        if amount in amounts:
            amounts.remove(amount)
        if not amounts:
            self._amounts.pop(kind, None)

    def __bool__(self) -> bool:
        return bool(self._amounts)

    def __getitem__(self, kind: str) -> float:
        """0: there is none."""
        amounts = self._amounts.get(kind)
        return max(amounts) if amounts else 0.0
