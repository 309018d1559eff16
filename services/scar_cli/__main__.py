"""``python -m scar_cli``: the same as ``scar``."""

from scar_cli.main import main

main()
