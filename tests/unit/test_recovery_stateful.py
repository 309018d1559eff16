"""Random joins, deaths, freezes, departures, outages and new leaders, in any order. Whatever happens, epochs
stay linear, every block has one owner, nobody who was fenced comes back, and when all is quiet every block is
served.
"""

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scar.errors import Fenced
from scar.placement import Role
from scar_chaos.oracles.checkers import epochs_linear
from scar_recovery.core.events import MemberLeft
from scar_recovery.executor import Executor
from tests.framework.recovery import Fuse, Killed, World, make_job

NAMES = st.integers(0, 4)


class RecoveryMachine(RuleBasedStateMachine):
    """A leader, sometimes killed in the middle of a step, over shards that come and go."""

    @initialize(full=st.booleans())
    def start(self, full: bool) -> None:
        from scar.tables import Checkpoint

        options = {"recovery": "full", "checkpoint": Checkpoint(selection="full")} if full else {}
        self.world = World(make_job(2, **options))
        for name in ("ps-0", "ps-1"):
            self.world.start(name)
        self.leaders = 0
        self.leader = self.new_leader()
        self.old: list[Executor] = []
        self.world.settle(self.leader)

    def new_leader(self) -> Executor:
        self.leaders += 1
        return self.world.lead(f"leader-{self.leaders}")

    def work(self, seconds: float) -> None:
        """Let the leader work; when it is killed, another takes over."""
        try:
            self.world.settle(self.leader, seconds)
            self.world.now += seconds
        except Killed:
            self.take_over()

    def take_over(self) -> None:
        self.old.append(self.leader)
        self.world.store.down = False
        self.world.store.fuse = self.world.fuse = Fuse()
        self.leader = self.new_leader()

    @rule(number=NAMES)
    def join_shard(self, number: int) -> None:
        """A new process, perhaps in place of one that lives."""
        self.leader.state.admit_member(self.world.start(f"ps-{number}").member)

    @rule(number=NAMES)
    def join_worker(self, number: int) -> None:
        self.leader.state.admit_member(self.world.member(f"worker-{number}", Role.WORKER))

    @rule(pick=st.randoms(use_true_random=False), proved=st.booleans())
    def kill(self, pick, proved: bool) -> None:  # type: ignore[no-untyped-def]
        if present := self.world.present():
            victim = pick.choice(present)
            victim.running = False
            self.world.fail(self.leader, victim, proved=proved)

    @rule(pick=st.randoms(use_true_random=False))
    def freeze(self, pick) -> None:  # type: ignore[no-untyped-def]
        if present := self.world.present():
            victim = pick.choice(present)
            victim.silent = True
            self.world.fail(self.leader, victim, proved=False)

    @rule()
    def wake(self) -> None:
        """Frozen processes go on; they announce themselves and are let in, or told that they are dead."""
        for shard in self.world.shards.values():
            if shard.silent and shard.running:
                shard.silent = False
                try:
                    self.leader.state.admit_member(shard.member)
                except Fenced:
                    shard.running = False
        try:
            self.world.tell_again(self.leader)
        except Killed:
            self.take_over()

    @rule(pick=st.randoms(use_true_random=False))
    def leave(self, pick) -> None:  # type: ignore[no-untyped-def]
        if present := self.world.present():
            leaver = pick.choice(present)
            self.leader.state.post(MemberLeft(leaver.member))
            leaver.running = (
                leaver.epoch is not None or self.leader.state.remaining_share(leaver.member)[1] > 0
            )

    @rule(seconds=st.sampled_from([0.01, 0.06, 0.4, 3.0]))
    def pass_time(self, seconds: float) -> None:
        self.work(seconds)

    @rule(at=st.integers(1, 12), after=st.booleans())
    def kill_leader_soon(self, at: int, after: bool) -> None:
        self.world.store.fuse = self.world.fuse = Fuse(at=at, after=after)

    @rule()
    def outage(self) -> None:
        self.world.store.down = True
        self.work(0.5)
        self.world.store.down = False

    @precondition(lambda self: not self.world.store.down)
    @rule()
    def replace_leader(self) -> None:
        self.take_over()

    @precondition(lambda self: bool(self.old))
    @rule(seconds=st.sampled_from([0.1, 3.0]))
    def old_leader_wakes(self, seconds: float) -> None:
        """It may do what it likes: nothing of it counts once its successor has an epoch."""
        self.world.store.fuse = self.world.fuse = Fuse()
        old = self.old.pop()
        self.work(0.0)
        newest = self.leader.state.epoch
        if newest is None or newest.author != self.leader.state.author:
            self.leader.step()
        before = len(self.world.epochs())
        moment = self.world.now
        self.world.settle(old, seconds)
        self.world.now = moment
        assert len(self.world.epochs()) == before

    @invariant()
    def linear(self) -> None:
        if hasattr(self, "world"):
            epochs_linear(self.world.job, self.world.epochs())

    def teardown(self) -> None:
        """Quiet: the leader works until nothing is left to do; whoever does not answer is found out by the
        detector.
        """
        if not hasattr(self, "world"):
            return
        self.world.store.fuse = self.world.fuse = Fuse()
        self.wake()
        if not self.world.present():
            self.join_shard(0)
        for shard in self.world.shards.values():
            if not shard.running:
                self.world.fail(self.leader, shard)
        self.world.settle(self.leader, 60.0)
        self.world.join_again(self.leader)
        self.world.tell_again(self.leader)
        self.world.settle(self.leader, 60.0)
        departures = self.world.planners[self.leader.state.author].members.departures
        if any(shard.member.key not in departures for shard in self.world.present()):
            self.world.values()


TestRecoveryMachine = RecoveryMachine.TestCase
TestRecoveryMachine.settings = settings(
    max_examples=60, stateful_step_count=25, derandomize=True, suppress_health_check=list(HealthCheck)
)
