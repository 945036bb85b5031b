"""A running server whose merged segments lie in objects, seen by a foreign client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.node.clients import consume, produce
from tests.node.test_serve_flush import make_topic, metrics, segments, values
from tests.s3 import BUCKET, KEYS, S3, Proxy, s3_server
from tests.server import Server, start_server
from tests.waiting import wait_until
from trilogue.log.objects.obstore_store import StoreOptions, open_store

SETTINGS = {
    "journal.file-size": "64KiB",
    "journal.file-age": "100ms",
    "retention.check-every": "100ms",
    "segments.grace": "100ms",
    "objects.move-after": "0",
}
ROUNDS, EACH = 12, 30  # each round becomes a segment; as many are merged
COUNT = ROUNDS * EACH


class Store:
    """Where the objects are, and how it goes away and comes back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = {"objects.url": f"file://{folder}"}
        folder.mkdir()

    def hide(self) -> None:
        self.folder.rename(self.folder.with_name("gone"))
        self.folder.write_text("not a directory")

    def show(self) -> None:
        self.folder.unlink()
        self.folder.with_name("gone").rename(self.folder)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*/segments/*"))


class S3Store(Store):
    def __init__(self, proxy: Proxy, upstream: int, prefix: str) -> None:
        self.proxy = proxy
        endpoint = f"http://127.0.0.1:{proxy.port}"
        url = f"s3://{BUCKET}/{prefix}"
        self.settings = {
            "objects.url": url,
            "objects.endpoint": endpoint,
            "objects.region": "us-east-1",
        }
        self._behind = open_store(StoreOptions(url, f"http://127.0.0.1:{upstream}", "us-east-1"))

    def hide(self) -> None:
        self.proxy.fault = lambda _method, _path: 503

    def show(self) -> None:
        self.proxy.fault = lambda _method, _path: None

    def names(self) -> list[str]:
        return [each.key for each in self._behind.list("") if "/segments/" in each.key]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "directory":
        yield Store(tmp_path / "store")
        return
    s3: S3 = request.getfixturevalue("s3")
    proxy = Proxy(s3.port)
    yield S3Store(proxy, s3.port, tmp_path.name)
    proxy.close()


def start(tmp_path: Path, store: Store) -> Server:
    return start_server(
        tmp_path / "data", settings={**SETTINGS, **store.settings}, environment=KEYS
    )


def fill(server: Server) -> list[bytes]:
    """Produce, until there is a merged segment and it was moved."""
    sent = values(COUNT)
    make_topic(server, "t")
    for at in range(0, COUNT, EACH):
        assert produce(server, "t", sent[at : at + EACH]) == list(range(at, at + EACH))
        wait_until(lambda: metrics(server)["trilogue_tail_entries"] == 0, "never flushed")
    wait_until(lambda: moved(server), "never moved")
    return sent


def moved(server: Server, count: int = 1) -> bool:
    """Merged segments are objects, and their files are gone."""
    now = metrics(server)
    first = now['trilogue_segments_of_level{level="0"}']
    return (
        now["trilogue_object_uploads_total"] >= count
        and now["trilogue_object_waiting_files"] == 0
        and len(segments(server)) == first
    )


def test_old_messages_are_read_from_objects_and_go_from_there(tmp_path: Path, store: Store):
    with start(tmp_path, store) as server:
        sent = fill(server)
        assert store.names()

        assert consume(server, "t", COUNT) == sent

        assert metrics(server)["trilogue_object_reads_total"] > 0
        assert "trilogue_object_cache_evictions_total" in metrics(server)
        server.kill9()
    with start(tmp_path, store) as server:
        store.hide()
        no_group = {"group.id": "h", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": server.kafka, **no_group})
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        wait_until(
            lambda: consumer.poll(0.05) or metrics(server)["trilogue_object_failures_total"],
            "nobody was told",
        )
        assert consumer.poll(0.05) is None

        assert produce(server, "t", sent[:50]) == list(range(COUNT, COUNT + 50))
        assert server.alive

        store.show()
        found = []
        while len(found) < COUNT + 50:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            found.append(message.value())
        assert found == sent + sent[:50]
        consumer.close()
        admin = AdminClient({"bootstrap.servers": server.kafka})
        admin.delete_topics(["t"])["t"].result(60)
        wait_until(lambda: not store.names(), "never removed")
        assert all(secret not in server.output for secret in KEYS.values())
        assert server.stop() == 0
