"""The synchronous face: the same client, from threads that block."""

from __future__ import annotations

import asyncio
import dataclasses
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.client.pulsar.scripted import ScriptedPulsar, in_thread, send_error
from trilogue.client import threads
from trilogue.client.errors import ClientError
from trilogue.client.pulsar import ClosedError, PulsarError, TimedOut, sync
from trilogue.client.pulsar.options import ClientOptions, ConsumerOptions, ProducerOptions
from trilogue.wire.pulsar.errors import ServerError

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/use-the-pulsar-client.md"


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
        assert second.result(60).entry_id == 0


def test_many_threads_share_one_producer():
    with in_thread() as broker, sync.PulsarClient(broker.url) as client:
        producer = client.producer("t")
        threads = [threading.Thread(target=producer.send, args=(b"x",)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sent(broker) == 20


def test_close_wakes_receivers_and_ends_the_thread():
    with in_thread() as broker:
        client = sync.PulsarClient(broker.url)
        consumer = client.subscribe("t", "s")
        ended: list[list[object]] = []
        thread = threading.Thread(target=lambda: ended.append(list(consumer)))
        thread.start()
        client.close()
        thread.join(60)
        client.close()

        assert ended == [[]]
        with pytest.raises(ClosedError):
            client.partitions("t")
        assert not [one for one in threading.enumerate() if one.name == "trilogue-pulsar"]


def test_every_call_ends_when_another_thread_closes_the_client():
    """Also one that comes between the end of the client and that of its loop."""
    for _ in range(20):
        with in_thread() as broker:
            client = sync.PulsarClient(broker.url)
            consumer = client.subscribe("t", "s")
            threads = [
                threading.Thread(target=_until_closed, args=(call,), daemon=True)
                for call in (consumer.receive, partial(client.partitions, "t")) * 3
            ]
            for thread in threads:
                thread.start()
            client.close()
            for thread in threads:
                thread.join(60)

            assert not [thread for thread in threads if thread.is_alive()]


def _until_closed(call: Callable[[], object]) -> None:
    with suppress(ClosedError):
        while True:
            call()


def test_a_call_still_waiting_when_the_client_is_closed_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threads, "GRACE_S", 0.01)
    with in_thread() as broker:
        client = sync.PulsarClient(broker.url)
        client.partitions("t")
        ended: list[BaseException] = []

        def wait() -> None:
            try:
                client._loop.run(asyncio.sleep(60))
            except ClosedError as closed:
                ended.append(closed)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        while not asyncio.all_tasks(client._loop._loop):
            pass
        client.close()
        thread.join(60)

        assert len(ended) == 1


def test_a_submitted_message_is_not_taken_back():
    with in_thread() as broker, sync.PulsarClient(broker.url) as client:
        producer = client.producer("t")
        future = producer.submit(b"x")

        assert not future.cancel()
        assert future.result(60).entry_id == 0


def test_a_call_in_a_callback_is_refused_rather_than_waited_for_for_ever():
    with in_thread() as broker, sync.PulsarClient(broker.url) as client:
        producer = client.producer("t")
        refused: queue.Queue[BaseException] = queue.Queue()

        def called_back(_: object) -> None:
            if threading.current_thread() is mine:  # the receipt came before this was added
                producer.submit(b"x").add_done_callback(called_back)
                return
            try:
                producer.flush()
            except ClientError as problem:
                refused.put(problem)

        mine = threading.current_thread()
        producer.submit(b"x").add_done_callback(called_back)

        assert "callback" in str(refused.get(timeout=60))


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
