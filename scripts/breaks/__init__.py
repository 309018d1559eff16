"""All breaks: every module of this package has some in ``BREAKS``."""

from __future__ import annotations

import importlib
import pkgutil

from scripts.breaks.kind import Break

BREAKS: tuple[Break, ...] = tuple(
    one
    for module in sorted(found.name for found in pkgutil.iter_modules(__path__))
    for one in getattr(importlib.import_module(f"{__name__}.{module}"), "BREAKS", ())
)
