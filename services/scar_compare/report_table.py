"""The table of a report on a screen of any width."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

FRAME = 3  # of a screen's columns, around a column of a table


def print_table(title: str, rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print the rows, headings first, as one table or as several below each other."""
    for number, part in enumerate(fold_columns(rows, console.width)):
        table = Table(title=None if number else title)
        for index, heading in enumerate(part[0]):
            table.add_column(heading, justify="right" if index else "left")
        for row in part[1:]:
            table.add_row(*row)
        console.print(table)


def fold_columns(rows: Sequence[Sequence[str]], width: int) -> list[list[list[str]]]:
    """Tables that fit into ``width`` columns of a screen, each with the first column of the whole table."""
    needs = [max(len(row[index]) for row in rows) + FRAME for index in range(len(rows[0]))]
    groups = [[0]]
    used = needs[0] + 1
    for index, need in enumerate(needs[1:], 1):
        if len(groups[-1]) > 1 and used + need > width:
            groups.append([0])
            used = needs[0] + 1
        groups[-1].append(index)
        used += need
    return [[[row[index] for index in group] for row in rows] for group in groups]
