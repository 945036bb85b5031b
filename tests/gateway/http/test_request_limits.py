"""What requests over HTTP hold of the node's memory."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from trilogue.gateway.http.request_limits import MEMORY, reserve_memory
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
