"""Bytes of all kinds: whatever comes costs at most its own connection, and never surprises us."""

from __future__ import annotations

import asyncio
import logging

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.loop import JumpingLoop
from tests.gateway.pulsar.rig import Rig, frame_of, section, send_frame, settle
from tests.gateway.pulsar.test_connection import anything
from trilogue.wire.pulsar.commands import COMMANDS, Sender

FIELDS = [row.field for row in COMMANDS if row.sender is not Sender.BROKER]
SURPRISES = {"connection.failed", "request.failed", "task.failed", "connection.close_failed"}

frames = st.one_of(
    st.sampled_from(FIELDS).map(anything),
    st.builds(send_frame, st.integers(0, 3), st.integers(0, 2**64 - 1), st.binary(max_size=40)),
    st.builds(lambda body: send_frame(1, 0, body=body), st.binary(max_size=60)),
    st.builds(
        lambda **fields: frame_of("producer", request_id=1, **fields),
        topic=st.sampled_from(["t", "p", "p-partition-1", "new", "x/y", "non-persistent://a/b/c"]),
        producer_id=st.integers(0, 3),
        producer_access_mode=st.integers(0, 3),
        producer_name=st.sampled_from(["", "a", "b"]),
        epoch=st.integers(0, 2),
        topic_epoch=st.integers(0, 2**64 - 1),
    ),
    st.builds(
        lambda **fields: frame_of("close_producer", request_id=2, **fields),
        producer_id=st.integers(0, 3),
    ),
    st.builds(
        lambda **fields: frame_of("subscribe", request_id=3, **fields),
        topic=st.sampled_from(["t", "p-partition-0", "new"]),
        subscription=st.sampled_from(["s", "u", ""]),
        subType=st.integers(0, 3),
        consumer_id=st.integers(0, 2),
    ),
    st.builds(
        lambda **fields: frame_of("flow", **fields),
        consumer_id=st.integers(0, 2),
        messagePermits=st.integers(0, 2**32 - 1),
    ),
    st.builds(
        lambda at, bit: _flipped(send_frame(1, 1, body=section(b"abc")), at, bit),
        st.integers(0, 60),
        st.integers(0, 7),
    ),
)


def _flipped(frame: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(frame)
    changed[4 + at % (len(frame) - 4)] ^= 1 << bit
    return bytes(changed)


@given(st.lists(frames, max_size=12), st.sampled_from([0, 4, 21]))
@settings(
    deadline=None,  # a busy machine is no surprise
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_order_of_commands_surprises_the_listener(caplog, given, version):
    async def scenario():
        async with Rig() as rig:
            rig.topic("t")
            rig.topic("p", 2)
            other = await rig.connected()
            await other.producer("t", 9, producer_name="other")
            peer = await rig.connected(version)
            for frame in given:
                if not peer.is_cut and peer.transport.reading:
                    peer.give(frame)
                    await settle()
            other.send_command("ping")
            await settle()

            assert not other.is_cut

    with caplog.at_level(logging.WARNING), asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(scenario())

    assert not [each for each in caplog.records if each.getMessage() in SURPRISES]
    caplog.clear()
