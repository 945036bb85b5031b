"""Messages of WebSockets leave in turns: a batch has thousands, which one read has decoded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.http.websocket.sockets import Socket
from tests.security.live_node import LiveNode
from trilogue.gateway import steps
from trilogue.gateway.http import websocket_connection

pytestmark = pytest.mark.full
MESSAGES = 20


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LiveNode]:
    with LiveNode(tmp_path, {}, ("pulsar", "http")) as made:
        yield made


def test_a_message_waits_for_its_turn(node: LiveNode, monkeypatch: pytest.MonkeyPatch):
    """As large ones do, and small ones of a connection that has used its turn."""
    turns: list[None] = []

    async def next_step() -> None:
        turns.append(None)
        await steps.next_step()

    monkeypatch.setattr(websocket_connection, "LARGE_BYTES", 10)
    monkeypatch.setattr(websocket_connection, "next_step", next_step)
    address = node.doors["http"]
    producer = Socket(address, "producer/persistent/public/default/turns")
    for number in range(MESSAGES):
        assert producer.produce(b"%d" % number)["result"] == "ok"
    del turns[:]
    reader = Socket(address, "reader/persistent/public/default/turns?messageId=earliest")

    assert [reader.take() for _ in range(MESSAGES)] == [b"%d" % each for each in range(MESSAGES)]
    producer.close()
    reader.close()
    assert len(turns) >= MESSAGES
