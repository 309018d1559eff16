"""A simulated world: the machines, the network, the store and the Redis servers that one seed decides."""

from __future__ import annotations

import logging
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

import prometheus_client
from prometheus_client.metrics import MetricWrapperBase

from scar.wire import small_message
from tests.simulation import bucket, channels, disk, redis_server, scheduler, sockets
from tests.simulation.bucket import Bucket
from tests.simulation.carriers import BEST
from tests.simulation.disk import Disk
from tests.simulation.network import Network
from tests.simulation.plan import Plan
from tests.simulation.redis_server import RedisServer
from tests.simulation.scheduler import Scheduler

SMALL_BYTES = small_message.SMALL_BYTES  # as the sources say
S3_URL = "s3://simulated/store?endpoint=http://s3:1"
CALL_FAILED = "rpc.failed"  # what a server logs of it: scar_runtime.process.interceptors


class World:
    """Everything that one seed decides. Only one at a time may run in a process.

    ``plan``: of a swarm, instead of the seed's own.
    """

    def __init__(
        self, seed: int, *, carrier: str = BEST, trace: TextIO | None = None, plan: Plan | None = None
    ) -> None:
        self.seed = seed
        self.plan = plan
        self.wrong: list[str] = []  # what oracles have found
        self.tally: Counter[str] = Counter()  # what has happened how often: "fault kill", "pair kill+pause"
        self.random = random.Random(f"world {seed}")
        random.seed(f"services {seed}")
        self.scheduler = Scheduler(seed, carrier=carrier, trace=trace)
        self.network = Network(self.scheduler, seed)
        self.bucket = Bucket(self.network, seed)
        self.store_url = S3_URL
        self.redis: dict[str, RedisServer] = {}
        self.operator = self.scheduler.host("operator")
        # even seeds know streams only: what is pushed here is small, and streams have to be right, too
        small_message.SMALL_BYTES = SMALL_BYTES if seed % 2 else 0
        scheduler.use(self.scheduler)
        channels.install(self.network)
        bucket.install(self.bucket)
        redis_server.install(self.network, self.redis)
        sockets.install(self.network)
        _silence_metrics()
        self._log = TraceHandler(self)
        logging.basicConfig(level=logging.INFO, handlers=[self._log], force=True)

    @contextmanager
    def keep_on_disk(self) -> Iterator[None]:
        """The store is a directory. Once in a process."""
        with disk.working_folder():
            Disk(self.bucket, self.seed).install()
            self.store_url = disk.URL
            yield

    def run(self, story: Callable[[], None], seconds: float) -> None:
        """Let the operator do this. Raises what it raises, AssertionError after so many simulated seconds."""
        told: list[BaseException] = []

        def guarded() -> None:
            try:
                story()
            except Exception as error:
                told.append(error)

        if not self.scheduler.run(self.scheduler.spawn(self.operator, "operator", guarded), seconds):
            told.append(AssertionError(f"no end within {seconds:g} simulated seconds"))
        if told:
            raise told[0]

    def tell(self, found: Iterable[str]) -> None:
        """What an oracle has found; the same thing counts once."""
        for what in found:
            if what not in self.wrong:
                self.wrong.append(what)
                self.scheduler.record(f"wrong {what}")


def _silence_metrics() -> None:
    """Metrics belong to a process, and here many of them are one: nobody reads them."""
    prometheus_client.REGISTRY.register = _ignored  # type: ignore[method-assign]
    MetricWrapperBase.labels = _itself  # type: ignore[method-assign,assignment]
    kinds = (prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram)
    for kind in kinds:
        for name in {"inc", "dec", "set", "observe"} & set(vars(kind)):
            setattr(kind, name, _ignored)


def _ignored(*_: object) -> None:
    """What is measured."""


def _itself(metric: MetricWrapperBase, *_: object, **__: object) -> MetricWrapperBase:
    return metric


class TraceHandler(logging.Handler):
    """What the services log is part of the trace. A call that ends by an unforeseen error is wrong."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def handle(self, record: logging.LogRecord) -> bool:
        """Without a lock: processes share none, and whoever is paused while it logs would hold it."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        scheduler = self._world.scheduler
        task = scheduler.current
        name = record.getMessage()
        text = f"log {record.levelname.lower()} {name} {getattr(record, 'reason', '')}".rstrip()
        if name == CALL_FAILED and record.exc_info:
            told = "".join(traceback.format_exception(*record.exc_info))
            scheduler.record(told)
            self._world.tell([f"a call met an error that nobody foresaw: {told.splitlines()[-1]}"])
        if task is not None:
            scheduler.event(task.host, text)
        else:
            scheduler.record(text)
