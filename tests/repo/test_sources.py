"""What the sources promise about themselves."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import scar
from scar.strategies import STRATEGIES
from scar.worker_strategies import WORKER_STRATEGIES
from tests.repo.sources import ROOT, SHIPPED, SOURCES, name

LINES = 350
TEST_LINES = 460


def test_exports_are_exactly_all() -> None:
    public = {
        key
        for key, value in vars(scar).items()
        if not key.startswith("_") and not isinstance(value, ModuleType)
    }
    assert set(scar.__all__) - {"__version__"} == public - {"annotations"}
    assert len(set(scar.__all__)) == len(scar.__all__)


def test_every_export_is_explained() -> None:
    unexplained = [
        key for key in scar.__all__ if callable(getattr(scar, key)) and not getattr(scar, key).__doc__
    ]
    assert unexplained == []


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_file_is_short(path: Path) -> None:
    limit = TEST_LINES if path.is_relative_to(ROOT / "tests") else LINES
    assert len(path.read_text().splitlines()) <= limit


@pytest.mark.parametrize("path", SHIPPED, ids=name)
def test_nothing_can_execute_what_it_reads(path: Path) -> None:
    """Contract 8: no pickle, no eval, no numpy file that may hold pickles, no shell.

    One module reads a pickle of torch's, by an unpickler that knows a list of records and nothing else:
    tests/unit/test_torch_checkpoint_folders.py.
    """
    forbidden = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
    if path == ROOT / "sdk/scar/torch/checkpoint_folders.py":
        forbidden.remove("pickle")
        assert "pickle.load" not in path.read_text()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not forbidden & {alias.name.split(".")[0] for alias in node.names}, f"line {node.lineno}"
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in forbidden, f"line {node.lineno}"
        elif isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            assert called not in ("eval", "exec", "compile", "__import__"), f"line {node.lineno}"
            risky = {
                word.arg
                for word in node.keywords
                if isinstance(word.value, ast.Constant) and word.value.value is True
            }
            assert not risky & {"allow_pickle", "shell"}, f"line {node.lineno}"


def test_module_says_what_it_is() -> None:
    silent = [
        name(path)
        for path in SHIPPED
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


@pytest.mark.parametrize("path", sorted((ROOT / "proto").rglob("*.proto")), ids=lambda path: path.name)
def test_proto_is_explained(path: Path) -> None:
    """Every RPC, field and message has a comment; a message that is the request or the reply of an RPC has
    the RPC's.
    """
    lines = path.read_text().splitlines()
    spoken = set(re.findall(r"rpc \w+\((?:stream )?(\w+)\) returns \((?:stream )?(\w+)\)", path.read_text()))
    by_rpc = {message for pair in spoken for message in pair}
    silent = []
    for above, line in zip(["", *lines], lines, strict=False):
        commented = "//" in line or above.strip().startswith("//")
        message = re.match(r"(?:message|enum) (\w+)", line)
        wanted = (
            message.group(1) not in by_rpc if message else re.match(r"\s+(rpc |[\w.<>, ]+ \w+ = \d+;)", line)
        )
        if wanted and not commented and not re.match(r"\s+\w+_\w+ = \d+;", line):
            silent.append(line.strip())
    assert silent == []


@pytest.mark.parametrize("path", SHIPPED, ids=name)
def test_nothing_that_is_shipped_imports_from_the_checkout(path: Path) -> None:
    """`scar experiment` alone does, and says so where there is no checkout."""
    outside = {"experiments", "benchmarks", "scripts", "tests", "examples"}
    if name(path) == "services/scar_cli/experiment.py":
        outside.remove("experiments")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not outside & {alias.name.split(".")[0] for alias in node.names}, f"line {node.lineno}"
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in outside, f"line {node.lineno}"


def test_every_package_is_in_the_wheel_and_in_a_layer() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    there = {path.parent.name for root in ("sdk", "services") for path in (ROOT / root).glob("*/__init__.py")}
    packages = pyproject["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {package.split("/")[1] for package in packages} == there
    assert set(pyproject["importlinter"]["root_packages"]) == there
    [layers] = [one["layers"] for one in pyproject["importlinter"]["contracts"] if one["type"] == "layers"]
    assert {one for layer in layers for one in layer.split(" | ")} == there


RUNS = re.compile(
    r"(subprocess\.(run|Popen|call|check_call|check_output)|os\.(exec|spawn|posix_spawn)\w*|os\.system)"
)


def program(call: ast.Call) -> str:
    """What a call runs, as source: "sys.executable", "'/bin/sh'", a variable's name."""
    first = call.args[0] if call.args else None
    if isinstance(first, ast.List | ast.Tuple) and first.elts:
        first = first.elts[0]
    return ast.unparse(first).split("(")[0] if first is not None else ""


