"""What verbs print for people."""

from __future__ import annotations

import pytest

from trilogue.cli.tables import Size, print_table, printable, spell_count, spell_size, spell_time


def test_numbers_are_right_aligned_and_missing_values_are_dashes(capsys):
    rows = [{"topic": "a", "messages": 5, "size_bytes": Size(10)}, {"topic": "bcd", "messages": 12}]

    print_table(rows, ("topic", "messages", "size_bytes"))

    assert capsys.readouterr().out.splitlines() == [
        "topic  messages  size",
        "a             5  10 B",
        "bcd          12     -",
    ]


def test_a_table_without_rows_has_its_head(capsys):
    print_table([], ("topic", "in_sync"))

    assert capsys.readouterr().out == "topic  in sync\n"


def test_control_characters_of_names_are_escaped(capsys):
    print_table([{"client": "\x1b[2Jx\ny"}], ("client",))

    assert capsys.readouterr().out.splitlines() == ["client", "\\x1b[2Jx\\ny"]
    assert printable("größe") == "größe"


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (200 << 20, "200 MiB"),
        (1 << 60, "1024 PiB"),
    ],
)
def test_sizes_have_three_digits_and_a_unit(size, expected):
    assert spell_size(size) == expected


@pytest.mark.parametrize(
    ("time_ms", "expected"),
    [(-1, ""), (0, "1970-01-01T00:00:00.000Z"), (1 << 62, str(1 << 62))],
)
def test_times_are_iso_in_utc(time_ms, expected):
    assert spell_time(time_ms) == expected


def test_a_count_agrees_with_its_noun():
    assert spell_count(1, "message") == "1 message"
    assert spell_count(0, "partition") == "0 partitions"
    assert spell_count(12_000, "member") == "12,000 members"
