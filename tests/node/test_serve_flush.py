"""What a running server does with its files: flush, retention, the helper process, failure."""

from __future__ import annotations

import os
import resource
import signal

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.node.clients import consume, produce
from tests.server import start_server
from tests.waiting import wait_until

SMALL = {
    "journal.file-size": "64KiB",
    "journal.file-age": "500ms",
    "retention.check-every": "100ms",
    "segments.grace": "100ms",
}
DEADLINE_S = 60


def metrics(server):
    lines = httpx.get(f"{server.http}/metrics").text.splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def make_topic(server, name, **settings):
    admin = AdminClient({"bootstrap.servers": server.kafka})
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin.create_topics([NewTopic(name, 1, config=config)])[name].result(60)


def segments(server):
    return sorted(path.name for path in (server.data / "segments").glob("*.segment"))


def values(count, size=1000):
    return [b"%08d" % index + os.urandom(size - 8) for index in range(count)]


def test_flushed_messages_are_read_from_segments_before_and_after_a_kill(tmp_path):
    sent = values(300)
    with start_server(tmp_path / "data", settings=SMALL) as server:
        assert produce(server, "t", sent) == list(range(300))
        wait_until(lambda: metrics(server)["trilogue_tail_entries"] == 0, "never flushed")

        assert segments(server)
        assert consume(server, "t", 300) == sent

    with start_server(tmp_path / "data", settings=SMALL) as server:
        assert "tail_bytes=0" in server.output
        assert consume(server, "t", 300) == sent
        assert produce(server, "t", sent[:1]) == [300]


def one_by_one(server, sent):
    """Each in a frame of its own, acknowledged before the next."""
    acked = []
    producer = Producer({"bootstrap.servers": server.kafka, "linger.ms": 0})
    for value in sent:
        producer.produce("t", value, on_delivery=lambda error, _: acked.append(error))
        producer.flush(60)
    assert acked == [None] * len(sent)


@pytest.mark.parametrize("flushes", [0, 1, 3])
def test_a_kill_between_flushes_loses_nothing(tmp_path, flushes):
    sent = []
    for _ in range(3):
        with start_server(tmp_path / "data", settings=SMALL) as server:
            more = values(60, size=5_000)
            one_by_one(server, more)
            sent += more
            wait_until(
                lambda server=server: metrics(server)["trilogue_flushes_total"] >= flushes, "none"
            )

    with start_server(tmp_path / "data", settings=SMALL) as server:
        assert consume(server, "t", len(sent)) == sent


def positions(server, topic):
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "g"})
    try:
        return [each.offset for each in consumer.committed([TopicPartition(topic, 0)], 60)]
    finally:
        consumer.close()


def test_positions_survive_the_flush_that_drops_their_facts(tmp_path):
    """What facts amounted to goes to meta with the flush: the journal file is used again."""
    with start_server(tmp_path / "data", settings=SMALL) as server:
        produce(server, "t", values(100))
        commit(server, "t", 42)
        wait_until(lambda: metrics(server)["trilogue_tail_entries"] == 0, "never flushed")
        flushed = metrics(server)["trilogue_flushes_total"]
        produce(server, "t", values(100))
        wait_until(lambda: metrics(server)["trilogue_flushes_total"] > flushed, "never flushed")
        assert positions(server, "t") == [42]

    with start_server(tmp_path / "data", settings=SMALL) as server:
        assert positions(server, "t") == [42]


def commit(server, topic, offset):
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "g"})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def test_an_orderly_end_brings_everything_into_segments(tmp_path):
    sent = values(50)
    server = start_server(tmp_path / "data")
    produce(server, "t", sent)
    assert server.stop() == 0

    assert len(segments(server)) == 1
    with start_server(tmp_path / "data") as server:
        assert "tail_bytes=0" in server.output
        assert consume(server, "t", 50) == sent


def test_messages_and_files_go_when_their_time_is_over(tmp_path):
    with start_server(tmp_path / "data", settings=SMALL) as server:
        make_topic(server, "short", retention_ms="1")
        produce(server, "short", values(200))
        wait_until(lambda: metrics(server)["trilogue_segments_removed_total"], "nothing removed")
        wait_until(lambda: not segments(server), "a file stays")

        assert produce(server, "short", [b"next"]) == [200]


