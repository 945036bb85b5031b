"""Positions in a partition on the command line: an offset, an end, a time.

beginning, end          also earliest, latest
1234                    an offset
-1h, -30min, -2d        before now; units ms, s, min, h, d
2026-05-01T12:00        ISO 8601; without a zone in that of this machine
@1777636800000          milliseconds since 1970
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final, NamedTuple

EARLIEST: Final = -2
LATEST: Final = -1
UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000, "ms": 1}
_ENDS: Final = {"beginning": EARLIEST, "earliest": EARLIEST, "end": LATEST, "latest": LATEST}
_AGO: Final = re.compile(r"-([0-9]{1,12}(?:\.[0-9]{1,6})?)([a-z]*)")


class PositionError(Exception):
    """A text that is no position; the message has the valid forms."""


class Position(NamedTuple):
    """An offset, or a lookup for the server: a time in ms, EARLIEST, LATEST."""

    offset: int | None
    time: int = 0


def parse_position(text: str, now_ms: int | None = None) -> Position:
    """Parse a position; PositionError if it is none."""
    wanted = text.strip().lower()
    if wanted in _ENDS:
        return Position(None, _ENDS[wanted])
    if wanted.isdecimal() and wanted.isascii():
        return Position(int(wanted))
    if wanted.startswith("@") and wanted[1:].isdecimal():
        return Position(None, int(wanted[1:]))
    ago = _AGO.fullmatch(wanted)
    if ago is not None:
        number, unit = ago.groups()
        if unit not in UNITS_MS:
            raise PositionError(f"{text}: so long ago has one of the units {', '.join(UNITS_MS)}")
        now = int(time.time() * 1000) if now_ms is None else now_ms
        return Position(None, max(0, now - int(float(number) * UNITS_MS[unit])))
    try:
        moment = datetime.fromisoformat(text.strip())
        return Position(None, max(0, int(moment.timestamp() * 1000)))
    except (ValueError, OverflowError):
        raise PositionError(
            f"{text}: expected beginning, end, an offset, -1h, or a time such as 2026-05-01T12:00"
        ) from None
