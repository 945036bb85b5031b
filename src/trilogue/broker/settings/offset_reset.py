"""Where a share group begins to read a partition: the values of `share.auto.offset.reset`."""

from __future__ import annotations

import re
from typing import Final

from trilogue.broker.settings.values import InvalidValue

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration:"

_NUMBER = r"(?:(\d{1,9})%s)?"
_TIME = _NUMBER % "H" + _NUMBER % "M" + r"(?:(\d{1,9})(?:\.(\d{1,9}))?S)?"
_DURATION = re.compile(rf"P{_NUMBER % 'D'}(?:T(?=\d){_TIME})?", re.IGNORECASE)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


def check_offset_reset(text: str) -> str:
    """Return a value as it is, or raise InvalidValue."""
    if text not in {EARLIEST, LATEST}:
        duration_ms(text)
    return text


def duration_ms(text: str) -> int:
    """Return the milliseconds of `by_duration:PnDTnHnMn.nS`; InvalidValue."""
    found = _DURATION.fullmatch(text.removeprefix(BY_DURATION))
    if not text.startswith(BY_DURATION) or found is None or not any(found.groups()):
        raise InvalidValue("expected earliest, latest, or by_duration:PnDTnHnMn.nS")
    *whole, fraction = found.groups()
    total = sum(int(number or 0) * unit for number, unit in zip(whole, _UNITS_MS, strict=True))
    return total + int((fraction or "0").ljust(3, "0")[:3])
