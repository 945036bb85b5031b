"""Requests begin in order of arrival, so many in an iteration of the loop."""

from __future__ import annotations

import asyncio

from trilogue.gateway.http.request_starts import AT_ONCE, RequestStarts


async def begin(starts: RequestStarts, number: int, begun: list[int]) -> None:
    await starts.wait()
    begun.append(number)


def test_few_requests_begin_at_once():
    async def work() -> None:
        starts, begun = RequestStarts(), list[int]()
        tasks = [asyncio.create_task(begin(starts, each, begun)) for each in range(AT_ONCE)]
        await asyncio.sleep(0)
        assert begun == list(range(AT_ONCE))
        await asyncio.gather(*tasks)

    asyncio.run(work())


def test_many_requests_begin_in_order_and_few_of_them_in_an_iteration():
    async def work() -> None:
        starts, begun, count = RequestStarts(), list[int](), 5 * AT_ONCE
        tasks = [asyncio.create_task(begin(starts, each, begun)) for each in range(count)]
        await asyncio.sleep(0)
        tasks[AT_ONCE + 1].cancel()
        most = before = len(begun)
        while len(begun) < count - 1:
            await asyncio.sleep(0)
            most, before = max(most, len(begun) - before), len(begun)

        assert most <= AT_ONCE
        assert begun == [each for each in range(count) if each != AT_ONCE + 1]

    asyncio.run(work())
