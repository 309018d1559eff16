"""``python -m scar_cli.demo``: the demonstration without the command line tool around it."""

from scar_cli.demo.main import main

if __name__ == "__main__":
    raise SystemExit(main())
