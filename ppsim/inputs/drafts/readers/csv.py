"""torch's schedule CSV: one row per rank, one cell per action, as torch.distributed.pipelining
loads it.

Both formats of torch are read, ``compute_only`` and ``compute_comms``, as well as its older
letters, in which ``B`` is the backward for the input and ``BW`` the full backward. A file may also
contain copies and collectives, which torch does not have, in the order of issue; ops without a
stage are written like ``S0``. The reader is stricter than torch's, which reads ``1F0xyz`` as
``1F0``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ppsim.base.text import shorten
from ppsim.base.unpack.limits import OBJECTS, Meter
from ppsim.base.unpack.texts import split_lines
from ppsim.core.draft import Draft
from ppsim.core.ops import COMPUTE, OF_STAGE, STAGELESS, Kind
from ppsim.errors import InputError

SUFFIXES = (".csv",)
_FULL = len(Kind)  # stands for the older BW until the dialect is known
_CODES = {**{kind.name: int(kind) for kind in Kind}, "BW": _FULL}
_ACTION = rf"(\d{{0,9}})({'|'.join(sorted(_CODES, key=len, reverse=True))})(\d{{0,9}})"
_OP = re.compile(_ACTION, re.ASCII)
_PLAIN = re.compile(rf"(?:{_ACTION}(?:,|$))++", re.ASCII)
_BEGIN = re.compile(
    rf'[\s,"]*+(?:\(?\d{{1,9}}[A-Z]|(?:{"|".join(k.name for k in STAGELESS)})\d{{1,9}}[ \t]*[,\n])'
)
_CELL = re.compile(r'[^\s,"][^,]*')
_QUOTES = ' \t"'
_PAIR = re.compile(r"\(([^()]*)\)OVERLAP_F_B")
OP = 200  # bytes of memory per op while a file is read
BATCH = 100_000  # ops converted to arrays at once
MOST_EMPTY = 10_000_000
_SYNTAX = (
    "a cell is <stage><kind><microbatch>, such as 2F0, 1SEND_F3, 0REDUCE_GRAD or "
    "(0F4;7B0)OVERLAP_F_B"
)


class _CellFault(Exception):
    """A fault of a cell: the reason, and an example of a correct cell."""


def matches(text: str) -> bool:
    """Return whether the text begins with a row of actions."""
    return bool(_BEGIN.match(text.lstrip()))  # skipping empty lines in the pattern is slow


def parse(text: str, source: str) -> Draft:
    """Return the draft whose queues are the rows.

    Raises:
        InputError: a cell is not an action (the message marks the cell), a line is empty, or the
            file mixes both dialects.
    """
    Meter(source, OBJECTS).take(OP * (text.count(",") - text.count(",,")))
    lines = tuple(split_lines(text, source, OP))
    tables, idle = [np.empty((0, 7), np.int64)], [np.empty((0, 2), np.int32)]
    plain, rows = list[tuple[str, str, str]](), list[tuple[int, int]]()
    for row, line in enumerate(lines, start=1):
        if _PLAIN.fullmatch(line) and not line.endswith(","):
            found = _OP.findall(line)
            plain += found
            rows.append((row, len(found)))
            if len(plain) > BATCH:
                tables.append(_plain_table(plain, rows, lines, source))
                plain, rows = [], []
        else:
            tables.append(_row(line, row, source, idle))
    tables.append(_plain_table(plain, rows, lines, source))
    table = np.concatenate(tables)
    table = table[np.argsort(table[:, 0], kind="stable")]
    older = _modernise(table, source)
    return Draft.from_table(
        source, table, devices=len(lines), lines=lines, older=older, idle=np.concatenate(idle)
    )


def _plain_table(
    plain: list[tuple[str, str, str]],
    rows: list[tuple[int, int]],
    lines: tuple[str, ...],
    source: str,
) -> NDArray[np.int64]:
    """Return rows of a draft's table from lines without pairs, blanks or empty cells."""
    ops = np.zeros((len(plain), 7), np.int64)
    if not plain:
        return ops
    ops[:, 1] = [_CODES[kind] for _, kind, _ in plain]
    ops[:, 2] = [int(stage or -1) for stage, _, _ in plain]
    ops[:, 3] = [int(microbatch or -1) for _, _, microbatch in plain]
    row, count = np.array(rows).T
    ops[:, 4] = np.repeat(row, count)
    ops[:, 0] = ops[:, 4] - 1
    ops[:, 5] = np.arange(1, len(ops) + 1) - np.repeat(np.cumsum(count) - count, count)
    wrong = np.flatnonzero(
        ((ops[:, 3] < 0) != np.isin(ops[:, 1], OF_STAGE))
        | ((ops[:, 2] < 0) != np.isin(ops[:, 1], STAGELESS))
    )
    if len(wrong):  # read the line again for a message with the cell
        line = int(ops[wrong[0], 4])
        _row(lines[line - 1], line, source, [])
    return ops


