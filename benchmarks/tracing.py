"""What traces cost a push while nobody asks for them: all that a worker calls for its trace, with none begun.

python -m benchmarks.tracing [--shards 4]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence

from scar._client.push_traces import PushTraces
from scar.wire import tracing

PUSHES = 20_000
ROUNDS = 15  # the median counts; processor time, as other work may run beside it


def push_seconds(traces: PushTraces, shards: int) -> float:
    """Of one push to this many shards, what is spent on traces."""
    started = time.thread_time()
    for push in range(PUSHES):
        traces.begin(push, shards)
        for _ in range(shards):
            with traces.sending(push):
                pass
            traces.end_part(push)
    whole = time.thread_time() - started
    started = time.thread_time()
    for _ in range(PUSHES):
        for _ in range(shards):
            pass
    return (whole - (time.thread_time() - started)) / PUSHES


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What traces cost a push while they are off.")
    parser.add_argument("--shards", type=int, default=4, help="that get a part of each push")
    options = parser.parse_args(arguments)
    if tracing.is_on():
        raise SystemExit("traces are on: unset SCAR_TRACES")
    traces = PushTraces()
    costs = [1e6 * push_seconds(traces, options.shards) for _ in range(ROUNDS)]
    summary = {"us_per_push": round(statistics.median(costs), 3), "least": round(min(costs), 3)}
    print(json.dumps(summary | {"shards": options.shards}, indent=1))  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
