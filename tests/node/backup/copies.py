"""A broker that is backed up, and what its copies hold."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from confluent_kafka import Producer

from tests.waiting import wait_until
from trilogue.node.backup.backup import BackupResult, BackupRun
from trilogue.node.backup.restore import choose_backup, restore
from trilogue.node.backup.targets import BackupTarget, open_target
from trilogue.testing import EmbeddedBroker

WAIT_S = 60
FLUSHED = {"journal.file-size": "64KiB", "journal.file-age": "100ms", "segments.grace": "1min"}
UNFLUSHED = {"journal.file-age": "1h"}


def send(broker: EmbeddedBroker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 0})
    errors = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert set(errors) == {None}


def texts(broker: EmbeddedBroker, topic: str = "t") -> list[str]:
    return [(message.value or b"").decode() for message in broker.messages(topic)]


def take(broker: EmbeddedBroker, place: Path, keep: int | None = None) -> BackupResult:
    return BackupRun(broker.data, open_target(str(place))).run(keep)


def read_meta(broker: EmbeddedBroker, query: str) -> int:
    """The number that a query finds in the metadata of a running broker."""
    uri = f"{(broker.data / 'meta.sqlite').as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        return int(connection.execute(query).fetchone()[0])


def wait_for_segments(broker: EmbeddedBroker, count: int) -> None:
    wait_until(
        lambda: read_meta(broker, "SELECT count(*) FROM segments") >= count, f"{count} segments"
    )


def restored(place: Path | BackupTarget, data: Path, until_ms: int | None = None) -> None:
    target = open_target(str(place)) if isinstance(place, Path) else place
    restore(target, choose_backup(target.records(), until_ms), data, until_ms)
