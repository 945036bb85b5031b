"""Rows of nodes: who has applied what, and who is waited for."""

from __future__ import annotations

import asyncio
from pathlib import Path

from trilogue.node.followed_versions import ALIVE_S, WAIT_MAX_S, FollowedVersions


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_node_that_is_alive_is_waited_for(tmp_path: Path):
    clock = Clock()
    first, second = (FollowedVersions(tmp_path / "rows", each, clock) for each in (1, 2))
    first.begin(7)
    second.begin(7)

    assert first.all_have(7)
    assert not first.all_have(8)
    second.publish(8)
    assert first.all_have(8)
    second.publish(0)  # a sign of life alone takes nothing back
    assert first.all_have(8)


def test_a_node_that_gives_no_sign_is_not_waited_for(tmp_path: Path):
    clock = Clock()
    first, second = (FollowedVersions(tmp_path / "rows", each, clock) for each in (1, 2))
    first.begin(7)
    second.begin(7)

    clock.now += ALIVE_S + 0.1
    assert first.all_have(8)
    second.publish(7)
    assert not first.all_have(8)


def test_the_wait_ends_with_the_last_node_or_after_its_limit(tmp_path: Path):
    first, second = (FollowedVersions(tmp_path / "rows", each) for each in (1, 2))
    first.begin(7)
    second.begin(7)

    async def wait() -> None:
        waiting = asyncio.create_task(first.wait_for_others(8))
        await asyncio.sleep(0)
        assert not waiting.done()
        second.publish(8)
        await waiting
        await asyncio.wait_for(first.wait_for_others(9), 30 * WAIT_MAX_S)

    asyncio.run(wait())


def test_a_node_of_an_earlier_boot_is_waited_for_at_most_once(tmp_path: Path):
    clock = Clock()
    FollowedVersions(tmp_path / "rows", 2, clock).begin(3)
    clock.now = 5.0  # it was started again, and so was its clock

    first = FollowedVersions(tmp_path / "rows", 1, clock)

    assert not first.all_have(4)
