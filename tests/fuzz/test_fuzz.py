"""Whatever a decoder gets, it answers with a value or an error of SCAR, soon, and keeps nothing."""

from __future__ import annotations

import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import scar
from scar.errors import InvalidRequest
from tests.fuzz import __main__ as command
from tests.fuzz import engine
from tests.fuzz.decoders import EXCUSED, find_decoders, reached_decoders
from tests.fuzz.engine import KEPT, BadInput, Fuzzer, FuzzTarget
from tests.fuzz.mutations import BOMB, Mutator
from tests.fuzz.record import FuzzRecord
from tests.fuzz.targets import TARGETS

INPUTS = 10_000  # of the quickest targets, half a second each
LEAST = 250
SEED = "tests"
RECORD = engine.ROOT / "docs/results/fuzz.json"
PAGE = engine.ROOT / "docs/security.md"
KEPT_INPUTS = [path for target in TARGETS.values() for path in target.kept()]


@pytest.mark.parametrize("name", TARGETS)
def test_only_typed_errors_in_bounded_time_and_memory(name: str) -> None:
    target = TARGETS[name]
    report = Fuzzer(target, SEED).run(max(LEAST, INPUTS // target.cost))
    assert report.bad == [], "python -m tests.fuzz --target NAME stores such inputs"


@pytest.mark.parametrize("path", KEPT_INPUTS, ids=lambda path: f"{path.parent.name}-{path.name[:6]}")
def test_an_input_that_showed_a_defect_shows_none_any_more(path: Path) -> None:
    fuzzer = Fuzzer(TARGETS[path.parent.name], SEED)
    fuzzer.try_input(path.read_bytes(), measured=True)
    fuzzer.try_input(path.read_bytes())
    assert fuzzer.report.bad == []


def test_every_kept_input_has_a_target() -> None:
    assert {path.name for path in KEPT.iterdir()} <= set(TARGETS)


def test_every_decoder_has_a_target() -> None:
    """By running the targets, so that none only says that it reaches one."""
    decoders = set(find_decoders())
    reached = reached_decoders(TARGETS.values())
    excused = {decoder for some in EXCUSED.values() for decoder in some}
    assert decoders - reached == excused
    assert len(decoders & reached) > 50


# --- the engine finds what it is for


def plain(decode: object) -> FuzzTarget:
    return FuzzTarget("plain", lambda: [b"seed"], decode)  # type: ignore[arg-type]


def typed(data: bytes) -> None:
    if data != b"seed":
        raise InvalidRequest("no")


def test_what_raises_typed_errors_is_fine() -> None:
    report = Fuzzer(plain(typed), SEED).run(300)
    assert (report.bad, report.inputs) == ([], 301)
    assert report.outcomes["InvalidRequest"] > 200


def test_an_untyped_error_is_found_once_with_its_place() -> None:
    def decode(data: bytes) -> None:
        if len(data) > 6:
            raise KeyError("x")

    (bad,) = Fuzzer(plain(decode), SEED).run(300).bad
    assert bad.reason.startswith("KeyError at test_fuzz.py:")
    assert len(bad.data) > 6


def test_an_endless_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CPU_SECONDS", 0.02)

    def decode(data: bytes) -> None:
        while data != b"seed":
            pass

    (bad,) = Fuzzer(plain(decode), SEED).run(2).bad
    assert "takes more than" in bad.reason


def test_an_input_that_takes_much_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PEAK_BYTES", 1 << 20)
    (bad,) = Fuzzer(plain(lambda data: bytes(2 << 20)), SEED).run(200).bad
    assert "1 MiB" in bad.reason


def test_memory_that_is_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(engine, "GROWTH_BYTES", 8 << 20)
    # far more than other tests of this process may have left to the allocator
    (bad,) = Fuzzer(plain(lambda data: kept.append(b"x" * (1 << 20))), SEED).run(200).bad
    assert "bytes more" in bad.reason


def test_a_target_that_refuses_what_encoders_write_is_no_target() -> None:
    def refuse(data: bytes) -> None:
        raise InvalidRequest("no")

    with pytest.raises(AssertionError, match="refuses what encoders write"):
        Fuzzer(plain(refuse), SEED).run(1)


def test_a_seed_makes_the_same_inputs() -> None:
    def inputs() -> list[bytes]:
        seen: list[bytes] = []
        Fuzzer(plain(seen.append), "7").run(50)
        return seen

    assert inputs() == inputs()


def test_compressed_bytes_that_grow_beyond_every_limit_are_among_the_inputs() -> None:
    mutator = Mutator(random.Random(0))
    assert any(mutator.packed_bytes() == BOMB for _ in range(2000))


# --- the command


def raise_once(job: tuple[str, str, int]) -> engine.FuzzReport:
    return engine.FuzzReport(job[0], job[2], bad=[BadInput(b"bad", "KeyError at x")])


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(engine, "FOUND", tmp_path)
    return tmp_path


def test_what_is_found_is_stored_and_replayed(found: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(data: bytes) -> None:
        raise KeyError(data)

    path = engine.store_input("plain", BadInput(b"bad", "KeyError at x"))
    assert path.is_relative_to(found / "plain")
    monkeypatch.setitem(command.TARGETS, "plain", plain(decode))
    with pytest.raises(KeyError, match="bad"):
        command.replay(path)


def test_the_command_prints_a_line_for_each_decoder(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run_targets(["block-ids"], "0", 60) == []
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split()[:2] == ["decoder", "inputs"]
    assert line.split()[:2] == ["block-ids", "61"]


def test_batches_of_a_target_differ() -> None:
    batches = list(command.plan_batches(["a", "b"], "7", command.BATCH + 1))
    assert batches == [
        ("a", "7/0", command.BATCH),
        ("a", "7/1", 1),
        ("b", "7/0", command.BATCH),
        ("b", "7/1", 1),
    ]


def test_a_record_goes_on_where_it_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "BATCH", 20)
    path = tmp_path / "fuzz.json"
    command.run_targets(["block-ids"], "record", 40, FuzzRecord(path, "first"))
    command.run_targets(["block-ids"], "record", 60, FuzzRecord(path, "second"))
    seeds = len(TARGETS["block-ids"].seeds())
    (found,) = FuzzRecord(path, "").decoders.values()
    assert (found["batches"], found["inputs"]) == (3, 60 + 3 * seeds)
    assert sum(found["outcomes"].values()) == found["inputs"]
    assert found["commits"] == ["first", "second"]


def test_a_batch_that_showed_a_defect_is_not_recorded(found: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "make_report", raise_once)
    monkeypatch.setattr(command, "ProcessPoolExecutor", ThreadPoolExecutor)
    record = FuzzRecord(found / "fuzz.json", "first")
    assert len(command.run_targets(["block-ids"], "record", 60, record)) == 1
    assert record.batches_of("block-ids") == 0


def test_what_one_program_writes_into_scar_no_other_finds() -> None:
    target = TARGETS["training-file"]
    [written] = target.seeds()
    target.decode(written + b"scar.Job = scar.Table = scar.more = None\n")
    assert not hasattr(scar, "more")
    target.decode(written)


def test_the_page_says_how_much_was_tried() -> None:
    decoders = FuzzRecord(RECORD, "").decoders
    least = min(decoders.get(name, {"inputs": 0})["inputs"] for name in TARGETS)
    most = sum(found["inputs"] >= 10_000_000 for found in decoders.values())
    said = re.search(r"([\d ]+) inputs or more for each decoder, 10⁷ for (\d+) of (\d+)", PAGE.read_text())
    assert said, "docs/security.md has the sentence"
    assert int(said[1].replace(" ", "")) <= least < 2 * int(said[1].replace(" ", ""))
    assert (int(said[2]), int(said[3])) == (most, len(TARGETS))
