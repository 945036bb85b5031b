"""The synchronous face: the same client, from threads that block."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from tests.client.tubemq.scripted import TOPIC, ScriptedTube, in_thread
from trilogue.client.tubemq import (
    Balance,
    Batch,
    ClosedError,
    Message,
    NoMessage,
    TubeError,
    sync,
)
from trilogue.client.tubemq.options import (
    Bound,
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
)

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/use-the-tubemq-client.md"


def key(number: int) -> str:
    return f"1:{TOPIC}:{number}"


def bodies(batch: Batch) -> list[bytes]:
    return [message.body for message in batch]


def own(server: ScriptedTube, client: sync.TubeClient) -> sync.Consumer:
    """A consumer that has its partitions."""
    return client.consumer(TOPIC, group="g", balance=Balance.CLIENT)


def test_everything_is_there_without_asyncio():
    with in_thread() as server, sync.TubeClient(server.address) as client:
        with client.producer() as producer:
            assert producer.publish(TOPIC, "unknown") == {TOPIC}
            producer.unpublish("unknown")
            assert producer.topics == [TOPIC]
            sent = producer.send(Message(TOPIC, b"a"))
            futures = producer.submit_many([Message(TOPIC, b"b"), Message("other", b"c")])
            assert futures[0].result(60).topic == TOPIC
            assert isinstance(futures[1].exception(5), TubeError)
            assert producer.submit(Message(TOPIC, b"d")).result(60).append_time_ms == 5
            producer.flush()
        with own(server, client) as consumer:
            assert consumer.partitions == consumer.available() == [key(0), key(1), key(2)]
            batch = consumer.get(60)
            consumer.rollback(batch)
            again = {}
            for _ in range(3):
                batch = consumer.get(60)
                again[batch.partition] = bodies(batch)
                consumer.confirm(batch)
            assert sorted(one for pack in again.values() for one in pack) == [b"a", b"b", b"d"]
            with pytest.raises(NoMessage):
                consumer.get(0.01)
            consumer.set_offset(sent.partition, 0)
            assert bodies(consumer.get(60)) == again[sent.partition]
            assert consumer.offsets()[sent.partition].maximum == 1


def test_partitions_are_chosen_paused_and_resumed():
    with in_thread() as server, sync.TubeClient(server.address) as client:
        server.stored[key(1)].append((b"x", 0))
        consumer = client.consumer(TOPIC, group="g", balance=Balance.MANUAL)
        consumer.connect(key(1), 0)
        consumer.pause(key(1))
        with pytest.raises(NoMessage):
            consumer.get(0.01)
        consumer.resume(key(1))

        assert bodies(consumer.get(60)) == [b"x"]
        consumer.disconnect(key(1))
        assert consumer.partitions == []


def test_messages_come_in_a_loop_and_packs_are_confirmed_behind_them():
    with in_thread() as server, sync.TubeClient(server.address) as client:
        server.stored[key(0)] += [(b"a", 0), (b"b", 0)]
        server.stored[key(1)] += [(b"c", 0), (b"d", 0)]
        consumer = own(server, client)
        got = []
        for message in consumer:
            got.append(message.body)
            if len(got) == 3:
                break

        assert sorted(server.at.values()) == [0, 0, 2]  # the second was left in the middle


def test_a_callback_runs_in_a_thread_until_the_consumer_is_closed():
    with in_thread() as server, sync.TubeClient(server.address) as client:
        server.stored[key(0)].append((b"a", 0))
        consumer = own(server, client)
        got: list[bytes] = []
        names: list[str] = []
        done = threading.Event()

        def callback(batch: Batch) -> None:
            names.append(threading.current_thread().name)
            got.extend(bodies(batch))
            assert consumer.offsets()  # may call the client: it is not the loop's thread
            done.set()

        running = threading.Thread(target=consumer.run, args=(callback,))
        running.start()
        assert done.wait(60)
        consumer.close()
        running.join(60)

        assert got == [b"a"]
        assert not running.is_alive()
        assert names[0] != "trilogue-tubemq"


def test_close_wakes_readers_and_ends_the_thread():
    with in_thread() as server:
        client = sync.TubeClient(server.address)
        consumer = own(server, client)
        ended: list[list[object]] = []
        thread = threading.Thread(target=lambda: ended.append(list(consumer)))
        thread.start()
        client.close()
        thread.join(60)
        client.close()

        assert ended == [[]]
        with pytest.raises(ClosedError):
            client.producer()
        assert not [one for one in threading.enumerate() if one.name == "trilogue-tubemq"]


def test_a_client_that_cannot_be_made_leaves_no_thread():
    before = threading.active_count()
    with pytest.raises(TypeError):
        sync.TubeClient("h", no_such_option=1)
    assert threading.active_count() == before


@pytest.mark.parametrize("options", [ClientOptions, ProducerOptions, ConsumerOptions, Bound])
def test_every_option_is_documented(options: type):
    text = PAGE.read_text()
    missing = [field.name for field in dataclasses.fields(options) if f"`{field.name}`" not in text]

    assert missing == []
