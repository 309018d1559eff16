"""Where a break fits: however the formatter has wrapped the lines, and exactly once in its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.breaks import BREAKS
from scripts.breaks.kind import Break

ROOT = Path(__file__).resolve().parents[2]
CALL = "demand(owned == lost, text)"
WRAPPED = "if late:\n    demand(\n        owned == lost,\n        text,\n    )\n"


def changing(old: str, new: str = "pass") -> Break:
    return Break("G1", "part.py", old, new, "tests/unit/test_breaks.py::test_words_are_not_joined")


def found(old: str, text: str) -> list[str]:
    return [text[start:end] for start, end in changing(old).places(text)]


@pytest.mark.parametrize(
    "text",
    [
        "demand(owned == lost, text)\n",
        "demand(owned == lost, text,)\n",
        "demand(\n    owned == lost, text\n)\n",
        "demand(\n    owned\n    == lost,\n    text,\n)\n",
    ],
)
def test_it_fits_however_a_line_is_wrapped(text: str) -> None:
    assert found(CALL, text) == [text.removesuffix("\n")]


@pytest.mark.parametrize("old", ["demand(\n    owned == lost,\n    text,\n)", "demand(owned == lost, text,)"])
def test_a_trailing_comma_of_the_break_may_be_gone_from_the_source(old: str) -> None:
    assert found(old, f"{CALL}\n") == [CALL]


@pytest.mark.parametrize(
    "text", ["demand(owned == lost)\n", "demand(disowned == lost, text)\n", "demanded(owned)\n"]
)
def test_other_words_do_not_fit(text: str) -> None:
    assert found(CALL, text) == []


def test_words_are_not_joined() -> None:
    assert found("return lost", "returnlost\n") == []
    assert found("return lost", "return (\n    lost\n)\n") == []


def test_a_text_as_it_stands_wins_over_the_same_words_wrapped() -> None:
    assert found("    return 1\n", "    return 1\nreturn  1\n") == ["    return 1\n"]


def test_an_edit_is_made_where_it_fits(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text(WRAPPED)
    changing(CALL).apply(tmp_path)
    assert (tmp_path / "part.py").read_text() == "if late:\n    pass\n"


@pytest.mark.parametrize(("text", "times"), [(f"{CALL}\n{CALL}\n", 2), ("pass\n", 0), (WRAPPED + WRAPPED, 2)])
def test_what_is_there_twice_or_not_at_all_is_refused(tmp_path: Path, text: str, times: int) -> None:
    (tmp_path / "part.py").write_text(text)
    with pytest.raises(SystemExit, match=f"is {times} times in part.py, not once"):
        changing(CALL).apply(tmp_path)
    assert (tmp_path / "part.py").read_text() == text
    assert not changing(CALL).fits(tmp_path)


def test_an_edit_that_leaves_no_python_is_refused(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text(f"{CALL}\n")
    with pytest.raises(SyntaxError):
        changing(CALL, "demand(").apply(tmp_path)
    assert (tmp_path / "part.py").read_text() == f"{CALL}\n"


def test_it_fits_only_with_its_sources_and_its_tests(tmp_path: Path) -> None:
    assert not changing(CALL).fits(tmp_path)
    (tmp_path / "part.py").write_text(f"{CALL}\n")
    assert not changing(CALL).fits(tmp_path), "its test is gone"
    test = tmp_path / "tests/unit/test_breaks.py"
    test.parent.mkdir(parents=True)
    test.write_text("def test_words_are_joined() -> None: ...\n")
    assert not changing(CALL).fits(tmp_path), "its test has another name"
    test.write_text("def test_words_are_not_joined() -> None: ...\n")
    assert changing(CALL).fits(tmp_path)


@pytest.mark.parametrize("one", BREAKS, ids=lambda one: one.label)
def test_each_fits_and_names_the_test_that_notices_it(one: Break) -> None:
    assert one.fits(ROOT)
    assert "::" in one.test, "a list of files is slow, and leaves it to chance which test notices"