def _row(line: str, row: int, source: str, idle: list[NDArray[np.int32]]) -> NDArray[np.int64]:
    """Return one line as rows of a draft's table; append its empty cells to ``idle``."""
    if not line.strip():
        raise InputError(
            f"{source}, line {row}: empty", "torch reads an empty line as a rank: remove it"
        )
    found, cell, at = list[tuple[int, ...]](), 1, 0
    for match in _CELL.finditer(line):
        cell, at = cell + line.count(",", at, match.start()), match.start()
        try:
            members = list(_cell(match[0].rstrip(_QUOTES)))
        except _CellFault as wrong:
            raise _unreadable(wrong, source, line, row, cell, match.span()) from None
        first = 1 if len(members) == 2 else 0
        found += [(row - 1, *member, row, cell, first + n) for n, member in enumerate(members)]
    ops = np.array(found, np.int64).reshape(-1, 7)
    if line.count(",") >= len(ops):
        idle.append(_empty_cells(ops[:, 5], line, row, source))
    return ops


def _empty_cells(taken: NDArray[np.int64], line: str, row: int, source: str) -> NDArray[np.int32]:
    """Return row and cell of each empty cell of a line, shape (cells, 2)."""
    cells = line.count(",") + 1
    if cells - len(taken) > MOST_EMPTY:
        raise InputError(
            f"{source}, line {row}: {cells:,} cells, most of them empty", "leave empty cells out"
        )
    empty = np.ones(cells + 1, bool)
    empty[0] = empty[taken] = False
    numbers = np.flatnonzero(empty).astype(np.int32)
    return np.stack([np.full_like(numbers, row), numbers], axis=1)


def _cell(word: str) -> Iterator[tuple[int, int, int]]:
    """Yield kind, stage and microbatch of the op in a cell, or of both ops of a pair."""
    pair = _PAIR.fullmatch(word)
    members = pair[1].split(";") if pair else [word]
    if len(members) > 2 or (pair and len(members) == 1):
        raise _CellFault(
            f"a pair of {len(members)} ops", "a pair has two ops: (0F4;7B0)OVERLAP_F_B"
        )
    for member in members:
        op = _OP.fullmatch(member.strip())
        if op is None:
            raise _CellFault(f"not an action: '{shorten(member.strip(), 60)}'", _SYNTAX)
        kind = _CODES[op[2]]
        if (kind in OF_STAGE) == bool(op[3]):
            raise _CellFault(f"'{op[0]}' {'has a' if op[3] else 'lacks its'} microbatch", _SYNTAX)
        if (kind in STAGELESS) == bool(op[1]):
            raise _CellFault(f"'{op[0]}' {'has a' if op[1] else 'lacks its'} stage", _SYNTAX)
        if pair and kind not in (*COMPUTE, _FULL):
            raise _CellFault(f"'{op[0]}' in a pair", "a pair has compute ops: F with B, I or W")
        yield kind, int(op[1] or -1), int(op[3] or -1)


def _modernise(table: NDArray[np.int64], source: str) -> bool:
    """Replace the older letters in place; return whether the file has them.

    A file is older when it says BW, or when some op has both its B and its W and none has an I.
    """
    kind = table[:, 1]
    ops = table[:, 2] * (table[:, 3].max(initial=0) + 1) + table[:, 3]
    split = np.isin(ops[kind == Kind.B], ops[kind == Kind.W])
    input_only, full = kind == Kind.B, kind == _FULL
    if not full.any() and (not split.any() or not split.all() or (kind == Kind.I).any()):
        return False
    if (kind == Kind.I).any():
        raise InputError(
            f"{source} mixes torch's letters of today (I) with the older ones (BW)",
            "write B for a full backward and I for the backward for the input",
        )
    kind[input_only], kind[full] = Kind.I, Kind.B
    return True


def _unreadable(
    wrong: _CellFault, source: str, line: str, row: int, cell: int, span: tuple[int, int]
) -> InputError:
    """Return the error of one cell: the part of the line around it, with carets below the cell."""
    message, hint = wrong.args
    first, last = span
    while first and line[first - 1] in _QUOTES and not line[first - 1].isspace():
        first -= 1
    left, size = max(0, first - 30), min(len(line[first:last].rstrip()), 60)
    excerpt = f"{shorten(line[left : first + size + 30])}\n  {' ' * (first - left)}{'^' * size}"
    return InputError(f"{source}, line {row}, cell {cell}: {message}\n  {excerpt}", hint)
