"""The Pulsar client with a broker that is down, and with errors in its own callbacks."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tools.servers.probe import free_port

from tests.client.harness import run_on_idle_clock
from tests.client.pulsar.scripted import ScriptedPulsar, on_broker
from trilogue.client.errors import ClientError, ServerUnreachable
from trilogue.client.pulsar import Batching, PulsarClient, PulsarError, TimedOut
from trilogue.wire.pulsar.errors import ServerError

LIMIT_S = 0.4


@pytest.mark.parametrize("call", ["producer", "subscribe", "reader", "topics", "partitions"])
@pytest.mark.parametrize("scheme", ["pulsar", "http"])
def test_every_call_raises_within_its_time_out_where_no_broker_runs(call: str, scheme: str):
    async def work() -> float:
        address = f"127.0.0.1:{free_port()}"
        arguments = {"subscribe": ("t", "s"), "topics": ()}.get(call, ("t",))
        async with PulsarClient(f"{scheme}://{address}", request_timeout_s=LIMIT_S) as client:
            started = time.monotonic()
            with pytest.raises(ServerUnreachable, match="check that the server is running") as met:
                await getattr(client, call)(*arguments)
            assert address in str(met.value)
            assert isinstance(met.value, TimeoutError)
            return time.monotonic() - started

    assert run_on_idle_clock(work()) < 30  # a slow machine has room


@on_broker(request_timeout_s=0.5)
async def test_calls_raise_where_the_broker_went_down(broker: ScriptedPulsar, client: PulsarClient):
    producer = await client.producer("t", delivery_timeout_s=0.5)
    consumer = await client.subscribe("t", "s")
    await broker.shut()

    with pytest.raises(ServerUnreachable):
        await producer.send(b"a")
    with pytest.raises(ServerUnreachable):
        await consumer.receive(0.3)
    with pytest.raises(ServerUnreachable):  # after the request time-out
        async for _ in consumer:
            pass


@on_broker
async def test_no_message_in_time_is_timed_out_where_the_broker_is_up(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s")

    with pytest.raises(TimedOut, match=r"no message within 0.1 s") as met:
        await consumer.receive(0.1)
    assert not isinstance(met.value, ServerUnreachable)
    assert isinstance(met.value, TimeoutError)


def test_the_error_of_a_missing_topic_names_the_next_step():
    error = PulsarError(ServerError.TopicNotFound, "t", "")

    assert "create the topic, or check its name" in str(error)


@on_broker
async def test_a_message_that_cannot_be_encoded_fails_alone(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t", batching=Batching(max_delay_s=0.01))
    bad: Any = await producer.submit(b"a", event_time_ms=1 << 70)
    good = await producer.submit(b"b")

    async with asyncio.timeout(60):
        with pytest.raises(ClientError, match="could not be encoded"):
            await bad
        assert (await good).entry_id == 0


@on_broker
async def test_an_unexpected_error_while_an_entry_is_read_ends_the_consumer(
    broker: ScriptedPulsar, client: PulsarClient, monkeypatch: pytest.MonkeyPatch
):
    consumer = await client.subscribe("t", "s")
    (part,) = consumer._parts.values()

    def broken(*_: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(part, "_take_entry", broken)
    part.on_message(None, memoryview(b""))  # type: ignore[arg-type]
    with pytest.raises(ClientError, match=r"cannot be read.*broken"):
        await consumer.receive(5)
