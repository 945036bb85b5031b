"""The synchronous face: the same client, from threads that block."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from tests.client.scripted_pulsar import ScriptedPulsar, in_thread, send_error
from trilogue.client.pulsar import ClosedError, PulsarError, TimedOut, sync
from trilogue.client.pulsar.options import ClientOptions, ConsumerOptions, ProducerOptions
from trilogue.wire.pulsar.errors import ServerError

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/use-the-pulsar-client.md"


def sent(broker: ScriptedPulsar) -> int:
    return sum(send.num_messages for send in broker.all("SEND"))


def test_calls_block_until_they_are_done_and_raise_what_went_wrong():
    with in_thread() as broker, sync.PulsarClient(broker.url) as client:
        producer = client.producer("t", batching=None)
        assert producer.name == "made-up"
        assert producer.send(b"x").entry_id == 0
        broker.next_up["SEND"].append(send_error(ServerError.NotAllowedError))
        with pytest.raises(PulsarError, match="NotAllowedError"):
            producer.send(b"y")
        with client.subscribe("t", "s") as consumer, pytest.raises(TimedOut):
            consumer.receive(0.01)
        assert client.partitions("t") == 0


def test_a_submitted_message_fails_in_its_future():
    with in_thread() as broker, sync.PulsarClient(broker.url) as client:
        producer = client.producer("t", batching=None)
        broker.next_up["SEND"].append(send_error(ServerError.NotAllowedError))
        first, second = producer.submit(b"x"), producer.submit(b"y")

        assert isinstance(first.exception(5), PulsarError)
        assert second.result(5).entry_id == 0


def test_many_threads_share_one_producer():
    with in_thread() as broker, sync.PulsarClient(broker.url) as client:
        producer = client.producer("t")
        threads = [threading.Thread(target=producer.send, args=(b"x",)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sent(broker) == 20


def test_closing_wakes_who_receives_and_ends_the_thread():
    with in_thread() as broker:
        client = sync.PulsarClient(broker.url)
        consumer = client.subscribe("t", "s")
        ended: list[list[object]] = []
        thread = threading.Thread(target=lambda: ended.append(list(consumer)))
        thread.start()
        client.close()
        thread.join(10)
        client.close()

        assert ended == [[]]
        with pytest.raises(ClosedError):
            client.partitions("t")
        assert not [one for one in threading.enumerate() if one.name == "trilogue-pulsar"]


def test_a_client_that_cannot_be_made_leaves_no_thread():
    before = threading.active_count()
    with pytest.raises(TypeError):
        sync.PulsarClient("pulsar://h", no_such_option=1)
    assert threading.active_count() == before


@pytest.mark.parametrize("options", [ClientOptions, ProducerOptions, ConsumerOptions])
def test_every_option_is_documented(options: type):
    text = PAGE.read_text()
    missing = [
        field.name
        for field in dataclasses.fields(options)
        if f"`{field.name}`" not in text and field.name != "subscription"
    ]

    assert missing == []
