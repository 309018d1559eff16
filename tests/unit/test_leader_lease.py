"""Who may lead while Redis comes and goes."""

from scar.errors import LivenessUnavailable
from scar_runtime.liveness.leader_lease import PATIENCE, LeaderLease

TTL = 2.0


class Redis:
    """``holder``: whose lease it is; "" nobody's. ``down``: it does not answer."""

    def __init__(self) -> None:
        self.holder, self.down = "", False

    def acquire_leader_lease(self, _role: str, incarnation: str, _ttl: float) -> bool:
        if self.down:
            raise LivenessUnavailable("no answer")
        self.holder = self.holder or incarnation
        return self.holder == incarnation


def pair() -> tuple[Redis, list[float], LeaderLease, LeaderLease]:
    redis, time = Redis(), [100.0]
    one, two = (LeaderLease(redis, "recovery", name, TTL, lambda: time[0]) for name in ("one", "two"))
    return redis, time, one, two


def test_one_of_two_leads_and_goes_on_without_redis() -> None:
    redis, time, one, two = pair()
    assert [one.try_acquire(), two.try_acquire()] == [True, False]
    redis.down = True
    time[0] += 0.95 * PATIENCE
    assert [one.try_acquire(), two.try_acquire()] == [True, False]


def test_an_answer_that_is_late_makes_no_second_leader() -> None:
    redis, time, one, two = pair()
    assert [one.try_acquire(), two.try_acquire()] == [True, False]
    for _ in range(10):
        redis.down = not redis.down
        time[0] += 1.0
        assert [one.try_acquire(), two.try_acquire()] == [True, False]


def test_a_standby_acts_when_redis_stays_away() -> None:
    redis, time, one, two = pair()
    assert [one.try_acquire(), two.try_acquire()] == [True, False]
    redis.down = True
    time[0] += PATIENCE
    assert two.try_acquire()


def test_without_redis_from_the_start_everybody_acts_and_the_loser_stands_back() -> None:
    redis, time, one, two = pair()
    redis.down = True
    assert [one.try_acquire(), two.try_acquire()] == [True, True]
    two.step_back()
    assert not two.try_acquire()
    time[0] += PATIENCE
    assert two.try_acquire()
