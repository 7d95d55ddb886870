"""Tables and sentences that fit the terminal: columns are left out whole, numbers are never cut."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import click

BETWEEN = 2  # blanks between columns


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    at_least: int,
    spare: Sequence[str] = (),
    left: Sequence[str] = (),
) -> None:
    """Print a table whose first column holds names.

    Where it is wider than the terminal, columns are left out, those of ``spare`` first and in that order, then from the
    right; where not even one number fits beside the names, each row becomes a block of lines.

    Args:
        headings: one per column, of up to two lines.
        rows: the cells.
        at_least: columns of text that a pipe has.
        spare: headings of columns that may go first.
        left: headings of columns of words, which are aligned on the left.
    """
    from rich.table import Table

    from ppsim.cli._print import console

    screen = console(at_least=at_least)
    kept = _fit_columns(headings, rows, screen.width, spare)
    if len(kept) < 2:
        for row in rows:
            _print_block(headings, row)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, BETWEEN, 0, 0))
    for column in kept:
        table.add_column(
            headings[column], justify="right" if column and headings[column] not in left else "left", no_wrap=True
        )
    for row in rows:
        table.add_row(*(row[column] for column in kept))
    screen.print(table)
    if gone := [_on_one_line(heading) for column, heading in enumerate(headings) if column not in kept]:
        echo_wrapped(f"no room for {', '.join(gone)}: a wider terminal shows them")


def echo_wrapped(text: str, indent: int = 0) -> None:
    """Print a line, on a terminal wrapped between words with ``indent`` blanks before what follows."""
    from ppsim.cli._print import console

    screen = console()
    if screen.is_terminal and len(text) > screen.width:
        indent = min(indent, screen.width // 2)
        text = textwrap.fill(
            text,
            screen.width,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
            drop_whitespace=True,
        )
    click.echo(text)


def _fit_columns(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, spare: Sequence[str]) -> list[int]:
    """The columns that fit into so many, the names first."""
    from rich.cells import cell_len

    texts = [[*heading.split("\n"), *cells] for heading, cells in zip(headings, zip(*rows, strict=True), strict=True)]
    wide = [max(map(cell_len, column)) + BETWEEN for column in texts]
    kept = list(range(len(headings)))
    first = [headings.index(heading) for heading in spare]
    for column in [*first, *(column for column in reversed(kept) if column not in first)]:
        if sum(wide[column] for column in kept) - BETWEEN <= width:
            break
        if column:
            kept.remove(column)
    return kept if sum(wide[column] for column in kept) - BETWEEN <= width else kept[:1]


def _print_block(headings: Sequence[str], row: Sequence[str]) -> None:
    """A row as lines: its name, then a number per line."""
    click.echo(row[0])
    for heading, cell in zip(headings[1:], row[1:], strict=True):
        click.echo(f"  {cell}  {_on_one_line(heading)}")


def _on_one_line(heading: str) -> str:
    """A heading of two lines as one; a name cut after an underscore is joined."""
    return heading.replace("_\n", "_").replace("\n", " ").strip()