@pytest.mark.parametrize("path", SHIPPED, ids=name)
def test_nothing_needs_a_program_that_a_machine_may_lack(path: Path) -> None:
    """Redis, above all, comes from a wheel and nowhere else: a second path would be the one that nobody
    tests.
    """
    tree = ast.parse(path.read_text())
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert not [text for text in texts if re.search(r"(?<!/)(redis|valkey)-server|fakeredis", text)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert not [call for call in calls if ast.unparse(call.func) in ("shutil.which", "which")]
    started = {program(call) for call in calls if RUNS.fullmatch(ast.unparse(call.func))}
    constants = {one for one in started if one.startswith("'") and not one.startswith("'/")}
    assert not constants, f"{constants}: from PATH"


def test_every_core_folder_is_kept_pure() -> None:
    """import-linter names each `core` folder of the tree with all that is in it."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    cores = next(one for one in linter["contracts"] if one["name"].startswith("Cores are pure"))
    folders = [*ROOT.glob("services/**/core"), *ROOT.glob("sdk/**/core")]
    there = {".".join(folder.relative_to(ROOT).parts[1:]) + ".**" for folder in folders}
    assert there == {name for name in cores["source_modules"] if name.endswith(".**")}
    assert len(there) >= 5


LAYOUT = ROOT / "services" / "scar_runtime" / "store" / "layout.py"
CODEC = ROOT / "sdk" / "scar" / "wire" / "table_messages.py"  # "init/", which is a part of the job's message
STORE_FOLDERS = (
    "epochs",
    "manifests",
    "objects",
    "ledger",
    "finished",
    "owners",
    "pins",
    "init",
    "_clusters",
    "probe",
)
RECORDS = ("numbers", "newest", "numbered", "folder", "get_record", "put_record", "create_record")


def spelled_keys(tree: ast.AST) -> list[str]:
    """Texts that spell a key of the store, or name one of its folders to what reads and writes there."""
    folder = re.compile(rf"(^|/)({'|'.join(STORE_FOLDERS)})/")
    texts = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value
    ]
    found = [text.value for text in texts if folder.search(text.value) and " " not in text.value]
    found += [text.value for text in texts if text.value == "owner-beat"]
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if ast.unparse(call.func) in RECORDS:
            found += [ast.unparse(one) for one in call.args if isinstance(one, ast.Constant | ast.JoinedStr)]
    return found


@pytest.mark.parametrize("path", [path for path in SHIPPED if path not in (LAYOUT, CODEC)], ids=name)
def test_only_the_layout_spells_keys_of_the_store(path: Path) -> None:
    assert spelled_keys(ast.parse(path.read_text())) == []


def test_a_key_that_is_spelled_elsewhere_is_found() -> None:
    assert spelled_keys(ast.parse('store.list("epochs/")')) == ["epochs/"]
    assert spelled_keys(ast.parse('newest(store, "manifests")')) == ["'manifests'"]
    assert spelled_keys(ast.parse('store.get("owner-beat")')) == ["owner-beat"]


@pytest.mark.parametrize("path", SHIPPED, ids=name)
def test_strategies_are_facts_not_names(path: Path) -> None:
    """docs/adr/011: who asks for a name is wrong about the next strategy."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
            named = [side for side in sides if side.strip("'") in {*STRATEGIES, *WORKER_STRATEGIES}]
            assert not (named and re.search(r"strategy|recovery", " ".join(sides))), f"line {node.lineno}"
