"""``python -m benchmarks``: the same as ``python -m benchmarks.run``."""

from benchmarks.run import main

if __name__ == "__main__":
    raise SystemExit(main())
