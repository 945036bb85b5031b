"""The fast path of a Kafka connection: frames with the prefix of an earlier request."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.produce.test_produce import only, request
from tests.gateway.kafka.rig import Rig, batch, settle
from tests.gateway.kafka.transactions.test_transactions import (
    INVALID_EPOCH,
    INVALID_STATE,
    TOPIC,
    Writer,
)
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.kafka.connection import KafkaConnection
from trilogue.meta.operations import AssignSlots
from trilogue.wire.kafka.errors import ErrorCode


@on_loop
async def test_frame_truncated_after_a_known_prefix_takes_the_slow_path():
    """The frame ends after the prefix of an earlier request: it is malformed."""
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        only(await peer.request(request("t", batch("a")), 7))
        (prefix,) = rig.gateway.templates._templates
        body = (7).to_bytes(4, "big") + bytes(4) + prefix

        peer.transport.receive(len(body).to_bytes(4, "big") + body)
        await settle()

        assert peer.is_cut


@on_loop
@pytest.mark.parametrize("new", [False, True])
async def test_batches_of_a_transaction_are_not_decoded(monkeypatch, new: bool):
    """But what its coordinator refuses is, to be answered with the reason."""
    decoded: list[str] = []
    handle_request = KafkaConnection.handle_request

    def note_request(connection, api, frame):
        decoded.append(api.name)
        handle_request(connection, api, frame)

    monkeypatch.setattr(KafkaConnection, "handle_request", note_request)
    async with Rig() as rig:
        rig.topic(TOPIC)
        writer = Writer(rig.peer(), new=new)
        await writer.init()
        for number in range(3):
            if not new:
                await writer.add(0)
            before = decoded.count("Produce")
            assert [await writer.write(f"{number} {each}") for each in "abc"] == [0, 0, 0]
            assert decoded.count("Produce") - before == (1 if not number else 0)
            assert not await writer.end(commit=number < 2)
        before = decoded.count("Produce")
        if new:
            writer.epoch -= 1
            assert await writer.write("of a fenced producer") == INVALID_EPOCH
        else:
            assert await writer.write("of no transaction") == INVALID_STATE
        assert decoded.count("Produce") - before == 1


@on_loop
async def test_a_template_of_a_transactional_id_needs_access_to_it():
    async with Rig() as rig:
        rig.topic(TOPIC)
        writer = Writer(rig.peer(), new=True)
        await writer.init()
        assert [await writer.write(each) for each in "ab"] == [0, 0]
        rig.rules.deny(Operation.WRITE, ResourceKind.TRANSACTION, writer.name)

        assert await writer.write("c") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@on_loop
@pytest.mark.parametrize("new", [False, True])
async def test_a_batch_of_a_transaction_for_a_partition_of_another_node_names_the_owner(new: bool):
    """Its coordinator is another node, too, which has confirmed nothing at this one."""
    rig = Rig()
    rig.meta.write_now([AssignSlots((rig.meta.state.node_id + 1,))])
    async with rig:
        rig.topic(TOPIC)
        writer = Writer(rig.peer(), new=new)
        writer.id, writer.epoch = 7, 0
        assert await writer.write("a") == ErrorCode.NOT_LEADER_OR_FOLLOWER
