"""Where entries end that were handed out a short while ago."""

from __future__ import annotations

from trilogue.broker.subscriptions import single_active_consumer as spans
from trilogue.broker.subscriptions.single_active_consumer import EntrySpans


def noted(*entries: tuple[int, int]) -> EntrySpans:
    found = EntrySpans()
    for base, end in entries:
        found.note(base, end)
    return found


def test_an_offset_finds_the_entry_that_contains_it():
    found = noted((0, 3), (3, 4), (9, 12))

    assert [found.find_span(offset) for offset in (0, 2, 3, 5, 11, 12)] == [
        (0, 3),
        (0, 3),
        (3, 4),
        None,
        (9, 12),
        None,
    ]


def test_known_entry_span_is_recorded_once():
    found = noted((0, 3), (3, 5), (0, 3), (3, 5), (5, 6))

    assert len(found) == 3


def test_entry_spans_before_an_offset_are_dropped():
    found = noted((0, 3), (3, 5), (5, 6))

    found.drop_before(4)

    assert [found.find_span(offset) for offset in (1, 3, 5)] == [None, (3, 5), (5, 6)]


def test_so_many_are_remembered_and_no_more(monkeypatch):
    monkeypatch.setattr(spans, "REMEMBERED", 10)

    found = noted(*((at, at + 1) for at in range(25)))

    assert len(found) <= 10
    assert found.find_span(24) == (24, 25)
    assert found.find_span(3) is None


def test_all_is_forgotten_at_once():
    found = noted((0, 3), (3, 5))

    found.clear()
    found.note(0, 2)

    assert found.find_span(1) == (0, 2)
