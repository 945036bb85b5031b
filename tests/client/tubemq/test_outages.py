"""The TubeMQ client with servers that are down, and with errors in its own callbacks."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tools.servers.probe import free_port

from tests.client.harness import run_on_idle_clock
from tests.client.tubemq.scripted import TOPIC, ScriptedTube, on_server
from trilogue.client.errors import ClientError, InvalidOption, ServerUnreachable, TimedOut
from trilogue.client.tubemq import Message, NoMessage, TubeClient, TubeError
from trilogue.client.tubemq.producer import SendAttempt
from trilogue.wire.tubemq.errors import TubeCode

LIMIT_S = 0.4
OPTIONS = {"request_timeout_s": LIMIT_S, "register_timeout_s": LIMIT_S}


@pytest.mark.parametrize("call", ["producer", "consumer"])
def test_every_call_raises_within_its_time_out_where_no_master_runs(call: str):
    async def work() -> float:
        address = f"127.0.0.1:{free_port()}"
        options = {"group": "g"} if call == "consumer" else {}
        async with TubeClient(address, **OPTIONS) as client:
            started = time.monotonic()
            with pytest.raises(ServerUnreachable, match="check that the server is running") as met:
                await getattr(client, call)(TOPIC, **options)
            assert address in str(met.value)
            assert isinstance(met.value, TimeoutError)
            return time.monotonic() - started

    assert run_on_idle_clock(work()) < 30  # a slow machine has room


@on_server(**OPTIONS)
async def test_calls_raise_where_the_server_went_down(server: ScriptedTube, client: TubeClient):
    producer = await client.producer(TOPIC)
    await producer.send(Message(TOPIC, b"a"))
    consumer = await client.consumer(TOPIC, group="g")
    await server.shut()

    await asyncio.sleep(0.1)  # the connections are found to be closed
    with pytest.raises(ServerUnreachable):
        await producer.send(Message(TOPIC, b"b"))
    with pytest.raises(ServerUnreachable):
        await consumer.get(0.5)
    with pytest.raises(ServerUnreachable):  # after the request time-out
        async for _ in consumer:
            pass


@on_server
async def test_no_message_in_time_is_timed_out(server: ScriptedTube, client: TubeClient):
    consumer = await client.consumer(TOPIC, group="g")

    with pytest.raises(TimedOut) as met:
        await consumer.get(0.1)
    assert isinstance(met.value, NoMessage)
    assert isinstance(met.value, TimeoutError)


def test_the_error_of_a_missing_topic_names_the_next_step():
    error = TubeError(TubeCode.TOPIC_NOT_DEPLOYED, "no", "register")

    assert "create the topic, or check its name" in str(error)
    assert error.err_msg == "no"


@on_server
async def test_an_unexpected_error_in_the_answer_to_a_message_fails_the_message(
    server: ScriptedTube, client: TubeClient, monkeypatch: pytest.MonkeyPatch
):
    producer = await client.producer(TOPIC)
    done = SendAttempt._done

    def broken(attempt: SendAttempt, answer: Any, problem: Exception | None) -> None:
        if problem is None:
            raise RuntimeError("broken")
        done(attempt, answer, problem)

    monkeypatch.setattr(SendAttempt, "_done", broken)
    async with asyncio.timeout(60):
        with pytest.raises(ClientError, match=r"cannot be used.*broken"):
            await producer.send(Message(TOPIC, b"a"))
    assert producer.in_flight == 0


@on_server
async def test_an_unexpected_error_while_connecting_fails_the_messages(
    server: ScriptedTube, client: TubeClient, monkeypatch: pytest.MonkeyPatch
):
    producer = await client.producer(TOPIC)

    async def broken(*_: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(producer.servers, "peek", lambda _: None)
    monkeypatch.setattr(producer.servers, "get", broken)
    async with asyncio.timeout(60):
        with pytest.raises(ClientError, match="broken"):
            await producer.send(Message(TOPIC, b"a"))


@on_server
async def test_topics_come_first_and_the_earlier_order_warns(
    server: ScriptedTube, client: TubeClient
):
    server.topics["other"] = 1
    first = await client.consumer(TOPIC, "other", group="g")
    with pytest.warns(DeprecationWarning, match=r"consumer\(topics, group=group\)"):
        second = await client.consumer("g2", TOPIC)
    with pytest.warns(DeprecationWarning, match="give topics before"):
        third = await client.consumer(topics={TOPIC: ["kind"]}, group="g3")
    with pytest.raises(InvalidOption, match="reads for a group"):
        await client.consumer(TOPIC)

    assert (set(first.topics), first.group) == ({TOPIC, "other"}, "g")
    assert (set(second.topics), second.group) == ({TOPIC}, "g2")
    assert third.topics == {TOPIC: frozenset({"kind"})}


@on_server
async def test_the_earlier_name_of_a_heartbeat_works_and_warns(
    server: ScriptedTube, client: TubeClient
):
    producer = await client.producer(TOPIC)
    before = len(server.all("producerHeartbeatP2M"))
    with pytest.warns(DeprecationWarning, match="send_heartbeat"):
        await producer.beat()

    assert len(server.all("producerHeartbeatP2M")) == before + 1
