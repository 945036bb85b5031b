"""Damaged requests get an error or cost their own connection, and log no exception."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import Rig, frame_of, settle
from trilogue.wire.tubemq.methods import METHODS, Method, Service

TEXTS = {"clientId": "g_192.0.2.2-1-1-1-Pull-1.13.0", "groupName": "g", "topicName": "demo"}
FLIPS = 3  # of each byte


def fields(method: Method) -> dict[str, Any]:
    """Return a value for every required field of a message."""
    found: dict[str, Any] = {}
    for field in method.request.DESCRIPTOR.fields:
        if not field.is_required:
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            found[field.name] = TEXTS.get(field.name, "x")
        elif field.type == FieldDescriptor.TYPE_BYTES:
            found[field.name] = b"data"
        else:
            found[field.name] = 1
    return found


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_damaged_request_of_any_method_is_refused_or_ends_its_connection(method, caplog):
    @on_loop
    async def scenario():
        async with Rig() as rig:
            rig.topic("demo", 2)
            random = Random(method.number)
            at_master = method.service is Service.MASTER
            whole = frame_of(1, method.name, **fields(method))
            peer = None
            for at in range(len(whole)):
                for _ in range(FLIPS):
                    damaged = bytearray(whole)
                    damaged[at] ^= random.randrange(1, 256)
                    if peer is None or peer.is_cut:
                        peer = rig.master() if at_master else rig.broker_peer()
                    peer.give(bytes(damaged) + (whole if at >= 12 else b""))
                    await settle()
                    if not peer.is_cut and peer.connection.stream._frames.pending:
                        peer.drop()  # a length that waits for more
            other = rig.broker_peer()
            assert (await other.send("demo")).success

    caplog.set_level(logging.ERROR)
    scenario()
    assert [record.getMessage() for record in caplog.records] == []
