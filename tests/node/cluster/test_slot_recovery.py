"""The process that ends a dead node in order: what it does not wait for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from trilogue.node.node import Node


class EndingNode(SimpleNamespace):
    """A node that is about to end, and the work that it has done for that."""

    def __init__(self, *, is_recovery: bool) -> None:
        super().__init__(
            failed=asyncio.Event(),
            gateways=SimpleNamespace(listeners={}),
            hand_over=SimpleNamespace(skips_flush=False),
            metadata_writer=SimpleNamespace(finish=self._work("metadata")),
            flusher=SimpleNamespace(finish=self._work("flush")),
            place=SimpleNamespace(is_recovery=is_recovery),
            storage=SimpleNamespace(broker=None),
            _maintaining=None,
            _manifests=SimpleNamespace(write=self._work("manifest")),
        )
        self.done: list[str] = []

    def _work(self, name: str):
        async def run() -> bool:
            self.done.append(name)
            return True

        return run


@pytest.mark.parametrize("is_recovery", [False, True])
def test_a_recovery_waits_for_no_outcomes_since_it_reaches_no_node(monkeypatch, *, is_recovery):
    """It would wait for 2 s, which are a part of the pause of the dead node's clients."""
    looks: list[bool] = []

    async def look(_broker: object) -> None:
        looks.append(True)

    monkeypatch.setattr("trilogue.node.node.finish_decisions", look)

    async def drain() -> list[str]:
        node = EndingNode(is_recovery=is_recovery)
        await Node.drain(node, asyncio.Event(), 60.0)  # type: ignore[arg-type]
        return node.done

    assert asyncio.run(drain()) == ["metadata", "flush", "manifest"]
    assert looks == ([] if is_recovery else [True])
