"""Endpoints where clients have to authenticate: every method, every wrong token, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.partition_consumer import ME as ME_TOO
from tests.gateway.tubemq.partition_consumer import PartitionConsumer
from tests.gateway.tubemq.rig import Peer, Rig, put_users, send_fields, settle
from trilogue.gateway.tubemq.auth import authentication
from trilogue.gateway.tubemq.auth.authentication import ALL_ROLES, AuthenticationSettings
from trilogue.gateway.tubemq.auth.signatures import signature
from trilogue.gateway.tubemq.methods import BROKER, MASTER

SECRET = b"wonder"
ME = "grp_1-1-1-1-Pull-1.13.0"
PRODUCER: dict[str, Any] = {"clientId": ME, "brokerCheckSum": -1, "hostName": "h"}
CONSUMER: dict[str, Any] = {"clientId": ME, "groupName": "grp"}
READER: dict[str, Any] = {**CONSUMER, "topicName": "demo", "partitionId": 0}
FIELDS: dict[str, dict[str, Any]] = {
    "producerRegisterP2M": {**PRODUCER, "topicList": ["demo"]},
    "producerHeartbeatP2M": {**PRODUCER, "topicList": ["demo"]},
    "producerCloseClientP2M": {"clientId": ME},
    "consumerRegisterC2M": {**CONSUMER, "hostName": "h", "topicList": ["demo"]},
    "consumerHeartbeatC2M": {**CONSUMER, "reportSubscribeInfo": False},
    "consumerCloseClientC2M": CONSUMER,
    "consumerRegisterC2MV2": {
        **CONSUMER,
        "hostName": "h",
        "sourceCount": 0,
        "nodeId": -1,
        "topicList": ["demo"],
    },
    "consumerHeartbeatC2MV2": CONSUMER,
    "consumerGetPartMetaInfoC2M": {**CONSUMER, "brokerConfigId": -2, "topicMetaInfoId": -2},
    "sendMessageP2B": send_fields("demo", 0, b"x"),
    "consumerRegisterC2B": {**READER, "opType": 31, "readStatus": 0},
    "consumerHeartbeatC2B": {**CONSUMER, "readStatus": 0},
    "getMessagesC2B": READER,
    "consumerCommitC2B": READER,
}
WITHOUT_PROOF = {"getMessagesC2B", "consumerCommitC2B"}  # they have no field for it
OF_BROKERS = {"brokerRegisterB2M", "brokerHeartbeatB2M", "brokerCloseClientB2M"}


def rig(**how: Any) -> Rig:
    return Rig(users={"alice": SECRET}, demands=AuthenticationSettings(ALL_ROLES, **how))


def signed(rig: Rig, nonce: int = 1) -> dict[str, Any]:
    """Return the proof, for a master."""
    text = signature("alice", SECRET, rig.now_ms, nonce)
    words = {"userName": "alice", "timestamp": rig.now_ms, "nonce": nonce, "othParams": ""}
    return {"authInfo": {**words, "signature": text}}


def side(rig: Rig, name: str) -> Peer:
    masters = {row.method.name for row in MASTER}
    return rig.master() if name in masters else rig.broker_peer()


async def known(rig: Rig) -> Any:
    """Return the tokens that the master gives to a consumer that has signed."""
    response = await rig.master().request(
        "consumerRegisterC2M", **FIELDS["consumerRegisterC2M"], authInfo=signed(rig)
    )
    assert response.success
    return response.authorizedInfo


def test_every_method_of_clients_is_walked():
    every = {row.method.name for row in (*MASTER, *BROKER)}

    assert set(FIELDS) == every - OF_BROKERS


@pytest.mark.parametrize("name", FIELDS)
@on_loop
async def test_every_method_refuses_unauthenticated_requests(name):
    async with rig() as server:
        server.topic("demo")

        response = await side(server, name).request(name, **FIELDS[name])

        assert response.errCode == 415
        assert server.gateway.master.balances.names() == []
        assert not server.gateway.producers.sessions.items()
        assert not server.broker.registrations.readers()


@pytest.mark.parametrize("name", sorted(set(FIELDS) - WITHOUT_PROOF))
@pytest.mark.parametrize("token", ["nonsense", "a.b.c.d", "alice 1 2 3", "\u00e4", "x" * 2_000])
@on_loop
async def test_a_wrong_token_is_refused_by_every_method(name, token):
    async with rig() as server:
        server.topic("demo")
        peer = side(server, name)
        at_master = peer.side is server.gateway.master_endpoint
        shown: dict[str, Any] = {"authorizedToken": token}
        if not at_master:
            shown = {"visitAuthorizedToken": 7, "authAuthorizedToken": token}

        response = await peer.request(name, **FIELDS[name], authInfo=shown)

        assert response.errCode == 415


@on_loop
async def test_a_consumer_of_the_master_reads_with_its_visit_token_alone():
    async with rig() as server:
        server.topic("demo")
        info = await known(server)
        broker = server.broker_peer()
        shown = {"visitAuthorizedToken": info.visitAuthorizedToken}

        registered = await broker.request(
            "consumerRegisterC2B", **FIELDS["consumerRegisterC2B"], authInfo=shown
        )
        got = await broker.request("getMessagesC2B", **READER, timeout_ms=0)
        beat = await broker.request(
            "consumerHeartbeatC2B", **FIELDS["consumerHeartbeatC2B"], authInfo=shown
        )

        assert registered.success
        assert got.errCode == 404
        assert beat.success
        assert not beat.requireAuth
        elsewhere = await server.broker_peer().request("getMessagesC2B", **READER)
        assert elsewhere.errCode == 415


@on_loop
async def test_the_token_of_one_client_is_none_for_another():
    async with rig() as server:
        server.topic("demo")
        info = await known(server)
        shown = {
            "visitAuthorizedToken": info.visitAuthorizedToken,
            "authAuthorizedToken": info.authAuthorizedToken,
        }
        other = {**FIELDS["consumerRegisterC2B"], "clientId": ME + "2"}

        response = await server.broker_peer().request(
            "consumerRegisterC2B", **other, authInfo=shown
        )

        assert response.errCode == 415


@on_loop
async def test_visit_tokens_are_requested_beside_the_other_where_they_are_checked():
    async with rig(checks_visit=True) as server:
        server.topic("demo")
        producer = {**PRODUCER, "clientId": FIELDS["sendMessageP2B"]["clientId"]}
        registered = await server.master().request(
            "producerRegisterP2M", **producer, authInfo=signed(server)
        )
        info = registered.authorizedInfo
        broker = server.broker_peer()

        async def send(visit: int) -> Any:
            shown = {"visitAuthorizedToken": visit, "authAuthorizedToken": info.authAuthorizedToken}
            return await broker.send("demo", authInfo=shown)

        assert (await send(info.visitAuthorizedToken)).success
        refused = await send(info.visitAuthorizedToken + 1)
        assert (refused.errCode, refused.errMsg) == (415, "Visit Authorized Token is invalid!")


def at_broker(rig: Rig, user: str, secret: bytes, nonce: int) -> dict[str, Any]:
    """Return the proof of a consumer, for a broker."""
    text = signature(user, secret, rig.now_ms, nonce)
    return {
        "visitAuthorizedToken": 0,
        "authAuthorizedToken": f"{user} {rig.now_ms} {nonce} {text}",
    }


@on_loop
async def test_requests_for_the_consumer_of_another_user_are_denied():
    """A user who knows the id could move the group, or take partitions from the consumer."""
    users = {"alice": SECRET, "bob": b"builder"}
    async with Rig(users=users, demands=AuthenticationSettings(ALL_ROLES)) as server:
        server.topic("demo", 2)
        hers, his = PartitionConsumer(server.broker_peer()), PartitionConsumer(server.broker_peer())
        assert (await hers.register(authInfo=at_broker(server, "alice", SECRET, 1))).success

        registered = await his.register(1, authInfo=at_broker(server, "bob", b"builder", 2))
        refused = [registered, await his.heartbeat(0), await his.get(), await his.commit()]
        refused.append(await his.unregister())

        assert {response.errCode for response in refused} == {415}
        assert [reader.client_id for reader in server.broker.registrations.readers()] == [ME_TOO]
        assert (await hers.unregister()).success


@on_loop
async def test_unauthenticated_client_does_not_learn_the_partition_owner():
    async with rig() as server:
        server.topic("demo")
        hers = PartitionConsumer(server.broker_peer())
        assert (await hers.register(authInfo=at_broker(server, "alice", SECRET, 1))).success

        response = await PartitionConsumer(server.broker_peer(), client_id="nobody").unregister()

        assert response.errCode == 415
        assert ME_TOO not in response.errMsg


@pytest.mark.parametrize("how", ["deleted", "other password", "tokens revoked"])
@on_loop
async def test_a_user_that_changes_loses_its_connections_and_all_that_it_holds(how):
    users = {"alice": SECRET, "bob": b"builder"}
    async with Rig(users=users, demands=AuthenticationSettings(ALL_ROLES)) as server:
        server.topic("demo", 2)
        master, broker, bobs = server.master(), server.broker_peer(), server.broker_peer()
        info = await known(server)
        producer = {**FIELDS["producerRegisterP2M"], "clientId": "p-1"}
        assert (
            await master.request("producerRegisterP2M", **producer, authInfo=signed(server, 2))
        ).success
        hers, his = PartitionConsumer(broker), PartitionConsumer(bobs, "bobs")
        assert (await hers.register(authInfo=at_broker(server, "alice", SECRET, 3))).success
        assert (await his.register(1, authInfo=at_broker(server, "bob", b"builder", 4))).success
        hers.send_get()  # held

        table = server.broker.users
        if how == "deleted":
            table.plan_delete("alice", server.now_ms).apply()
        elif how == "other password":
            put_users(table, {"alice": b"other"})
        else:
            table.plan_revoke_tokens("alice", server.now_ms).apply()
        await settle()

        assert master.transport.is_closing()
        assert broker.transport.is_closing()
        assert not bobs.transport.is_closing()
        assert server.gateway.master.balances.names() == []
        assert not server.gateway.producers.sessions.items()
        assert [reader.client_id for reader in server.broker.registrations.readers()] == ["bobs"]
        for request in ("consumerHeartbeatC2M", "consumerRegisterC2M"):
            fields = FIELDS[request]
            proof = {"authorizedToken": info.authAuthorizedToken}
            response = await server.master().request(request, **fields, authInfo=proof)
            assert response.errCode == 415
        assert (await his.heartbeat(1)).success


@on_loop
async def test_admissions_are_bounded_over_all_connections(monkeypatch):
    monkeypatch.setattr(authentication, "CLIENTS_MAX", 2)
    async with rig() as server:
        server.topic("demo", 3)
        peers = [server.broker_peer() for _ in range(3)]
        consumers = [PartitionConsumer(peer, f"c{at}") for at, peer in enumerate(peers)]

        async def register(number: int, nonce: int) -> int:
            proof = at_broker(server, "alice", SECRET, nonce)
            response = await consumers[number].register(number, authInfo=proof)
            return int(response.errCode)

        assert [await register(number, number) for number in range(3)] == [200, 200, 415]
        peers[0].connection.closed()
        assert await register(2, 7) == 200
