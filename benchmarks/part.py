"""A part of the benchmarks: how it is taken, and how its lines become a table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from benchmarks.figures import Figure, significant
from benchmarks.host import Bench
from benchmarks.results import Line, Row


class Rounds(Enum):
    """How often a part is taken in one run: what is compared is taken several times, in turn."""

    COMPARED = "rounds"
    PEERS = "peer_rounds"
    ONCE = ""


@dataclass(frozen=True)
class Column:
    """A number in a table."""

    name: str
    heading: str


@dataclass(frozen=True)
class Part:
    name: str
    title: str
    how: str
    """A paragraph for readers."""
    columns: Sequence[Column]
    measure: Callable[[Bench], AsyncIterator[Row]]
    rounds: Rounds = Rounds.ONCE
    quick: bool = True
    """Whether the quick run takes it, too."""

    def table(self, lines: Sequence[Line]) -> str:
        """The lines as a Markdown table, empty without any; columns without any number are left out."""
        if not lines:
            return ""
        columns = [column for column in self.columns if any(column.name in line.figures for line in lines)]
        cells = [["", "case", *(column.heading for column in columns), ""]]
        for line in lines:
            numbers = [_cell(line.figures.get(column.name)) for column in columns]
            note = line.note if line.figures or not line.note else f"left out: {line.note}"
            cells.append([line.subject, line.case, *numbers, note])
        if not any(row[-1] for row in cells):
            cells = [row[:-1] for row in cells]
        return table(cells, numeric=range(2, 2 + len(columns)))


def table(cells: Sequence[Sequence[str]], *, numeric: Sequence[int]) -> str:
    """A Markdown table; the first row is its head."""
    clean = [[" ".join(cell.replace("|", "/").split()) for cell in row] for row in cells]
    widths = [max(3, *(len(row[column]) for row in clean)) for column in range(len(clean[0]))]
    ruler = ["-" * (width - 1) + ":" if column in numeric else "-" * width for column, width in enumerate(widths)]
    rows = [clean[0], ruler, *clean[1:]]
    aligned = [
        [cell.rjust(width) if column in numeric else cell.ljust(width) for column, (cell, width) in pairs]
        for pairs in (enumerate(zip(row, widths, strict=True)) for row in rows)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in aligned)


def _cell(figure: Figure | None) -> str:
    """The median, and the range of the rounds where there are several."""
    if figure is None:
        return ""
    if figure.rounds == 1 or significant(figure.low) == significant(figure.high):
        return significant(figure.median)
    return f"{significant(figure.median)} ({significant(figure.low)} to {significant(figure.high)})"
