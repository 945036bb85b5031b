"""The ledger can fail: every kind of damage is counted as what it is."""

from __future__ import annotations

import pytest

from tests.crash.ledger import HEADER, Ledger, Origin, decode, encode

RUN = b"a run..."

Reads = list[tuple[int, bytes]]


@pytest.fixture
def ledger() -> Ledger:
    """Two producers with five records each in partition 0, all acked and seen on the way."""
    made = Ledger(RUN)
    for number in range(10):
        origin, value = made.next_value(number % 2, 0, 100)
        made.ack(origin, number)
        made.saw(0, number, value)
    return made


@pytest.fixture
def reads(ledger: Ledger) -> Reads:
    """What a reader of an honest server gets."""
    return [
        (offset, encode(RUN, origin, 100))
        for origin, offset in sorted(ledger.acked.items(), key=lambda pair: pair[1])
    ]


def test_an_honest_server_is_found_honest(ledger: Ledger, reads: Reads):
    verdict = ledger.verdict({0: reads})

    assert verdict.bad == {}
    assert verdict.acked == 10


def test_a_missing_record_is_lost_and_has_vanished(ledger: Ledger, reads: Reads):
    del reads[4]

    assert ledger.verdict({0: reads}).bad == {"lost": 1, "vanished": 1}


def test_a_lost_record_that_no_client_saw_is_lost(ledger: Ledger, reads: Reads):
    ledger.tailed.clear()

    assert ledger.verdict({0: reads[:-3]}).bad == {"lost": 3}


def test_a_repeated_record_is_a_duplicate(ledger: Ledger, reads: Reads):
    reads.append((10, reads[3][1]))

    assert ledger.verdict({0: reads}).bad == {"duplicated": 1}


def test_records_that_changed_places_are_reordered(ledger: Ledger, reads: Reads):
    reads[2], reads[4] = (2, reads[4][1]), (4, reads[2][1])

    assert ledger.verdict({0: reads}).bad == {"reordered": 1, "wrong_offset": 2, "vanished": 2}


def test_a_flipped_bit_is_corruption(ledger: Ledger, reads: Reads):
    broken = bytearray(reads[5][1])
    broken[60] ^= 1
    reads[5] = (5, bytes(broken))

    assert ledger.verdict({0: reads}).bad == {"corrupted": 1, "lost": 1, "vanished": 1}


def test_unsent_record_is_a_phantom(ledger: Ledger, reads: Reads):
    reads.append((10, encode(RUN, Origin(0, 0, 99), 100)))
    reads.append((11, encode(RUN, Origin(7, 0, 0), 100)))
    reads.append((12, encode(RUN, Origin(0, 3, 0), 100)))

    assert ledger.verdict({0: reads}).bad == {"phantom": 3}


def test_an_ack_with_another_offset_is_wrong(ledger: Ledger, reads: Reads):
    ledger.acked[Origin(0, 0, 0)] = 5

    assert ledger.verdict({0: reads}).bad == {"wrong_offset": 1}


def test_a_record_that_was_given_up_is_a_failure(ledger: Ledger, reads: Reads):
    ledger.fail("timed out")

    assert ledger.verdict({0: reads}).bad == {"failed": 1}


def test_a_sent_record_without_an_ack_may_be_there_or_not(ledger: Ledger, reads: Reads):
    _, value = ledger.next_value(0, 0, 50)

    assert ledger.verdict({0: reads}).bad == {}
    assert ledger.verdict({0: [*reads, (10, value)]}).bad == {}


def test_values_of_another_run_or_cut_ones_are_not_ours():
    value = encode(RUN, Origin(1, 2, 3), 300)

    assert decode(RUN, value) == Origin(1, 2, 3)
    assert decode(b"another.", value) is None
    assert decode(RUN, value[:-1]) is None
    assert decode(RUN, value[: HEADER.size - 1]) is None
    assert decode(RUN, None) is None


def test_waiting_for_acks_that_do_not_come_fails(ledger: Ledger):
    with pytest.raises(AssertionError, match="no ack within"):
        ledger.wait_for_acks(1, 0.01)
