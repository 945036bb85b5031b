"""Recorded frames: real clients with the real server (tests/vectors/tubemq/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parents[2] / "vectors/tubemq"


class Recorded(NamedTuple):
    """One frame as it was on the wire; `at_s` counts from the start of the recording."""

    at_s: float
    connection: int
    to: str  # "master" or "broker": whose connection it is
    is_request: bool
    octets: bytes


def recorded(name: str) -> list[Recorded]:
    """Read a recording, in the order of time."""
    with (FOLDER / f"{name}.jsonl").open() as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Recorded(row["t"], row["conn"], row["to"], row["dir"] == "req", bytes.fromhex(row["hex"]))
        for row in rows
    ]


NAMES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
