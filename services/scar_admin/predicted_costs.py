"""What a failure will cost, in clocks, as soon as the first loss since is known. Pure.

Theorem 3.2 (seed 000) bounds the iteration cost by log(1 + Δ / ‖x(0) − x*‖) / log(1 / c), where c is the rate
of convergence. Nobody knows x* while a job runs. Losses stand for distances here: the rate is that by which
they have fallen towards their limit before the failure, and Δ is how far the first one since is above.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scar_admin.loss_series import LossSeries

WINDOW = 16  # clocks before a failure that tell how fast the loss falls
LEAST = 6  # of them, without which nothing is said
NEAREST = 0.999  # of the lowest loss: the limit is below it


def predict_cost(series: LossSeries, clock: int, ahead: int = 0) -> float | None:
    """The cost to expect of a failure at ``clock``, by the measure of
    :func:`scar_admin.iteration_costs.measure_cost`. ``ahead``: see there.

    None: too little is known, or the loss did not fall.
    """
    end = int(np.searchsorted(series.clocks, clock - ahead))
    since = int(np.searchsorted(series.clocks, clock + ahead, side="right"))
    before = series.losses[max(0, end - WINDOW) : end]
    if len(before) < LEAST or since == len(series.clocks):
        return None
    lowest = int(series.losses[:end].argmin())
    limit = _estimate_limit(before)
    above = before - limit
    if series.losses[lowest] <= limit or (above <= 0).any():
        return None
    at = series.clocks[end - len(before) : end]
    rate = -float(np.polyfit(at - at[0], np.log(above), 1)[0])
    if rate <= 0:
        return None
    first = int(series.clocks[since])
    rise = max(float(series.losses[since]), float(series.losses[lowest])) - limit
    back = float(np.log(rise / (series.losses[lowest] - limit))) / rate
    return first - int(series.clocks[lowest]) + back


def _estimate_limit(losses: NDArray[np.float64]) -> float:
    """Of losses that fall geometrically towards it: Aitken's extrapolation of the means of three parts. 0
    where that says nothing better.
    """
    part = len(losses) // 3
    first, second, third = (float(losses[one * part : (one + 1) * part].mean()) for one in range(3))
    bend = first + third - 2 * second
    low = float(losses.min())
    limit = (first * third - second * second) / bend if bend > 0 else 0.0
    return min(limit, NEAREST * low) if 0 < limit < low else 0.0
