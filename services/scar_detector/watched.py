"""What the detector knows of one member."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, IntEnum

from scar.placement import Member
from scar_detector.phi import Intervals


class Answer(Enum):
    """Outcome of a direct probe."""

    ALIVE = "it answers"
    REFUSED = "its port is closed"
    REJECTED = "its port is closed, or something on the way rejects us"
    STRANGER = "another process answers at its address"
    SILENT = "it does not answer"
    HUNG = "it answers, but its working thread does not move"
    LAPSED = "it answers, but it cannot renew its lease and serves nobody"


PROOFS = frozenset({Answer.REFUSED, Answer.STRANGER})


class Health(IntEnum):
    """Equal to the protocol's numbers."""

    LEARNING = 1
    ALIVE = 2
    SUSPECT = 3
    DEAD = 4


class Doom(Enum):
    """How far the way to an accusation without proof is: its lease must not be renewed behind our back first."""

    NONE = 0
    ASKED = 1
    SET = 2


@dataclass(slots=True)
class Watched:
    """Times in seconds. ``sign``: last sign of life. ``beat``: last heartbeat; NaN when no interval may start with it."""

    member: Member
    intervals: Intervals
    sign: float
    beat: float = math.nan
    excused: float = 0.0  # silence that was the detector's own lateness
    progress: int = 0
    misses: int = 0  # probes in a row without a sign of life
    answer: Answer | None = None  # of the last probe
    answered: float = -math.inf  # last direct answer
    asked: float = -math.inf  # last probe
    probing: bool = False  # a probe is under way
    urgent: bool = True  # probe at once: it is new, its stream broke, or it was replaced
    hung_up: bool = False  # its own side closed the stream, and it has not answered since
    doom: Doom = Doom.NONE
    accused: float = math.nan  # when
    returned: int = 0  # heartbeats since it was accused

    @property
    def dead(self) -> bool:
        return not math.isnan(self.accused)

    @property
    def proved(self) -> bool:
        """Can it only be dead? A rejection alone may be a network policy's; that the other side hung up is a second witness,
        because whatever stands in between can drop, reset and reject, but does not end a connection in order.
        """
        return self.answer in PROOFS or (self.answer is Answer.REJECTED and self.hung_up)

    def quiet(self, now: float) -> float:
        """Silence that counts against it."""
        return now - self.sign - self.excused

    def lives(self, now: float) -> None:
        self.sign = now
        self.excused, self.misses = 0.0, 0

    def learn(self, now: float) -> None:
        """Forget its rhythm: what was seen does not count any more."""
        self.intervals.clear()
        self.beat = math.nan
        self.lives(now)
