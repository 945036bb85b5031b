"""Requests that work in steps take turns: one step in a loop iteration, whatever their number."""

from __future__ import annotations

import asyncio

from tests.gateway.loop import on_loop
from trilogue.gateway.steps import next_step, run_in_turns

WORKERS, STEPS = 50, 10


@on_loop
async def test_one_step_of_all_requests_runs_in_a_loop_iteration():
    loop = asyncio.get_running_loop()
    ran, most = 0, 0

    def look() -> None:
        nonlocal ran, most
        most, ran = max(most, ran), 0
        loop.call_soon(look)

    async def work() -> None:
        nonlocal ran
        for _ in range(STEPS):
            await next_step()
            ran += 1

    tasks = [asyncio.create_task(work()) for _ in range(WORKERS)]
    await asyncio.sleep(0)
    loop.call_soon(look)
    await asyncio.gather(*tasks)

    assert most == 1


@on_loop
async def test_requests_take_turns_in_order():
    order = []

    async def work(name: str) -> None:
        for _ in range(3):
            await next_step()
            order.append(name)

    await asyncio.gather(*(work(name) for name in "abc"))

    assert order == list("abcabcabc")


@on_loop
async def test_a_cancelled_request_gives_its_turn_to_the_next():
    others = [asyncio.create_task(next_step()) for _ in range(5)]
    await asyncio.sleep(0)
    for each in others[1:4]:
        each.cancel()

    async with asyncio.timeout(10):
        await others[0]
        await others[4]
        await next_step()


@on_loop
async def test_steps_return_their_result():
    def steps():
        yield
        yield
        return "done"

    assert await run_in_turns(steps()) == "done"
