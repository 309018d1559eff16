"""What is written in C is compiled when SCAR is installed, and used only when it is of these sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scar import row_copies
from scar.compiled import load_library
from scar_ps.core import rule_kernels
from scripts.compile_kernels import LIBRARIES, ROOT, compile_library

MODULES = {
    "sdk/scar/row_copies.c": (row_copies, "scar_row_copies"),
    "services/scar_ps/core/rule_kernels.c": (rule_kernels, "scar_rule_kernels"),
}
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")


def test_every_source_has_its_module() -> None:
    assert {
        source: str(module.LIBRARY.relative_to(ROOT)) for source, (module, _) in MODULES.items()
    } == LIBRARIES


@needs_compiler
@pytest.mark.parametrize("source", MODULES)
def test_a_library_of_another_version_or_none_is_not_used(source: str, tmp_path: Path) -> None:
    module, name = MODULES[source]
    changed = tmp_path / "kernels.c"
    changed.write_text(f"#include <stdint.h>\nint64_t {name}(void) {{ return {module.VERSION + 1}; }}\n")
    library = tmp_path / "libkernels.so"
    assert compile_library(changed, library)
    assert load_library(library, name, module.VERSION) is None
    assert load_library(library, name, module.VERSION + 1) is not None
    assert load_library(tmp_path / "absent.so", name, module.VERSION) is None
    (tmp_path / "text.so").write_bytes(b"not a library")
    assert load_library(tmp_path / "text.so", name, module.VERSION) is None
    assert load_library(module.LIBRARY, name, module.VERSION) is not None


@pytest.mark.parametrize("compiler", ["false", "/absent/cc"])
def test_without_a_compiler_that_works_nothing_old_is_left(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    library = tmp_path / "libkernels.so"
    library.write_bytes(b"old")
    assert not compile_library(tmp_path / "kernels.c", library)
    assert list(tmp_path.iterdir()) == []


@needs_compiler
@pytest.mark.parametrize("source", LIBRARIES)
def test_the_library_here_is_that_of_this_source(source: str, tmp_path: Path) -> None:
    """Whoever changes the C without a new VERSION finds out."""
    fresh = tmp_path / Path(LIBRARIES[source]).name
    assert compile_library(ROOT / source, fresh)
    here = ROOT / LIBRARIES[source]
    assert fresh.stat().st_size == here.stat().st_size, "it is of another source: run pip install -e ."
