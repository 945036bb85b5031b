"""A part of the demo's data set, for tests of what is computed from it."""

from __future__ import annotations

from pathlib import Path

from trilogue.demo.data import unpack


def unpack_weeks(folder: Path) -> dict[str, Path]:
    """Return the CSV file of each table; flights and weather end with the 21st of January."""
    found = unpack(folder / "whole")
    for name in ("flights", "weather"):
        head, *rows = found[name].read_text().splitlines(keepends=True)
        time = head.rstrip().split(",").index("time_hour")
        some = [row for row in rows if row.rstrip().split(",")[time][:10] < "2013-01-22"]
        found[name] = folder / f"{name}.csv"
        found[name].write_text("".join([head, *some]))
    return found
