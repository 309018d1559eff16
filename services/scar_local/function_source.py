"""A function of a running program as a training file: its source, and what it uses of its own module.

Nothing is pickled. Functions and classes of the same module go along as source, what is imported is imported
again, numbers, text, paths and containers of them are written as they are at the moment, arrays as files.
"""

from __future__ import annotations

import ast
import inspect
import re
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from scar.blocks import Array
from scar.errors import ConfigError

HEAD = """# Written by LocalCluster.train: {name} of {file!r}, and what it uses.

from __future__ import annotations

import pathlib as _pathlib
import sys as _sys

import numpy as _numpy

_sys.path += [path for path in {path!r} if path not in _sys.path]
"""
FUTURE = "from __future__ import annotations\n"  # with it annotations use no name
LEFT_OUT = ("__name__", "__builtins__")  # every module has its own
OTHERWISE = "Make it inside {}, use numbers, text and arrays, or train by a file: `scar train FILE`"


@dataclass(frozen=True)
class SourcePart:
    """Where lines of the training file come from: from ``line`` on they are ``file`` from ``origin`` on."""

    line: int
    file: str
    origin: int
    lines: int


@dataclass
class FunctionSource:
    """The training file, what lies beside it by file name, and where its lines come from."""

    name: str
    text: str = ""
    arrays: dict[str, Array] = field(default_factory=dict)
    parts: list[SourcePart] = field(default_factory=list)

    def write_to(self, folder: Path) -> Path:
        """Write everything into this folder; returns the training file."""
        folder.mkdir(exist_ok=True)
        for name, values in self.arrays.items():
            np.save(folder / name, values, allow_pickle=False)
        file = folder / "sent_function.py"
        file.write_text(self.text, encoding="utf-8")
        return file

    def restore_places(self, trace: str, file: Path) -> str:
        """A traceback that names the user's own files and lines instead of ``file``."""

        def place(match: re.Match[str]) -> str:
            number = int(match[1])
            for part in self.parts:
                if 0 <= number - part.line < part.lines:
                    return f'File "{part.file}", line {number - part.line + part.origin}'
            return match[0]

        return re.sub(rf'File "{re.escape(str(file))}", line (\d+)', place, trace)


def function_source(function: Callable[..., object]) -> FunctionSource:
    """Raises :class:`ConfigError` when it is no plain function, or uses what cannot be written."""
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise ConfigError(f"{function!r} is no function", "Make it by `def train(worker):`")
    plain = inspect.unwrap(function)
    names = {**plain.__globals__, **inspect.getclosurevars(plain).nonlocals}
    writer = _SourceWriter(function, names)
    if plain is not function:
        writer.ensure_named(function)
    return writer.write_source()


class _SourceWriter:
    """``names``: what the function can see."""

    def __init__(self, function: FunctionType, names: Mapping[str, object]) -> None:
        self._function = function
        self._names = names
        self._seen: set[str] = set()
        path = [str(Path(entry).absolute()) for entry in sys.path]
        name = function.__name__
        file = inspect.getfile(inspect.unwrap(function))
        self._found = FunctionSource(name, HEAD.format(name=name, file=file, path=path))

    def write_source(self) -> FunctionSource:
        self._seen.add(self._function.__name__)
        self._add_definition(self._function)
        return self._found

    def ensure_named(self, definition: Any) -> None:
        """Its source makes the same again only if nobody has wrapped or renamed it afterwards."""
        name = definition.__name__
        if self._names.get(name) is not definition:
            raise self._refusal(name, "is not what `def` or `class` has made under this name")

    def _add_definition(self, definition: Any) -> None:
        """What it uses comes first, since defaults, decorators and base classes need it."""
        name = definition.__name__
        try:
            lines, origin = inspect.getsourcelines(definition)
            file = inspect.getfile(inspect.unwrap(definition))
            source = textwrap.dedent("".join(lines))
            table = symtable.symtable(FUTURE + source, file, "exec")
        except (OSError, TypeError, SyntaxError) as error:
            raise self._refusal(name, f"has no source of its own ({error})") from error
        for used in sorted(set(_used_names(table))):
            self._add_name(used, source)
        self._found.text += "\n\n"
        line = self._found.text.count("\n") + 1
        self._found.parts.append(SourcePart(line, file, origin, len(lines)))
        self._found.text += source

    def _add_name(self, name: str, source: str) -> None:
        value = self._names.get(name)
        if isinstance(value, ModuleType):
            self._add_imports(name, value, source)
        elif name in self._names and name not in self._seen and name not in LEFT_OUT:
            self._seen.add(name)
            self._add_value(name, value)

    def _add_imports(self, name: str, module: ModuleType, source: str) -> None:
        """The module, and those below it that the source names: `xml.etree` is not there by `import xml`."""
        self._found.text += f"import {module.__name__} as {name}\n"
        for chain in set(re.findall(rf"\b{name}((?:\.\w+)+)", source)):
            parts = chain.split(".")[1:]
            below = [".".join((module.__name__, *parts[: end + 1])) for end in range(len(parts))]
            self._found.text += "".join(f"import {one} as _below\n" for one in below if one in sys.modules)

    def _add_value(self, name: str, value: Any) -> None:
        own = getattr(value, "__module__", None) == self._function.__module__
        if own and hasattr(value, "__name__"):
            self._add_own(name, value)
        elif _is_importable(value):
            self._found.text += f"from {value.__module__} import {value.__qualname__} as {name}\n"
        else:
            self._found.text += f"{name} = {self._value_text(name, value)}\n"

    def _add_own(self, name: str, definition: Any) -> None:
        """A function or class of the same module, which may have a second name."""
        own = definition.__name__
        self.ensure_named(definition)
        if getattr(inspect.unwrap(definition), "__closure__", None):
            raise self._refusal(own, "uses variables of a function around it")
        if name == own or own not in self._seen:
            self._seen.add(own)
            self._add_definition(definition)
        if name != own:
            self._found.text += f"{name} = {own}\n"

    def _value_text(self, name: str, value: object) -> str:
        if isinstance(value, np.ndarray | np.generic) and not np.asarray(value).dtype.hasobject:
            self._found.arrays[f"{name}.npy"] = np.asarray(value)
            return f'_numpy.load(_pathlib.Path(__file__).with_name("{name}.npy"), allow_pickle=False)[()]'
        if isinstance(value, PurePath):
            return f"_pathlib.Path({str(value)!r})"
        text = repr(value)
        try:
            if ast.literal_eval(text) == value:
                return text
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            pass  # no literal
        raise self._refusal(name, f"is of type {type(value).__name__}, which cannot be written as source")

    def _refusal(self, name: str, why: str) -> ConfigError:
        function = self._function.__name__
        return ConfigError(f"{function} cannot be sent to workers: {name} {why}", OTHERWISE.format(function))


def _used_names(table: symtable.SymbolTable) -> Iterator[str]:
    """What a source takes from its module or from the builtins."""
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (table.get_type() == "module" or symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _used_names(child)


def _is_importable(value: object) -> bool:
    """Whether its module has it under its own name."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    name = getattr(value, "__qualname__", None)
    return module is not None and name is not None and getattr(module, name, None) is value
