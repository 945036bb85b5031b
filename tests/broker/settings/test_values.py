"""How values of settings are parsed and formatted."""

from __future__ import annotations

import pytest

from trilogue.broker.settings.values import InvalidValue, Kind, format_value, parse_value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.SIZE, "64MiB", 64 << 20),
        (Kind.SIZE, "1000", 1000),
        (Kind.SIZE, "1 kB", 1000),
        (Kind.DURATION, "7d", 604_800_000),
        (Kind.DURATION, "1500", 1500),
        (Kind.DURATION, "-1", -1),
        (Kind.SWITCH, "On", True),
        (Kind.INTEGER, "12", 12),
    ],
)
def test_values_are_read_in_their_units(kind, text, value):
    assert value == parse_value(kind, text)
    assert value == parse_value(kind, format_value(kind, value))


@pytest.mark.parametrize("text", ["", "1e3", "1_000", "0x10", "5 5", "1.5s", "٣"])
def test_quantities_are_plain_decimal_numbers(text):
    with pytest.raises(InvalidValue):
        parse_value(Kind.DURATION, text)


@pytest.mark.parametrize("text", ["", "-", "+-1", "1_000", "1.0", "0x10", "٣", "9" * 50])
def test_an_integer_of_administration_has_plain_digits(text):
    with pytest.raises(InvalidValue):
        parse_value(Kind.LONG, text)


def test_an_integer_of_administration_may_have_a_sign_and_spaces():
    assert [parse_value(Kind.INT, text) for text in ("+5", " -7 ", "08")] == [5, -7, 8]
