"""Events of transfers: who starts when, at what rate, until which end.

Alike flows stand for each other: a :class:`Flow` is all flows of one kind, and each of the links that they
use stands for all links that are burdened alike. So ten thousand workers that push at once are one flow, and
a worker that is late adds two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.simulate.fairness import NetworkPath, flow_rates
from scar.errors import ConfigError

DONE = 1e-9  # relative; a flow with less left has arrived


@dataclass(frozen=True)
class Flow:
    """All flows of one kind.

    ``loads``: what they burden one link of each name with, as :func:`fairness.flow_rates` counts.

    It begins ``wait`` seconds after flow ``after`` (a place in the list, -1: after time 0), not before second
    ``release``.
    """

    bytes: float
    path: NetworkPath
    loads: Mapping[str, float]
    wait: float = 0.0
    release: float = 0.0
    after: int = -1


@dataclass(frozen=True)
class Cut:
    """A link carries nothing from second ``begin`` to ``end``."""

    link: str
    begin: float
    end: float


def arrival_seconds(
    flows: Sequence[Flow], rooms: Mapping[str, float], cuts: Sequence[Cut] = ()
) -> list[float]:
    """The second in which each flow has arrived. Raises :class:`ConfigError` when one never does."""
    links = list(rooms)
    loads = np.array([[flow.loads.get(link, 0.0) for flow in flows] for link in links]).reshape(
        len(links), len(flows)
    )
    left = np.array([flow.bytes for flow in flows], dtype=np.float64)
    sizes = left.copy()
    arrived = np.full(len(flows), np.inf)
    starts = np.array([_start_second(flow, 0.0) if flow.after < 0 else np.inf for flow in flows])
    now = 0.0
    while np.isinf(arrived).any():
        moving = np.flatnonzero((starts <= now) & np.isinf(arrived))
        room = np.array([0.0 if cuts and _is_cut(link, now, cuts) else rooms[link] for link in links])
        speed = flow_rates(loads[:, moving], room, [flows[int(place)].path for place in moving])
        remaining = np.divide(left[moving], speed, out=np.full(len(moving), np.inf), where=speed > 0)
        arrival = now + remaining.min(initial=np.inf)
        then = min(arrival, _next_event(starts, cuts, now))
        if np.isinf(then):
            raise ConfigError("a transfer never ends: a link that it needs stays down", "Give the cut an end")
        left[moving] -= speed * (then - now)
        for place in moving[(left[moving] <= DONE * sizes[moving]) | (now + remaining <= then)]:
            arrived[place] = then
            for one, flow in enumerate(flows):
                starts[one] = _start_second(flow, then) if flow.after == place else starts[one]
        now = then
    return [float(end) for end in arrived]


def _start_second(flow: Flow, since: float) -> float:
    return max(flow.release, since + flow.wait) + flow.path.delay


def _is_cut(link: str, now: float, cuts: Sequence[Cut]) -> bool:
    return any(cut.link == link and cut.begin <= now < cut.end for cut in cuts)


def _next_event(starts: np.ndarray, cuts: Sequence[Cut], now: float) -> float:
    """The next second in which something begins, or a link goes or comes."""
    times = [*starts, *(cut.begin for cut in cuts), *(cut.end for cut in cuts)]
    return min((float(time) for time in times if time > now), default=np.inf)
