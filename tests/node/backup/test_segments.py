"""Backups of segments: copied once, in buckets, from object storage, beside producers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.node.backup.copies import (
    FLUSHED,
    UNFLUSHED,
    WAIT_S,
    read_meta,
    restored,
    send,
    take,
    texts,
    wait_for_segments,
)
from tests.s3 import BUCKET, KEYS, S3, Proxy, options, s3_server
from tests.waiting import wait_until
from trilogue.log.objects.obstore_store import Reach, StoreOptions
from trilogue.node.backup.backup import BackupRun
from trilogue.node.backup.errors import BackupError
from trilogue.node.backup.restore import restore, verify
from trilogue.node.backup.targets import open_target
from trilogue.testing import start_broker


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)


def test_backups_lie_in_a_bucket(s3, keys, tmp_path):
    proxy = Proxy(s3.port)
    reach = options(proxy.port, "backups/of-one")
    target = open_target(reach.url, reach)
    try:
        with start_broker(settings=UNFLUSHED) as broker:
            send(broker, "t", "1")
            BackupRun(broker.data, target).run()
            failures = iter([503, "reset"])
            proxy.fault = lambda method, _: next(failures, None) if method == "PUT" else None
            send(broker, "t", "2")
            BackupRun(broker.data, target).run(keep=1)
            assert len(target.records()) == 1
            restored(target, tmp_path / "d")

            proxy.fault = lambda _method, _path: 403
            with pytest.raises(BackupError, match="check the keys and their rights"):
                BackupRun(broker.data, target).run()
            proxy.fault = lambda _method, _path: None
            missing = open_target(f"s3://{BUCKET}-missing/prefix", reach)
            with pytest.raises(BackupError, match="is there a bucket of this name"):
                BackupRun(broker.data, missing).run()
        with start_broker(tmp_path / "d") as copy:
            assert texts(copy) == ["1", "2"]
    finally:
        proxy.close()


def newest_segment(*folders: Path) -> int:
    found = [path for folder in folders for path in folder.rglob("*.segment")]
    return max((int(path.stem) for path in found), default=0)


def test_a_backup_has_what_the_server_keeps_in_object_storage(tmp_path):
    objects = tmp_path / "objects"
    objects.mkdir()
    settings = {
        **FLUSHED,
        "objects.url": f"file://{objects}",
        "objects.move-after": "0",
        "retention.check-every": "100ms",
    }
    sent = [str(number) for number in range(12)]
    with start_broker(settings=settings) as broker:
        for text in sent:
            known = newest_segment(broker.data, objects)
            send(broker, "t", text)
            wait_until(lambda n=known: newest_segment(broker.data, objects) > n, "a new segment")
        stored = "SELECT count(*) FROM segments WHERE store <> ''"
        wait_until(lambda: read_meta(broker, stored), "an object")
        run = BackupRun(
            broker.data,
            open_target(str(tmp_path / "b")),
            lambda cluster_id: Reach(StoreOptions(f"file://{objects}"), cluster_id),
        )
        assert run.run().record.has_objects
    restored(tmp_path / "b", tmp_path / "d")
    with start_broker(tmp_path / "d") as copy:
        assert texts(copy) == sent


def test_segments_of_one_number_from_two_histories_are_kept_apart(tmp_path):
    place = tmp_path / "b"
    with start_broker(settings=FLUSHED) as broker:
        send(broker, "t", "1")
        wait_for_segments(broker, 1)
        first = take(broker, place).record
    target = open_target(str(place))
    records = []
    for last in ("2a", "2b"):  # both take the same ids
        data = tmp_path / f"server-{last}"
        restore(target, first, data)
        with start_broker(data, settings=FLUSHED) as broker:
            send(broker, "t", last)
            wait_for_segments(broker, 2)
            records.append(take(broker, place).record)
    one, two = records
    shared = {s.path for s in one.segments} & {s.path for s in two.segments}
    assert shared > {s.path for s in first.segments}

    for record, last in ((one, "2a"), (two, "2b")):
        data = tmp_path / f"as-{last}"
        restore(target, record, data)
        with start_broker(data) as copy:
            assert texts(copy) == ["1", last]


def test_only_new_segments_are_copied_again(tmp_path):
    with start_broker(settings=FLUSHED) as broker:
        send(broker, "t", "1")
        wait_for_segments(broker, 1)
        first = take(broker, tmp_path / "b")
        send(broker, "t", "2")
        wait_for_segments(broker, 2)
        second = take(broker, tmp_path / "b")
        third = take(broker, tmp_path / "b")

    assert first.copied_segments == len(first.record.segments)
    assert second.copied_segments == len(second.record.segments) - len(first.record.segments) > 0
    assert third.copied_segments == 0
    target = open_target(str(tmp_path / "b"))
    for record, expected in zip(target.records(), [["1"], ["1", "2"], ["1", "2"]], strict=True):
        assert verify(target, record) == []
        data = tmp_path / record.backup_id
        restore(target, record, data)
        with start_broker(data) as copy:
            assert texts(copy) == expected


def test_old_backups_are_removed_with_what_they_alone_had(tmp_path):
    place = tmp_path / "b"
    with start_broker(settings=FLUSHED) as broker:
        for number in range(3):
            send(broker, "t", str(number))
            wait_for_segments(broker, number + 1)
            result = take(broker, place, keep=2)
        records = open_target(str(place)).records()

    assert len(records) == 2
    assert len(result.removed) == 1
    used = {each.key for record in records for each in record.segments}
    assert set(open_target(str(place)).sizes("segments")) == used
    restored(place, tmp_path / "d")
    with start_broker(tmp_path / "d") as copy:
        assert texts(copy) == ["0", "1", "2"]


def test_backups_beside_a_producer_have_its_acknowledged_messages(tmp_path):
    """Small journal files are flushed and recycled all the time."""
    place, stopping, acked = tmp_path / "b", threading.Event(), []
    with start_broker(settings=FLUSHED) as broker:

        def produce() -> None:
            producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 1})
            number = 0
            while not stopping.is_set():
                for _ in range(20):
                    producer.produce(
                        "t",
                        str(number).ljust(1000),
                        on_delivery=lambda error, message: acked.append(
                            int(message.value()) if error is None else error
                        ),
                    )
                    number += 1
                producer.poll(0.01)
            producer.flush(WAIT_S)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            counts = []
            for _ in range(4):
                before = len(acked)
                wait_until(lambda n=before: len(acked) >= n + 200, "200 more")
                known = acked[-1]
                counts.append((known, take(broker, place).record))
        finally:
            stopping.set()
            thread.join()
    assert acked == list(range(len(acked)))
    target = open_target(str(place))
    for known, record in counts:
        data = tmp_path / record.backup_id
        restore(target, record, data)
        with start_broker(data) as copy:
            found = [int(text) for text in texts(copy)]
        assert found == list(range(len(found)))
        assert len(found) > known
