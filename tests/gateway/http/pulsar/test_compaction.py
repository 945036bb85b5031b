"""Compaction on request: a reader of the compacted topic gets the last message of each key."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest

from tests.gateway.http.admin_client import Admin, read_all
from tests.server import start_server

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def connect(admin: Admin) -> pulsar.Client:
    url = f"pulsar://{admin.server.doors['pulsar']}"
    return pulsar.Client(url, operation_timeout_seconds=30, logger=QUIET)


@pytest.fixture(scope="module")
def client(admin: Admin) -> Iterator[pulsar.Client]:
    made = connect(admin)
    yield made
    made.close()


def read(
    admin: Admin, client: pulsar.Client, topic: str, subscription: str, *, compacted: bool
) -> list[bytes]:
    first = pulsar.InitialPosition.Earliest
    how = {"is_read_compacted": compacted, "initial_position": first}
    return read_all(admin, client, topic, subscription, **how)


def compact(admin: Admin, path: str) -> None:
    """Trigger a compaction and wait until it has finished."""
    admin.do("PUT", f"{path}/compaction")
    while (result := admin.get(f"{path}/compaction"))["status"] == "RUNNING":
        pass
    assert result == {"status": "SUCCESS", "lastError": ""}


def write(client: pulsar.Client, topic: str, *pairs: tuple[str, bytes], batching: bool) -> None:
    producer = client.create_producer(
        topic, batching_enabled=batching, batching_max_publish_delay_ms=10_000
    )
    for key, value in pairs:
        producer.send_async(value, None, partition_key=key)
    producer.flush()
    producer.close()


@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_the_last_message_of_each_key_is_read(admin: Admin, client: pulsar.Client, batching: bool):
    name = admin.namespace(f"compacted-{batching}".lower())
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    write(client, topic, ("a", b"a1"), ("b", b"b1"), ("a", b"a2"), ("b", b"b2"), batching=batching)
    write(client, topic, ("c", b"c1"), ("a", b"a3"), batching=batching)
    assert admin.get(f"{path}/compaction")["status"] == "NOT_RUN"
    before = read(admin, client, topic, "before", compacted=True)

    compact(admin, path)
    write(client, topic, ("c", b"c2"), ("a", b"a4"), batching=batching)

    everything = [b"a1", b"b1", b"a2", b"b2", b"c1", b"a3", b"c2", b"a4"]
    assert before == everything[:6]
    assert read(admin, client, topic, "compacted", compacted=True) == [
        b"b2",
        b"c1",
        b"a3",
        b"c2",
        b"a4",
    ]
    assert read(admin, client, topic, "all", compacted=False) == everything
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    seen = []
    while reader.has_message_available():
        seen.append(reader.read_next(3_000).data())
    assert seen == [b"b2", b"c1", b"a3", b"c2", b"a4"]
    reader.close()


def test_the_view_is_there_after_a_kill(tmp_path):
    with start_server(tmp_path / "data") as server, Admin(server) as admin:
        client = connect(admin)
        topic, path = "persistent://public/default/t", "persistent/public/default/t"
        write(client, topic, ("a", b"a1"), ("b", b"b1"), ("a", b"a2"), batching=False)
        compact(admin, path)
        write(client, topic, ("a", b"a3"), batching=False)
        client.close()
        server.kill9()
    with start_server(tmp_path / "data") as server, Admin(server) as admin:
        client = connect(admin)
        assert admin.get(f"{path}/compaction")["status"] == "SUCCESS"
        assert read(admin, client, topic, "s", compacted=True) == [b"b1", b"a2", b"a3"]
        client.close()


def test_shared_consumers_do_not_read_compacted_topics(client: pulsar.Client, admin: Admin):
    name = admin.namespace("compacted-shared")

    with pytest.raises(pulsar.PulsarException):
        client.subscribe(
            f"persistent://{name}/t", "s", pulsar.ConsumerType.Shared, is_read_compacted=True
        )
    assert admin("PUT", f"persistent/{name}/none/compaction")[0] == 404


def test_messages_in_segments_are_shown_moved_to_and_compacted_too(tmp_path):
    topic, path = "persistent://public/default/t", "persistent/public/default/t"
    with start_server(tmp_path / "data") as server, Admin(server) as admin:
        client = connect(admin)
        admin.do("PUT", f"{path}/subscription/s")
        write(client, topic, ("a", b"a1"), ("b", b"b1"), ("a", b"a2"), batching=True)
        write(client, topic, ("c", b"c1"), batching=False)
        client.close()
        assert server.stop() == 0
    with start_server(tmp_path / "data") as server, Admin(server) as admin:
        client = connect(admin)
        last = admin.get(f"{path}/lastMessageId")
        assert last["entryId"] == 3
        assert admin.request("GET", f"{path}/subscription/s/position/2").content == b"c1"
        entry = f"{path}/ledger/{last['ledgerId']}/entry/0"
        assert admin.request("GET", entry).headers["X-Pulsar-num-batch-message"] == "3"
        assert admin.get(f"{path}/messageid/0")["entryId"] == 0
        assert admin.get(f"{path}/stats")["subscriptions"]["s"]["msgBacklog"] == 4
        compact(admin, path)
        assert read(admin, client, topic, "compacted", compacted=True) == [b"b1", b"a2", b"c1"]
        admin.do("POST", f"{path}/subscription/s/skip_all")
        admin.do("POST", f"{path}/subscription/s/resetcursor/0")
        assert read(admin, client, topic, "s", compacted=False) == [b"a1", b"b1", b"a2", b"c1"]
        client.close()
