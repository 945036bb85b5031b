"""The fast path of a Kafka connection: frames with the prefix of an earlier request."""

from __future__ import annotations

from tests.gateway.kafka.produce.test_produce import only, request
from tests.gateway.kafka.rig import Rig, batch, settle
from tests.gateway.loop import on_loop


@on_loop
async def test_a_frame_cut_behind_what_is_known_goes_the_long_way():
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
