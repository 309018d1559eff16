"""How often the members of a swarm's cluster beat.

All timing of the services follows from the heartbeat (:mod:`scar.wire.timing`), and they take their constants
from it when they are imported: so it is known before that, and seeds in blocks have the same one. Most have
one that suits a larger cluster, whose idle seconds are cheap; the default has its share.
"""

from __future__ import annotations

import json
from pathlib import Path

DEFAULT = 0.0  # as the sources say
CHOICES = (DEFAULT, 0.5, 0.5, 0.5)  # seconds
BLOCK = 10  # seeds


def heartbeat_of(seed: int) -> float:
    return CHOICES[seed // BLOCK % len(CHOICES)]


def heartbeat_of_plan(file: str) -> float:
    """Of a plan that was written down."""
    return float(json.loads(Path(file).read_text())["shape"].get("heartbeat", DEFAULT))
