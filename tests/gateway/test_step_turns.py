"""Requests that work in steps take turns: one step in a loop iteration, whatever their number."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.loop import on_loop
from trilogue.gateway.steps import next_step, run_in_turns, start_at_once

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
async def test_groups_take_turns_whatever_their_sizes():
    order = []

    async def work(name: str, group: object) -> None:
        await next_step(group)
        order.append(name)

    crowds = [work(name, name) for _ in range(100) for name in "ab"]
    await asyncio.gather(*crowds, work("alone", None))

    assert order.index("alone") < 5
    assert order.count("a") == order.count("b") == 100


@on_loop
async def test_a_cancelled_request_gives_its_turn_to_the_next():
    others = [asyncio.create_task(next_step()) for _ in range(5)]
    await asyncio.sleep(0)
    for each in others[1:4]:
        each.cancel()

    async with asyncio.timeout(60):
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


@on_loop
async def test_a_request_that_need_not_wait_is_answered_at_once():
    order = []

    async def answer() -> None:
        order.append("answer")

    assert start_at_once(answer()) is None
    assert order == ["answer"]


@on_loop
async def test_a_request_that_waits_goes_on_as_a_task():
    loop = asyncio.get_running_loop()
    order = []

    async def answer() -> None:
        for name in "abc":
            order.append(name)
            answered = loop.create_future()
            loop.call_soon(answered.set_result, name.upper())
            order.append(await answered)
            await asyncio.sleep(0)
        order.append(await asyncio.create_task(asyncio.sleep(0, "d")))

    rest = start_at_once(answer())

    assert order[0] == "a"
    assert rest is not None
    await asyncio.create_task(rest)
    assert order == ["a", "A", "b", "B", "c", "C", "d"]


@on_loop
async def test_a_started_request_gets_failures_and_its_cancellation():
    order = []
    failed = asyncio.get_running_loop().create_future()

    async def answer() -> None:
        with pytest.raises(ValueError, match="lost"):
            await failed
        order.append("failure")
        try:
            await asyncio.Event().wait()
        finally:
            order.append("end")

    rest = start_at_once(answer())
    assert rest is not None
    task = asyncio.create_task(rest)
    failed.set_exception(ValueError("lost"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == ["failure"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert order == ["failure", "end"]
