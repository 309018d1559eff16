"""Feeds a decoder with changed inputs and judges it: typed errors only, bounded time and memory.

An input with a new outcome (an error of another class, or raised elsewhere) becomes a seed for further ones,
so that the search goes on from where it got.
"""

from __future__ import annotations

import hashlib
import random
import resource
import signal
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scar.errors import ScarError
from tests.fuzz.mutations import Mutator

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(__file__).parent / "kept"
FOUND = ROOT / ".fuzz"
SHIPPED = f"{ROOT}/s"  # sdk and services
CPU_SECONDS = 5.0  # of one input
HANG_LOOKS = 4  # every CPU_SECONDS, after which an input is given up
PEAK_BYTES = 400 << 20  # of one input, over what was there before
GROWTH_BYTES = 64 << 20  # of the process, over a batch
PEAK_EVERY = 97  # inputs; measuring makes one several times slower
MOST_SEEDS = 400


@dataclass(frozen=True)
class FuzzTarget:
    """One decoder, or several that are one behind the other.

    ``seeds``: what encoders write, each of which ``decode`` takes; ``decode``: raises errors of SCAR only.
    ``cost``: how many times as long as for the quickest target one input takes, about.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    decode: Callable[[bytes], object]
    mutate: Callable[[Mutator, bytes], bytes] = Mutator.mutate_bytes
    cost: int = 1

    def kept(self) -> list[Path]:
        """Inputs that have shown a defect once."""
        return sorted((KEPT / self.name).glob("*"))


class InputHangs(BaseException):
    """No handler of errors may catch it."""


@dataclass(frozen=True)
class BadInput:
    """An input that showed a defect."""

    data: bytes
    reason: str


@dataclass
class FuzzReport:
    """``outcomes``: class of the error, or "accepted" -> inputs. ``peak``, ``growth``: bytes. ``slowest``,
    ``seconds``: of the CPU.
    """

    target: str
    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    peak: int = 0
    growth: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    bad: list[BadInput] = field(default_factory=list)

    def add(self, other: FuzzReport) -> None:
        """Another batch of the same target."""
        self.inputs += other.inputs
        self.seconds += other.seconds
        self.slowest = max(self.slowest, other.slowest)
        self.peak = max(self.peak, other.peak)
        self.growth = max(self.growth, other.growth)
        self.outcomes += other.outcomes
        known = {one.reason for one in self.bad}
        self.bad += [one for one in other.bad if one.reason not in known]


class Fuzzer:
    """One batch of inputs for one target."""

    def __init__(self, target: FuzzTarget, seed: str) -> None:
        self._target = target
        self._mutator = Mutator(random.Random(f"{target.name}/{seed}"))
        self._seeds = list(target.seeds())
        self._first = len(self._seeds)
        self._places: set[str] = set()
        self._reasons: set[str] = set()
        self.report = FuzzReport(target.name)

    def run(self, inputs: int) -> FuzzReport:
        """Seeds first, which must be accepted, then ``inputs`` changed ones."""
        for data in self._seeds[:]:
            self.try_input(data)
        if set(self.report.outcomes) != {"accepted"}:
            raise AssertionError(f"{self._target.name} refuses what encoders write: {self.report.outcomes}")
        before = 0
        started = time.thread_time()
        with bounded_time(lambda: self.report.inputs):
            for number in range(inputs):
                self.try_input(self._next_input(), measured=number % PEAK_EVERY == PEAK_EVERY - 1)
                if number == inputs // 4:
                    before = resident_bytes()
        self.report.seconds = time.thread_time() - started
        self.report.growth = max(0, resident_bytes() - before)
        if self.report.growth > GROWTH_BYTES:
            self._note(b"", f"{self.report.growth} bytes more after {inputs} inputs")
        return self.report

    def try_input(self, data: bytes, measured: bool = False) -> None:
        """Decode one input and judge it."""
        outcome, place = self._measure_peak(data) if measured else self._measure_time(data)
        self.report.inputs += 1
        self.report.outcomes[outcome] += 1
        if place not in self._places and len(self._seeds) < self._first + MOST_SEEDS:
            self._places.add(place)
            self._seeds.append(data)

    def _measure_time(self, data: bytes) -> tuple[str, str]:
        started = time.thread_time()
        outcome = self._outcome(data)
        seconds = time.thread_time() - started
        self.report.slowest = max(self.report.slowest, seconds)
        if seconds > CPU_SECONDS:
            self._note(data, f"one input takes more than {CPU_SECONDS} s")
        return outcome

    def _measure_peak(self, data: bytes) -> tuple[str, str]:
        """By bytes that are allocated at once meanwhile."""
        tracemalloc.start()
        try:
            outcome = self._outcome(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        self.report.peak = max(self.report.peak, peak)
        if peak > PEAK_BYTES:
            self._note(data, f"one input takes more than {PEAK_BYTES >> 20} MiB")
        return outcome

    def _outcome(self, data: bytes) -> tuple[str, str]:
        """Name of the outcome, and where it was raised."""
        try:
            self._target.decode(data)
        except ScarError as error:
            return type(error).__name__, f"{type(error).__name__} {_raised_at(error)}"
        except InputHangs:
            self._note(data, f"one input takes more than {CPU_SECONDS} s")
            return "hang", "hang"
        except Exception as error:
            name = f"untyped {type(error).__name__}"
            self._note(data, f"{type(error).__name__} at {_raised_at(error)}: {str(error)[:200]}")
            return name, f"{name} {_raised_at(error)}"
        return "accepted", "accepted"

    def _next_input(self) -> bytes:
        rng = self._mutator.rng
        data = self._target.mutate(self._mutator, rng.choice(self._seeds))
        while rng.random() < 0.2:
            data = self._target.mutate(self._mutator, data)
        return data

    def _note(self, data: bytes, reason: str) -> None:
        key = reason.split(": ")[0]
        if key not in self._reasons:
            self._reasons.add(key)
            self.report.bad.append(BadInput(data, reason))


def _raised_at(error: BaseException) -> str:
    """The innermost line of ours."""
    step, last, ours = error.__traceback__, "", ""
    while step is not None:
        path = step.tb_frame.f_code.co_filename
        last = f"{path}:{step.tb_lineno}"
        if path.startswith(SHIPPED):
            ours = last
        step = step.tb_next
    return (ours or last).rpartition("/")[2]


@contextmanager
def bounded_time(number: Callable[[], int]) -> Iterator[None]:
    """Stops what computes without end, by the time of the CPU: where the ``number`` of inputs stays the same
    for :data:`HANG_LOOKS` looks. Only the main thread can.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    looks = [number(), 0]

    def look(*_: object) -> None:
        now = number()
        looks[:] = [now, looks[1] + 1 if now == looks[0] else 1]
        if looks[1] >= HANG_LOOKS:
            raise InputHangs

    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def resident_bytes() -> int:
    """What this process has in memory; its highest so far where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * resource.getpagesize()


def store_input(target: str, one: BadInput) -> Path:
    """Where it is stored, by its digest."""
    path = FOUND / target / hashlib.sha256(one.data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(one.data)
    return path
