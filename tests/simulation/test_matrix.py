"""Every row of the fault matrix and every guarantee is tried, or says why not."""

from __future__ import annotations

import pytest

from tests.simulation.faults import KINDS
from tests.simulation.matrix import GUARANTEES, ROWS, MatrixRow, WatchedGuarantee, kinds_by_row
from tests.simulation.simulated import ROOT

BY_ROW = kinds_by_row({kind.name: kind.rows for kind in KINDS.values()})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_a_row_is_simulated_or_says_why_not(row: MatrixRow) -> None:
    assert BY_ROW.get(row.key) or row.reason or row.elsewhere
    assert not (BY_ROW.get(row.key) and row.reason), "it is simulated: a reason why not is no longer true"
    for test in row.elsewhere:
        file, _, function = test.partition("::")
        assert f"def {function}" in (ROOT / file).read_text()


@pytest.mark.parametrize("one", GUARANTEES, ids=lambda one: one.key)
def test_a_guarantee_is_watched(one: WatchedGuarantee) -> None:
    assert one.watched
    assert all((ROOT / file).is_file() for file in one.watched)


def test_kinds_name_rows_that_there_are() -> None:
    known = {row.key for row in ROWS} | {one.key for one in GUARANTEES}
    assert set(BY_ROW) <= known
    assert all(kind.rows for kind in KINDS.values())
    assert len(KINDS) >= 40
