"""Every rule of the values' schema is broken once, and both versions of Helm name the value that breaks
it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.helm.chart import CHART

Helm = Callable[..., subprocess.CompletedProcess[str]]

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
# objects would be merged
OTHER = {"string": 7, "integer": "seven", "number": "seven", "boolean": "seven", "array": "seven"}
NO_FIT = "! no fit !"


def rules(schema: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """(keyword, path as Helm writes it, a value that breaks this rule) for every rule below ``path``."""
    while "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    if schema.get("type") in list(OTHER):
        yield "type", path, OTHER[schema["type"]]
    if "pattern" in schema:
        assert not re.search(schema["pattern"], NO_FIT), path
        yield "pattern", path, NO_FIT
    for keyword, wrong in (("enum", "nosuch"), ("minLength", ""), ("minItems", []), ("required", {})):
        if keyword in schema:
            yield keyword, path, wrong
    for keyword, step in (("minimum", -1), ("maximum", 1)):
        if keyword in schema:
            yield keyword, path, schema[keyword] + step
    yield from rules_inside(schema, path)


def rules_inside(schema: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """The same of its properties and items."""
    inner = {
        name: below for name, below in schema.get("properties", {}).items() if (path, name) != ("", "global")
    }
    if isinstance(schema.get("additionalProperties"), dict):
        inner["key"] = schema["additionalProperties"]
    elif schema.get("additionalProperties") is False:
        yield "additionalProperties", child(path, "surplus"), 1
    for name, below in inner.items():
        yield from rules(below, child(path, name))
    if "items" in schema:
        yield from rules(schema["items"], f"{path}[0]")


def child(path: str, name: str) -> str:
    escaped = name.replace(".", r"\.")
    return f"{path}.{escaped}" if path else escaped


BROKEN = list(rules(SCHEMA))


@pytest.mark.parametrize(
    ("keyword", "items"), sorted({(keyword, "[" in path) for keyword, path, _ in BROKEN})
)
def test_a_value_that_breaks_the_rule_is_named(helm: Helm, keyword: str, items: bool) -> None:
    """All values that break such a rule at once; ``items``: those in lists, apart from the lists
    themselves.
    """
    broken = {path: wrong for kind, path, wrong in BROKEN if (kind, "[" in path) == (keyword, items)}
    words = [word for path, wrong in broken.items() for word in ("--set-json", f"{path}={json.dumps(wrong)}")]
    done = helm("template", "scar", str(CHART), *words)
    assert done.returncode != 0
    lines = done.stderr.replace("~1", "/").splitlines()
    for path in broken:
        names = re.findall(r"(?:\\.|[^.\[\]])+", path)[-2:]
        parts = [name.replace("\\", "") for name in names if not name.isdigit()]
        assert any(all(part in line for part in parts) for line in lines), (
            f"{path} is not named in {done.stderr}"
        )
