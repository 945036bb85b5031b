"""Positions of protocols whose message ids are no single number, as the planning has them.

A Pulsar position is a ledger and an entry: the entry that is read next. Plans count with the
number `ledger << 64 | entry`; checkpoints and options have the text `ledger:entry`.
"""

from __future__ import annotations

import re

LEDGER_SHIFT = 64
_ENTRY_MASK = (1 << LEDGER_SHIFT) - 1
_TEXT = re.compile(r"(\d+):(\d+)")


def join_position(ledger: int, entry: int) -> int:
    """Return the position of an entry as a number; entries of a later ledger come later."""
    return ledger << LEDGER_SHIFT | entry


def split_position(position: int) -> tuple[int, int]:
    """Return ledger and entry."""
    return position >> LEDGER_SHIFT, position & _ENTRY_MASK


def is_in_ledger(position: int) -> bool:
    """Whether a number is a position of Pulsar: ledgers are numbered from 1 on."""
    return position >> LEDGER_SHIFT > 0


def is_countable(start: int, end: int) -> bool:
    """Whether two positions are in one ledger (or are offsets): their difference is a count."""
    return start >> LEDGER_SHIFT == end >> LEDGER_SHIFT


def format_position(position: int) -> int | str:
    """Return an offset as it is, and a position in a ledger as `ledger:entry`."""
    ledger, entry = split_position(position) if position > 0 else (0, 0)
    return f"{ledger}:{entry}" if ledger else position


def parse_position(value: int | str) -> int:
    """Return the number that `format_position` wrote; ValueError for another text."""
    found = _TEXT.fullmatch(value) if isinstance(value, str) else None
    return int(value) if found is None else join_position(int(found[1]), int(found[2]))
