"""A service that does nothing, run as a process of its own: ``python tests/component/dummy.py ROLE BEHAVIOUR
--name x ...``.

It writes what happens to it to standard output, a word a line.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from scar.errors import Fenced
from scar.placement import Role
from scar_runtime.process import app as chassis
from scar_runtime.process.app import App, Service, main
from scar_runtime.process.config import RedisSettings, ServiceSettings

chassis.REDIS_SECONDS = 0.5


def say(word: str) -> None:
    print(word, flush=True)  # noqa: T201 - this is what the test reads


class Dummy:
    def __init__(self, app: App, behaviour: str) -> None:
        self._app = app
        self._behaviour = behaviour
        self._ready = False
        self._pool = ThreadPoolExecutor(1)
        say("build")

    def start(self) -> None:
        say("start")
        self._app.liveness.epoch = 1
        self._app.spawn("work", self._work)

    def stop(self) -> None:
        say("stop")
        time.sleep({"slow": 1.0, "stubborn": 60.0}.get(self._behaviour, 0.0))
        say("stopped")

    def ready(self) -> bool:
        return self._ready

    def settled(self) -> bool:
        """As a coordinator on standby: well, but not for requests."""
        return self._ready or self._behaviour == "standby"

    def main(self, stopping: threading.Event) -> None:
        say("main")
        if self._behaviour == "main-raises":
            raise ValueError("a user's mistake")
        if self._behaviour == "main-exits":
            sys.exit(0)

    def _work(self) -> None:
        self._ready = self._behaviour != "standby"
        while not self._app.stopping.wait(0.02):
            if self._behaviour == "raises":
                raise ValueError("a bug")
            if self._behaviour == "fenced":
                raise Fenced("out")
            if self._behaviour == "stuck" and self._app.liveness.progress > 20:
                time.sleep(60)
            self._app.liveness.record_progress()
        while self._behaviour == "main-late":  # in the middle of work for a pool, which Python ends before it
            self._pool.submit(int).result()


def build(app: App) -> Service:
    dummy = Dummy(app, sys.argv[2])
    loop = dummy.main if sys.argv[2].startswith("main") else None
    return Service(lambda server: None, (), dummy.start, dummy.stop, dummy.ready, loop, dummy.settled)


if __name__ == "__main__":
    role = Role[sys.argv[1]]
    told: type[ServiceSettings] = ServiceSettings if role is Role.WORKER else RedisSettings
    raise SystemExit(main(told, role, build, sys.argv[3:]))
