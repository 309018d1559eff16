"""A shard in its chains: what it sends to the next replica, and what it keeps for others. For the apply thread alone.

The decisions are in :mod:`scar_ps.chain` and :mod:`scar_ps.replicas`; here they meet the shard's epoch, tables and watermark.
"""

from __future__ import annotations

from collections.abc import Sequence

from scar.errors import NotServing
from scar.placement import Epoch
from scar.tables import Job
from scar_ps.barrier import NotYet
from scar_ps.chain import Cargo
from scar_ps.replicas import Kept, Shipment, Wanted
from scar_ps.shard import Shard


class Copies:
    """Of one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    @property
    def kept(self) -> int:
        """Blocks of other shards that it keeps a copy of."""
        return len(self._shard.replicas)

    # --- as an owner ---------------------------------------------------------------------------------------------------

    def load(self) -> Cargo:
        """What has to go to the next replica. Raises :class:`NotYet` when nothing has to."""
        shard = self._shard
        epoch, chain = shard.epoch, shard.chain
        if epoch is None or shard.dismissed or chain.next is None or not chain.due:
            raise NotYet("")  # nothing that a person should hear of
        alive = [worker.key for worker in epoch.workers]
        shard.holdings.forget_overtaken(shard.lanes.watermark, alive)
        return chain.load(epoch, shard.holdings, shard.replicas, shard.lanes.watermark, shard.clock)

    def arrived(self, cargo: Cargo, shipment: Shipment) -> None:
        self._shard.chain.arrived(cargo, shipment)

    def failed(self, shipment: Shipment, gap: bool) -> None:
        """The target refused it, or cannot be reached. ``gap``: it lacks what came before."""
        shard = self._shard
        replica = shard.replicas.by_owner.get(shipment.owner)
        own = shard.holdings.tables if shipment.owner == shard.member.key else {}
        shard.chain.failed(shipment, own or (replica.stores if replica is not None else {}), gap)

    def complete(self, cargo: Cargo, told: bool) -> None:
        """All of it has arrived. ``told``: everybody knows that other copies of this shard's blocks are of no use any more."""
        if cargo.epoch == self._shard.number:
            self._shard.chain.completed(cargo, told)

    # --- as a replica --------------------------------------------------------------------------------------------------

    def receive(self, shipment: Shipment) -> None:
        """Raises what :meth:`scar_ps.replicas.Replicas.receive` raises, and errors about the epoch."""
        job, epoch = self._standing(shipment.epoch)
        self._shard.replicas.receive(job, epoch, shipment)
        if self._shard.chain.passes(shipment.owner):
            self._shard.chain.urgent = True

    def claim(self, number: int, dead: Sequence[str], wanted: Wanted) -> list[Kept]:
        """Blocks of dead owners that are kept here, as they will stay until the next epoch."""
        self._standing(number)
        return self._shard.replicas.claim(dead, wanted)

    def release(self, number: int, owner: str) -> None:
        """Copies of this owner's blocks that are no part of its chain go."""
        job, epoch = self._standing(number)
        self._shard.replicas.release(job, epoch, owner)

    def _standing(self, number: int) -> tuple[Job, Epoch]:
        epoch = self._shard.check_epoch(number)
        if self._shard.job is None:
            raise NotServing("this shard has no job yet")
        return self._shard.job, epoch
