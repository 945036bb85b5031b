"""What requests over HTTP hold of the node's memory."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request
from starlette.types import Message

from trilogue.gateway.http.request_limits import (
    BODY_MAX,
    MEMORY,
    SMALL_BYTES,
    HttpError,
    read_body,
    reserve_memory,
)
from trilogue.gateway.memory_budget import MIB, MemoryBudget, MemoryHolder


def test_replies_that_hold_some_memory_and_want_more_do_not_wait_for_each_other():
    async def scenario() -> None:
        budget = MemoryBudget(24 * MIB)
        holders = [MemoryHolder(budget) for _ in range(3)]
        for holder in holders:  # as each GET has before the size of its reply is known
            await budget.reserve(holder, 4 * MIB)

        async def reply(holder: MemoryHolder) -> None:
            await reserve_memory(Request({"type": "http", MEMORY: holder}), 15 * MIB)
            assert budget.size_bytes == 15 * MIB
            holder.resize(0)

        async with asyncio.timeout(60):
            await asyncio.gather(*map(reply, holders))

    asyncio.run(scenario())


def test_a_smaller_reply_gives_memory_back_at_once():
    async def scenario() -> None:
        budget = MemoryBudget(24 * MIB)
        holder = MemoryHolder(budget)
        await budget.reserve(holder, 4 * MIB)
        await reserve_memory(Request({"type": "http", MEMORY: holder}), MIB)
        assert budget.size_bytes == MIB

    asyncio.run(scenario())


@pytest.mark.parametrize("length", [100, SMALL_BYTES, SMALL_BYTES + 1, BODY_MAX])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_is_the_pieces_that_came(length: int, is_chunked: bool):
    body = bytes(range(256)) * (length // 256) + bytes(length % 256)
    pieces = [body[at : at + 60_000] for at in range(0, length, 60_000)]
    declared = {"transfer-encoding": "chunked"} if is_chunked else {"content-length": str(length)}

    assert asyncio.run(read_body(request_of(declared, pieces))) == body


def test_a_body_of_chunks_that_is_too_large_is_refused():
    pieces = [bytes(BODY_MAX), b"x"]
    with pytest.raises(HttpError) as refused:
        asyncio.run(read_body(request_of({"transfer-encoding": "chunked"}, pieces)))

    assert refused.value.status == 413


def request_of(headers: dict[str, str], pieces: list[bytes]) -> Request:
    messages: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces)}
        for number, piece in enumerate(pieces, 1)
    ]

    async def receive() -> Message:
        return messages.pop(0)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "PUT", "path": "/", "headers": raw}, receive)
