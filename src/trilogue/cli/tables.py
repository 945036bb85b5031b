"""Output of verbs: tables in columns, JSON, and sizes and times in readable units.

No table library is loaded: its import takes longer than most verbs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
NOTHING: Final = "-"
UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
STEP: Final = 1024

Row = Mapping[str, Any]


def spell_count(count: int, noun: str) -> str:
    """Return `1 message` or `12,000 messages`."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def print_json(value: object) -> None:
    """Print as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(rows: Iterable[Row], columns: Sequence[str], *, indent: str = "") -> None:
    """Print rows below the column names; numbers are right-aligned, None is `-`."""
    kept = [[_cell(row.get(column)) for column in columns] for row in rows]
    right = [all(cell.is_number for cell in cells) for cells in zip(*kept, strict=True)]
    right += [False] * (len(columns) - len(right))
    heads = [column.removesuffix("_bytes").replace("_", " ") for column in columns]
    widths = [
        max(len(head), *(len(row[at].text) for row in kept)) if kept else len(head)
        for at, head in enumerate(heads)
    ]
    head = indent + _line(heads, widths, right)
    print(f"{BOLD}{head}{PLAIN}" if is_coloured() else head)
    for row in kept:
        print(indent + _line([cell.text for cell in row], widths, right))


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = [
        text.rjust(width) if at_right else text.ljust(width)
        for text, width, at_right in zip(texts, widths, right, strict=True)
    ]
    return "  ".join(cells).rstrip()


class _Cell:
    __slots__ = ("is_number", "text")

    def __init__(self, text: str, *, is_number: bool) -> None:
        self.text = text
        self.is_number = is_number


def _cell(value: object) -> _Cell:
    if value is None or value == "":
        return _Cell(NOTHING, is_number=True)  # fits both kinds of columns
    if isinstance(value, bool):
        return _Cell("yes" if value else "no", is_number=False)
    if isinstance(value, int | Size):
        return _Cell(str(value), is_number=True)
    if isinstance(value, list | tuple):
        return _Cell(",".join(map(str, value)) or NOTHING, is_number=False)
    return _Cell(printable(str(value)), is_number=False)


class Size(int):
    """A number of bytes, printed with a unit."""

    def __str__(self) -> str:
        return spell_size(self)


def spell_size(size_bytes: float) -> str:
    """Return a size as `1.5 KiB`, with three digits."""
    at = 0
    while size_bytes >= STEP and at < len(UNITS) - 1:
        size_bytes /= STEP
        at += 1
    digits = 0 if at == 0 or size_bytes >= 100 else 1
    return f"{size_bytes:.{digits}f} {UNITS[at]}"


def spell_time(time_ms: int) -> str:
    """Return a time in ISO 8601, UTC; "" for none."""
    if time_ms < 0:
        return ""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError):
        return str(time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """Return a name without control characters, which could steer a terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def is_coloured() -> bool:
    """Return whether stdout is a terminal that takes colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
