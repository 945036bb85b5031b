"""sendMessageP2B (seed 002, "Producer to Broker"; wire facts 4 and the real broker's words)."""

from __future__ import annotations

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import Rig


@on_loop
async def test_a_message_is_answered_with_its_id_time_and_offset():
    async with Rig() as rig:
        rig.topic("demo", 3)
        broker = rig.broker_peer()

        first = await broker.send("demo", 1, b"hello")
        second = await broker.send("demo", 1, b"again")

        assert (first.success, first.errCode) == (True, 200)
        assert first.errMsg == str(first.messageId)
        assert (first.appendOffset, second.appendOffset) == (0, 1)
        assert first.appendTime == rig.now_ms
        assert not first.requireAuth
