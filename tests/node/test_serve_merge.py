"""Merges of a running server, read by a Kafka client: a kill of any process loses nothing."""

from __future__ import annotations

import pytest

from tests.node.clients import consume, produce
from tests.node.test_serve_flush import metrics, segments, values
from tests.server import start_server
from tests.waiting import wait_until

TINY = {
    "journal.file-size": "64KiB",
    "journal.file-age": "200ms",
    "retention.check-every": "100ms",
    "segments.grace": "100ms",
}
MERGES = 'trilogue_maintenance_jobs_total{kind="merge"}'


def produce_many(server, sent, count=40):
    """Bring about ten flushes' worth of messages, each call behind what was sent before."""
    more = values(count, size=20_000)
    assert produce(server, "t", more) == list(range(len(sent), len(sent) + count))
    sent += more


@pytest.mark.parametrize("merges", [0, 1])
def test_a_kill_beside_merges_loses_nothing(tmp_path, merges):
    sent = []
    for _ in range(2):
        with start_server(tmp_path / "data", settings=TINY) as server:
            produce_many(server, sent)
            while metrics(server)[MERGES] < merges:
                produce_many(server, sent, 10)

    with start_server(tmp_path / "data", settings=TINY) as server:
        assert consume(server, "t", len(sent)) == sent
        wait_until(lambda: metrics(server)["trilogue_tail_entries"] == 0, "never flushed")
        assert consume(server, "t", len(sent)) == sent


def test_served_log_is_merged_to_few_segments_with_metrics(tmp_path):
    sent = []
    with start_server(tmp_path / "data", settings=TINY) as server:
        while not sent or metrics(server)[MERGES] < 2:
            produce_many(server, sent)
        wait_until(lambda: metrics(server)["trilogue_tail_entries"] == 0, "never flushed")
        wait_until(lambda: metrics(server)["trilogue_segments_leaving"] == 0, "never removed")

        found = metrics(server)
        assert found["trilogue_segments"] == len(segments(server)) <= 16
        assert found["trilogue_flushes_total"] > 12
        assert 1.0 < found["trilogue_segment_write_amplification"] <= 2.3
        assert consume(server, "t", len(sent)) == sent
        assert (server.data / "segments" / segments(server)[0]).stat().st_size > 200_000