def test_messages_and_files_go_when_there_are_too_many_of_them(tmp_path):
    """The setting comes while the topic lives; at least so much stays, counted in bytes as sent."""
    keep = 100_000
    with start_server(tmp_path / "data", settings=SMALL) as server:
        make_topic(server, "large")
        for _ in range(5):
            produce(server, "large", values(100))
        wait_until(lambda: metrics(server)["trilogue_tail_entries"] == 0, "never flushed")
        admin = AdminClient({"bootstrap.servers": server.kafka})
        change = ConfigEntry(
            "retention.bytes", str(keep), incremental_operation=AlterConfigOpType.SET
        )
        config_resource = ConfigResource("topic", "large", incremental_configs=[change])
        admin.incremental_alter_configs([config_resource])[config_resource].result(60)

        reader = Consumer({"bootstrap.servers": server.kafka, "group.id": "nobody"})
        place = TopicPartition("large", 0)
        start = wait_until(lambda: reader.get_watermark_offsets(place)[0], "nothing goes")
        reader.close()

        assert (500 - start) * 1_000 >= keep
        wait_until(lambda: metrics(server)["trilogue_segments_removed_total"], "no file goes")


def test_files_go_when_all_records_in_them_were_deleted(tmp_path):
    with start_server(tmp_path / "data", settings=SMALL) as server:
        make_topic(server, "t")
        produce(server, "t", values(200))
        wait_until(lambda: metrics(server)["trilogue_tail_entries"] == 0, "never flushed")

        admin = AdminClient({"bootstrap.servers": server.kafka})
        (deleted,) = admin.delete_records([TopicPartition("t", 0, 200)]).values()
        assert deleted.result(60).low_watermark == 200

        wait_until(lambda: not segments(server), "a file stays")
        assert produce(server, "t", [b"next"]) == [200]


def test_files_of_a_deleted_topic_go(tmp_path):
    with start_server(tmp_path / "data", settings=SMALL) as server:
        make_topic(server, "gone")
        produce(server, "gone", values(200))
        wait_until(lambda: segments(server), "never flushed")

        admin = AdminClient({"bootstrap.servers": server.kafka})
        admin.delete_topics(["gone"])["gone"].result(60)

        wait_until(lambda: not segments(server), "a file stays")


def test_a_segment_that_is_unknown_is_removed_after_the_grace_period(tmp_path):
    server = start_server(tmp_path / "data")
    produce(server, "t", [b"x"])
    assert server.stop() == 0
    kept = segments(server)
    (tmp_path / "data" / "segments" / "0000000000999999.segment").write_bytes(b"half a flush")

    with start_server(tmp_path / "data", settings=SMALL) as server:
        wait_until(lambda: segments(server) == kept, "the orphan stays")
        assert consume(server, "t", 1) == [b"x"]


def helper_of(server):
    children = f"/proc/{server.pid}/task/{server.pid}/children"
    with open(children, encoding="ascii") as file:  # noqa: PTH123
        pids = [int(pid) for pid in file.read().split()]
    return pids[0] if pids else None


def test_the_helper_is_started_again_and_never_left_behind(tmp_path):
    with start_server(tmp_path / "data", settings=SMALL) as server:
        assert helper_of(server) is None, "started before there was anything to do"
        produce(server, "t", values(100))
        first = wait_until(lambda: helper_of(server), "no helper came")
        wait_until(lambda: metrics(server)["trilogue_tail_entries"] == 0, "never flushed")

        os.kill(first, signal.SIGKILL)
        produce(server, "t", values(100))
        wait_until(
            lambda: metrics(server)["trilogue_helper_starts_total"] >= 2, "not started again"
        )
        wait_until(lambda: metrics(server)["trilogue_tail_entries"] == 0, "never flushed")

        last = wait_until(lambda: helper_of(server), "no helper came")
        handle = os.pidfd_open(last)
        server.kill9()
        try:
            wait_until(lambda: is_gone(handle), "the helper outlives its server")
        finally:
            os.close(handle)


def is_gone(handle):
    try:
        signal.pidfd_send_signal(handle, 0)
    except ProcessLookupError:
        return True
    return False


# -- a disk that fails -----------------------------------------------------------------------


def send(server, sent):
    """Offsets that were acknowledged; the rest was refused."""
    acked = {}

    def reported(error, message):
        if error is None:
            acked[message.offset()] = message.value()

    producer = Producer(
        {
            "bootstrap.servers": server.kafka,
            "message.timeout.ms": 3_000,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "log_level": 0,
        }
    )
    for value in sent:
        producer.produce("t", value, on_delivery=reported)
    producer.flush(60)
    return acked


def test_a_failed_write_ends_the_server_and_takes_nothing_back(tmp_path):
    """A limit on file sizes makes the journal's write fail: as final as EIO is."""
    server = start_server(tmp_path / "data")
    produce(server, "t", [b"before"])
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    acked = send(server, values(200, size=10_000))

    assert server.wait(60) == 3
    assert len(acked) < 200
    last = server.output.splitlines()[-1]
    assert last == "trilogue: stopped: the journal could not be written: File too large"
    assert "Traceback" not in server.output
    assert not server.ready_file.exists()
    with start_server(tmp_path / "data") as server:
        found = dict(enumerate(consume(server, "t", 1 + len(acked))))
        assert acked.items() <= found.items()
