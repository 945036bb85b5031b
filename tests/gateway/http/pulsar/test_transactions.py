"""/admin/v3/transactions: the coordinator's state, and what a transaction contains."""

from __future__ import annotations

from typing import Any

import httpx
from starlette.types import ASGIApp

from tests.gateway.http.pulsar.test_access import with_access
from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import SHARED, fill, ids, received, subscribe
from tests.gateway.pulsar.rig import NOW_MS, Peer, Rig
from tests.gateway.pulsar.transactions.test_transactions import ABORT, ack_in, begin, end, send_in
from trilogue.gateway.http.pulsar.routes import build_pulsar_app

V3 = "http://broker/admin/v3/transactions"
TOPIC = "persistent://public/default/t"


class Client:
    """GET and POST below /admin/v3/transactions; gives the status and the JSON."""

    def __init__(self, rig: Rig, peer: Peer) -> None:
        app: ASGIApp = with_access(build_pulsar_app(rig.gateway), peer.connection.access)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app))

    async def __call__(self, path: str, method: str = "GET") -> tuple[int, Any]:
        answer = await self.http.request(method, f"{V3}/{path}")
        return answer.status_code, answer.json() if answer.content else None


@on_loop
async def test_a_transaction_is_described_with_its_topics_and_subscriptions():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1", b"2")
        peer = await rig.connected()
        await peer.producer("t")
        await subscribe(peer, kind=SHARED, consumer_id=2)
        await received(peer)
        admin = Client(rig, peer)
        txn = await begin(peer)
        least = txn["txnid_least_bits"]
        await send_in(peer, txn, b"3")
        assert await ack_in(peer, txn, ids(rig, 1), consumer_id=2) is None

        metadata = {
            "txnId": f"(0,{least})",
            "status": "OPEN",
            "openTimestamp": NOW_MS,
            "timeoutAt": 60_000,
            "producedPartitions": {TOPIC: {"startPosition": "1:3", "aborted": False}},
            "ackedPartitions": {TOPIC: {"s": {"cumulativeAckPosition": None}}},
            "owner": "User:ANONYMOUS",
        }
        assert await admin(f"transactionMetadata/0/{least}") == (200, metadata)
        assert await admin("slowTransactions/1") == (200, {})
        rig.now_ms += 1
        assert await admin("slowTransactions/1") == (200, {f"(0,{least})": metadata})
        assert (await admin("coordinatorStats?coordinatorId=0"))[1]["ongoingTxnSize"] == 1
        assert list((await admin("coordinatorStats"))[1]) == ["0"]
        place = "public/default/t"
        assert (await admin(f"transactionInBufferStats/{place}/0/{least}"))[1] == {
            "startPosition": "1:3",
            "aborted": False,
        }
        path = f"transactionInPendingAckStats/{place}/s/0/{least}"
        assert (await admin(path))[1] == {"cumulativeAckPosition": None}
        stats = (await admin(f"transactionBufferStats/{place}"))[1]
        assert (stats["maxReadPosition"], stats["ongoingTxnSize"]) == ("1:2", 1)
        assert (await admin(f"pendingAckStats/{place}/s"))[1]["ongoingTxnSize"] == 1
        states = [
            (await admin(f"positionStatsInPendingAck/{place}/s/1/{entry}"))[1]["state"]
            for entry in (0, 1)
        ]
        assert states == ["NotInPendingAck", "PendingAck"]

        assert await admin(f"abortTransaction/0/{least}", "POST") == (204, None)
        assert (await admin(f"transactionMetadata/0/{least}"))[1]["status"] == "ABORTED"
        assert (await admin(f"pendingAckStats/{place}/s"))[1]["ongoingTxnSize"] == 0
        await received(peer)
        assert await end(peer, txn, ABORT) is None
        assert (await admin("abortTransaction/0/999", "POST"))[0] == 404
        committed = await begin(peer)
        assert await end(peer, committed) is None
        path = f"abortTransaction/0/{committed['txnid_least_bits']}"
        assert (await admin(path, "POST"))[0] == 409
        assert (await admin("coordinatorInternalStats/0"))[0] == 405
        assert (await admin("coordinatorStats?coordinatorId=1"))[0] == 404
