"""``python -m scar_chaos``: what the chart's Job runs; the same as ``scar chaos``."""

import sys

import typer

from scar.errors import ScarError
from scar_chaos.command import chaos

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(chaos)

try:
    app(prog_name="python -m scar_chaos")
except ScarError as error:
    sys.exit(f"error: {error}")
