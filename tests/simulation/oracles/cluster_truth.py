"""What one process can know of its cluster: every change of the store as it happens, every death, and what
the shards hold; checked as it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scar.errors import Fenced
from scar.placement import BlockGroup, Epoch, Role
from scar.tables import Job
from scar.v1 import checkpoint_pb2, types_pb2
from scar.wire.codec import job_from_proto
from scar.wire.epoch_messages import epoch_from_proto
from scar.wire.timing import TIMING
from scar_ps.core.core_state import CoreState
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.manifest_codec import manifest_from_proto
from scar_runtime.process.app import exit_code
from scar_runtime.store.layout import EPOCHS, JOB, MANIFESTS, OBJECTS, kind_of
from scar_runtime.store.records import decode_record
from tests.simulation.cluster import Cluster
from tests.simulation.oracles.epoch_chain import EpochChain
from tests.simulation.oracles.lives import (
    BusyShards,
    ShardMemory,
    election_of,
    holds_lease,
    living,
    living_shards,
)
from tests.simulation.oracles.manifest_chain import ManifestHistory
from tests.simulation.oracles.owed_pushes import check_saved, check_settled, owed_pushes
from tests.simulation.oracles.quiet import QuietWatch
from tests.simulation.oracles.repair_time import RepairWatch
from tests.simulation.oracles.replica_copies import check_replicas
from tests.simulation.oracles.restores import check_restorable, read_group, restore_manifest
from tests.simulation.oracles.saved_values import SavedValues
from tests.simulation.oracles.serving import ServingShard, ShardWatch, check_takeover, taken_over
from tests.simulation.oracles.store_view import PREFIX, DirectStore, StoreHistory
from tests.simulation.oracles.true_costs import TrueCost, check_partial, measure_cost

FENCED = exit_code(Fenced(""))
RESTORE = 5  # seconds between two restores of the newest checkpoint


class ClusterTruth:
    """From the beginning of a run, of its first job. ``died``: when members did, by key; ``returned``:
    those of them that had been declared dead before, and heard of it; ``used_until``: when the newest epoch
    last named a manifest, by number; ``collecting_since``: when the checkpoint's leader last had a reason not
    to collect garbage; ``sweeping_since``: from when on a detector that still lives could take the dead's
    heartbeats from Redis.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.job: Job | None = None
        self.costs: dict[int, TrueCost] = {}  # by epoch
        self.died: dict[str, float] = {}
        self.returned: set[str] = set()
        self.used_until: dict[int, float] = {}
        self.collecting_since = self.sweeping_since = cluster.world.scheduler.now
        self._cluster = cluster
        self._scheduler = cluster.world.scheduler
        self._memory = ShardMemory(cluster)
        self._busy = BusyShards(cluster)
        self._shards = ShardWatch()
        self._quiet = QuietWatch()
        self.repair = RepairWatch(cluster)
        self._found: list[str] = []
        self._leaderships: list[Any] = []
        self._looks = 0
        self._changes = 0  # of manifests and objects
        self._complete = self._restored = -1  # changes when nothing was missing, and all was restored
        self._collector: object = None
        self._sweeping: dict[str, float] = {}  # detector -> since when
        self._failovers = 0  # of Redis, by then
        self._created: dict[str, Callable[[int, bytes], None]] = {
            EPOCHS: self._epoch_created,
            MANIFESTS: self._manifest_created,
        }
        self.history = StoreHistory(cluster.world.bucket)
        self.history.listeners.append(self._store_changed)

    # --- the store

    def _store_changed(self, key: str, body: bytes | None) -> None:
        name, _, rest = key.removeprefix(PREFIX).partition("/")
        if self.job is None:
            if rest == JOB and body is not None:
                self._begin(job_from_proto(decode_record(types_pb2.JobSpec, body)))
            return
        if name != self.job.name:
            return
        kind = kind_of(rest)
        self._changes += kind in (MANIFESTS, OBJECTS)
        if body is None:
            self._removed(kind, rest)
        elif kind in self._created and rest not in self.damaged:
            self._created[kind](int(rest.rpartition("/")[2]), body)
        elif kind == MANIFESTS:
            self.manifests.damaged.add(int(rest.rpartition("/")[2]))

    def _begin(self, job: Job) -> None:
        self.job = job
        self.store = DirectStore(self.history.objects).under(job.name)
        self.epochs = EpochChain(job)
        self.manifests = ManifestHistory(job.checkpoint.keep)
        self._saved = SavedValues(self.store, job)

    @property
    def damaged(self) -> set[str]:
        """Keys of the job."""
        whole = f"{self.store.prefix}/"
        return {key.removeprefix(whole) for key in self.history.damaged if key.startswith(whole)}

    def _removed(self, kind: str, key: str) -> None:
        found = []
        if kind == EPOCHS:
            found = self.epochs.remove(int(key.rpartition("/")[2]))
        elif kind == MANIFESTS:
            number = int(key.rpartition("/")[2])
            found = self.manifests.remove(number)
            found += self._check_loads(number)
        elif kind == OBJECTS and key in self.manifests.needed:
            found = [f"{key} was deleted, and one of the last manifests names it"]
        if key not in self.damaged:
            self._found += found

    def _check_loads(self, manifest: int) -> list[str]:
        """Nobody may still have to load from one that is deleted."""
        return [
            f"manifest {manifest} was deleted, and {key} still loads from it"
            for key, state in self._living_states().items()
            if any(load.manifest == manifest for load in state.ownership.loads)
        ]

    def _manifest_created(self, _number: int, body: bytes) -> None:
        manifest = manifest_from_proto(decode_record(checkpoint_pb2.Manifest, body))
        newest = self.epochs.newest.number if self.epochs.newest else 0
        parent = self.manifests.manifests.get(manifest.parent)
        self._found += self.manifests.add(manifest, newest, self.damaged)
        self._found += self._missing_objects()
        if not self.damaged:
            self._found += self._saved.manifest_created(manifest, parent)
            self._found += self._check_debts()

    def _missing_objects(self) -> list[str]:
        prefix = f"{self.store.prefix}/"
        bodies = {key: self.history.objects.get(prefix + key) for key in self.manifests.needed}
        sizes = {key: len(body) for key, body in bodies.items() if body is not None}
        return self.manifests.missing(sizes, self.damaged)

    # --- epochs

    def _epoch_created(self, _number: int, body: bytes) -> None:
        epoch = epoch_from_proto(decode_record(types_pb2.Epoch, body))
        self._found += self.epochs.add(epoch, self._leadership(epoch.author))
        self._found += check_takeover(epoch, self._serving())
        self._shards.gone |= taken_over(epoch)
        if not self.damaged:
            self._found += self._saved.epoch_created(epoch, self.manifests.manifests)
        if epoch.failure and epoch.moved and not epoch.rollback:
            self._measure(epoch)

    def _leadership(self, author: str) -> int:
        """A number of the session in which this coordinator leads."""
        elections = [election_of(life) for life in living(self._cluster) if life.app.incarnation == author]
        session = next((one.session for one in elections if one is not None), None)
        for number, known in enumerate(self._leaderships):
            if known is session and session is not None:
                return number
        self._leaderships.append(session)
        return len(self._leaderships) - 1

    def _measure(self, epoch: Epoch) -> None:
        """While everything is as it was when the epoch came to be."""
        assert self.job is not None
        manifest = self.manifests.manifests.get(epoch.manifest)
        if (epoch.manifest and manifest is None) or self.damaged:
            return
        saved = restore_manifest(self.store, self.job, manifest or Manifest(job=self.job.name))

        def read(group: BlockGroup) -> Any:
            return read_group(self.store, self.job, manifest, group)

        cost = measure_cost(self.job, epoch, self._memory.now(), read, saved)
        self.costs[epoch.number] = cost
        self._scheduler.record(f"oracle {cost}")
        self._found += check_partial(cost)

    # --- every second

    def _serving(self) -> list[ServingShard]:
        found = []
        for life, state in living_shards(self._cluster):
            view = state.view
            blocks = {name: store.ids for name, store in view.tables.items()}
            leased = holds_lease(life, self._scheduler)
            found.append(ServingShard(state.member.key, leased, view.epoch, state.clock, blocks))
        return found

    def _note_deaths(self) -> None:
        now = self._scheduler.now
        for life in self._cluster.lives:
            if not life.host.alive:
                self.died.setdefault(life.app.member.key, now)
                if life.app._exit_code == FENCED:
                    self.returned.add(life.app.member.key)
        coordinators = [life for life in living(self._cluster) if "/checkpoint" in life.host.name]
        elections = map(election_of, coordinators)
        session = next((one.session for one in elections if one is not None and one.session), None)
        stands_still = any(life.host.paused_until > now for life in coordinators)
        if (
            session is None
            or session is not self._collector
            or self._cluster.world.bucket.troubles
            or stands_still
        ):
            self._collector = session
            self.collecting_since = now

    def _note_used(self, newest: Epoch | None) -> None:
        numbers = (newest.manifest, *newest.restoring) if newest is not None else ()
        self.used_until |= dict.fromkeys(numbers, self._scheduler.now)

    def _note_sweeping(self) -> None:
        """Who was paused or had no Redis for a moment begins again: it has met the dead anew. So does
        everybody after a failover that brought their heartbeats back, and who had accused them before takes
        that for a sign of life: it remembers them as long as after any accusation, and then accuses them
        once more.
        """
        world, now = self._cluster.world, self._scheduler.now
        redis = world.redis[self._cluster.redis]
        well = [
            life.app.member.key
            for life in living(self._cluster)
            if life.app.member.role is Role.DETECTOR
            and max(life.host.paused_until, redis.host.paused_until) <= now
            and not redis.troubles
            and world.network.reaches(life.host, redis.host)
            and world.network.reaches(redis.host, life.host)
        ]
        if redis.failovers == self._failovers:
            self._sweeping = {key: self._sweeping.get(key, now) for key in well}
        else:
            self._sweeping = dict.fromkeys(well, now + TIMING.remember(TIMING.lease))
        self._failovers = redis.failovers
        self.sweeping_since = min(self._sweeping.values(), default=now)

    def _living_states(self) -> dict[str, CoreState]:
        """Of shards between two events."""
        states = {state.member.key: state for _, state in living_shards(self._cluster)}
        return {key: state for key, state in states.items() if key not in self._busy.keys}

    def _check_debts(self) -> list[str]:
        """What workers have still to send is nowhere counted as there."""
        shards = self._living_states()
        owed = list(owed_pushes(living(self._cluster), shards))
        newest = self.manifests.last[-1:]
        found = check_settled(owed, shards)
        for manifest in newest:
            where = f"manifest {manifest.number}"
            found += check_saved(owed, self._saved.live_groups(manifest), where) if owed else []
        return found

    def _check_values(self) -> list[str]:
        shards = self._living_states()
        found = [*self._check_debts(), *check_replicas(shards)]
        return found if self.damaged else [*found, *self._saved.check_shards(shards)]

    def _look_quiet(self, job: Job) -> list[str]:
        tally = self._cluster.world.tally
        kinds = [name.removeprefix("fault ") for name in tally if name.startswith("fault ")]
        clocks = [state.clock for _, state in living_shards(self._cluster) if state.view.tables]
        failures = sum(epoch.failure > 0 for epoch in self.epochs.epochs.values())
        return self._quiet.look(job, kinds, min(clocks, default=0), failures, self._scheduler.now)

    def _check_store(self, job: Job) -> None:
        """What has been found of it is told already, unless it has changed, or is damaged."""
        if self._complete != self._changes or self.damaged:
            self._complete = self._changes
            self._found += self._missing_objects()
        if self._looks % RESTORE == 0 and (self._restored != self._changes or self.damaged):
            self._restored = self._changes
            self._found += check_restorable(self.store, job, self.damaged)

    def look(self) -> list[str]:
        self._looks += 1
        self._note_deaths()
        self._note_sweeping()
        if self.job is not None:
            self._found += self._shards.look(self._serving(), self.epochs.epochs)
            self._check_store(self.job)
            self._note_used(self.epochs.newest)
            self._found += self._look_quiet(self.job)
            self._found += self._check_values()
            self._found += self.repair.look(self.epochs.newest, self.died)
        found = self._found
        self._found = []
        return found
