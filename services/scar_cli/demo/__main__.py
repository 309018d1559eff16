"""``python -m scar_cli.demo``: the demonstration without the command line tool around it."""

from scar_cli.demo.main import run_demo

if __name__ == "__main__":
    raise SystemExit(run_demo())
