"""How packs are pushed: message by message, or to a callback; and how a consumer ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.tubemq.scripted import (
    GROUP,
    TOPIC,
    Peer,
    ScriptedTube,
    bodies,
    on_server,
    put,
    reader,
)
from tests.waiting import wait_on_loop
from trilogue.client.errors import ClientError
from trilogue.client.tubemq import Batch, ClosedError, TubeClient
from trilogue.wire.tubemq.errors import EXCEPTION
from trilogue.wire.tubemq.frame import encode_failure


@on_server
async def test_messages_come_one_by_one_and_packs_are_confirmed_behind_them(
    server: ScriptedTube, client: TubeClient
):
    put(server, b"a", b"b")
    put(server, b"c", partition=1)
    consumer = await reader(client)
    got = []
    async for message in consumer:
        got.append(message.body)
        if len(got) == 3:
            await consumer.close()
    commits = [one.lastPackConsumed for one in server.all("consumerCommitC2B")]

    assert sorted(got) == [b"a", b"b", b"c"]
    assert commits == [True]


@on_server
async def test_a_pack_that_is_left_in_the_middle_comes_again(
    server: ScriptedTube, client: TubeClient
):
    put(server, b"a", b"b")
    consumer = await reader(client)
    messages = aiter(consumer)
    assert (await anext(messages)).body == b"a"
    await messages.aclose()  # type: ignore[attr-defined]

    assert bodies(await consumer.get(60)) == [b"a", b"b"]


@on_server
async def test_callback_result_decides_whether_a_batch_is_confirmed(
    server: ScriptedTube, client: TubeClient
):
    put(server, b"a")
    consumer = await reader(client)
    answers: list[Any] = [False, ValueError("scripted"), None]
    got: list[list[bytes]] = []

    async def callback(batch: Batch) -> bool | None:
        got.append(bodies(batch))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    running = asyncio.ensure_future(consumer.run(callback))
    await server.saw("consumerCommitC2B", 3)
    await wait_on_loop(lambda: server.at[f"1:{TOPIC}:0"] == 1)
    await consumer.close()
    await running

    assert got == [[b"a"]] * 3
    commits = [one.lastPackConsumed for one in server.all("consumerCommitC2B")]
    assert commits == [False, False, True]


@on_server
async def test_callbacks_run_beside_each_other_but_not_for_one_partition(
    server: ScriptedTube, client: TubeClient
):
    for number in range(3):
        put(server, b"a", partition=number)
    consumer = await reader(client)
    inside: set[str] = set()
    both, most = asyncio.Event(), 0

    async def callback(batch: Batch) -> None:
        nonlocal most
        assert batch.partition not in inside
        inside.add(batch.partition)
        most = max(most, len(inside))
        if len(inside) == 2:
            both.set()
        await both.wait()
        inside.discard(batch.partition)

    running = asyncio.ensure_future(consumer.run(callback, at_once=2))
    await server.saw("consumerCommitC2B", 3)
    await consumer.close()
    await running

    assert most == 2


@on_server
async def test_run_requires_at_least_one_concurrent_call(server: ScriptedTube, client: TubeClient):
    consumer = await reader(client)
    with pytest.raises(ClientError):
        await consumer.run(lambda _: asyncio.sleep(0), at_once=0)  # type: ignore[arg-type,return-value]


# The end.


@on_server
async def test_close_unregisters_every_partition_and_then_the_consumer(
    server: ScriptedTube, client: TubeClient
):
    """First the brokers, then the master."""
    consumer = await reader(client)
    waiting = asyncio.ensure_future(consumer.get())
    await server.saw("getMessagesC2B", 3)
    await consumer.close()

    names = [
        name for name, one in server.seen
        if name == "consumerCloseClientC2M" or getattr(one, "opType", 0) == 32
    ]  # fmt: skip
    assert names == ["consumerRegisterC2B"] * 3 + ["consumerCloseClientC2M"]
    with pytest.raises(ClosedError):
        await waiting
    with pytest.raises(ClosedError):
        await consumer.get()
    await consumer.close()


@on_server
async def test_cancelled_get_leaves_the_message_to_the_next_get(
    server: ScriptedTube, client: TubeClient
):
    kept: list[tuple[Peer, int, Any]] = []
    server.topics[TOPIC] = 1
    consumer = await client.consumer(TOPIC, group=GROUP)
    server.next_up["getMessagesC2B"].append(lambda *one: kept.append(one))
    first = asyncio.ensure_future(consumer.get())
    await server.saw("getMessagesC2B")
    first.cancel()
    put(server, b"a")
    server.on_get_messages_c2b(*kept[0])

    assert bodies(await consumer.get(60)) == [b"a"]


@on_server
async def test_session_error_is_raised_by_run(server: ScriptedTube, client: TubeClient):
    consumer = await reader(client)
    consumer.reading.report(ClientError("something is wrong"))

    async def callback(_: Batch) -> None:
        raise AssertionError("there is nothing")

    with pytest.raises(ClientError, match="something is wrong"):
        await consumer.run(callback, at_once=2)


@on_server
async def test_a_callback_whose_own_work_was_cancelled_has_failed(
    server: ScriptedTube, client: TubeClient
):
    put(server, b"a")
    consumer = await reader(client)
    calls: list[list[bytes]] = []

    async def callback(batch: Batch) -> None:
        calls.append(bodies(batch))
        if len(calls) > 1:
            await consumer.close()
            return
        work = asyncio.get_running_loop().create_future()
        work.cancel()
        await work

    async with asyncio.timeout(10):
        await consumer.run(callback)
    assert calls == [[b"a"], [b"a"]]


@on_server
async def test_a_broker_that_cannot_confirm_does_not_end_the_pushing(
    server: ScriptedTube, client: TubeClient
):
    def upset(peer: Peer, serial: int, _request: Any) -> None:
        peer.raw(encode_failure(serial, 1, EXCEPTION, "scripted"))

    put(server, b"a")
    server.next_up["consumerCommitC2B"].append(upset)
    consumer = await reader(client)
    calls: list[list[bytes]] = []

    async def callback(batch: Batch) -> None:
        calls.append(bodies(batch))
        if len(calls) > 1:
            await consumer.close()

    async with asyncio.timeout(10):
        await consumer.run(callback)
    assert calls == [[b"a"], [b"a"]]
