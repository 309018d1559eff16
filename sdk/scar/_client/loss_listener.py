"""What a worker does about the newest loss before it opens a clock: go on, end, or have the job go back."""

from __future__ import annotations

from enum import Enum

from scar._client.client import Client
from scar.stopping import StopRules


class Heard(Enum):
    """``ROLLED_BACK``: the model is an older one, and another clock is open."""

    GO_ON = "go on"
    OVER = "over"
    ROLLED_BACK = "rolled back"


def hear_loss(client: Client, rules: StopRules) -> Heard:
    """Raises :class:`scar.errors.Diverged` where the training is to end, or cannot go back."""
    with client.pace.time_pull() as timed:
        loss, timed.moving = client.pulls.newest_loss()
    if loss is None:
        return Heard.GO_ON
    clock, reason = rules.find_divergence(loss, client.view.epoch.restart)
    if reason:
        client.roll_back(clock, loss.clock, reason)
        return Heard.ROLLED_BACK
    if not rules.judge(loss):
        return Heard.GO_ON
    client.end_at_loss(loss)
    return Heard.OVER
