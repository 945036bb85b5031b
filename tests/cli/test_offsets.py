"""Places as people type them."""

from __future__ import annotations

import time

import pytest

from trilogue.cli.offsets import EARLIEST, LATEST, Position, PositionError, parse_position

NOW = 1_000_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Position(None, EARLIEST)),
        ("END", Position(None, LATEST)),
        ("0", Position(0)),
        ("17", Position(17)),
        ("@5", Position(None, 5)),
        ("-1h", Position(None, NOW - 3_600_000)),
        ("-1.5s", Position(None, NOW - 1_500)),
        ("-30min", Position(None, NOW - 1_800_000)),
        ("-99999999d", Position(None, 0)),
        ("1970-01-01T00:00:01Z", Position(None, 1_000)),
        ("1970-01-01T01:00:01+01:00", Position(None, 1_000)),
    ],
)
def test_ends_offsets_and_moments_are_places(text, expected):
    assert parse_position(text, NOW) == expected


def test_a_time_without_a_zone_is_that_of_this_machine():
    expected = int(time.mktime((2026, 5, 1, 12, 0, 0, 0, 0, -1)) * 1000)

    assert parse_position("2026-05-01T12:00") == Position(None, expected)


@pytest.mark.parametrize("text", ["", "-10", "-1m", "-1y", "soon", "1.5", "@", "٣", "2026-13-01"])
def test_invalid_position_error_lists_valid_forms(text):
    with pytest.raises(PositionError, match=r"expected|units"):
        parse_position(text, NOW)
