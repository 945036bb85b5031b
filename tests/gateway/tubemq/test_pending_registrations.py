"""Consumers that register as Java's do: without a proof, which comes with a later heartbeat."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import Rig
from tests.gateway.tubemq.test_consumers import Client
from tests.waiting import pass_time
from trilogue.gateway.tubemq import master
from trilogue.gateway.tubemq.auth.authentication import AuthenticationSettings, Role
from trilogue.gateway.tubemq.auth.signatures import signature
from trilogue.gateway.tubemq.master import PendingRegistrations
from trilogue.wire.tubemq.master_pb2 import MasterCertificateInfo

NOTHING = MasterCertificateInfo(authorizedToken="")
SECRET = b"wonder"


def rig(**how: Any) -> Rig:
    demands = AuthenticationSettings(frozenset({Role.CONSUMER}))
    return Rig(users={"alice": SECRET}, demands=demands, **how)


def proof(rig: Rig, *, secret: bytes = SECRET, nonce: int = 1) -> MasterCertificateInfo:
    info = MasterCertificateInfo()
    info.authInfo.userName = "alice"
    info.authInfo.timestamp = rig.now_ms
    info.authInfo.nonce = nonce
    info.authInfo.othParams = ""
    info.authInfo.signature = signature("alice", secret, rig.now_ms, nonce)
    return info


@on_loop
async def test_it_gets_nothing_and_is_in_no_group_until_a_heartbeat_brings_the_proof():
    async with rig() as server:
        server.topic("demo", 2)
        client = Client(server, "a")

        registered = await client.register(authInfo=NOTHING)
        first = await client.heartbeat(authInfo=NOTHING)

        for response in (registered, first):
            assert response.success
            assert response.notAllocated
            assert not response.HasField("authorizedInfo")
        assert first.requireAuth
        assert not first.HasField("event")
        assert server.gateway.master.balances.names() == []

        proven = await client.heartbeat(authInfo=proof(server))

        assert proven.success
        assert client.has == client.infos(0, 1)
        assert proven.authorizedInfo.authAuthorizedToken
        assert not proven.requireAuth
        assert len(server.gateway.master.pending) == 0


@on_loop
async def test_one_that_balances_itself_comes_in_the_same_way():
    async with rig() as server:
        server.topic("demo", 2)
        peer = server.master()
        ids: dict[str, Any] = {"clientId": "c", "groupName": "g"}

        registered = await peer.request(
            "consumerRegisterC2MV2",
            **ids,
            hostName="h",
            sourceCount=0,
            nodeId=-1,
            topicList=["demo"],
            authInfo=NOTHING,
        )
        first = await peer.request("consumerHeartbeatC2MV2", **ids, authInfo=NOTHING)
        metas = await peer.request(
            "consumerGetPartMetaInfoC2M",
            **ids,
            brokerConfigId=-2,
            topicMetaInfoId=-2,
            authInfo=NOTHING,
        )
        proven = await peer.request("consumerHeartbeatC2MV2", **ids, authInfo=proof(server))

        assert metas.errCode == 200
        assert not metas.topicMetaInfoList
        assert not metas.brokerConfigList
        assert [response.errCode for response in (registered, first, proven)] == [200, 200, 200]
        assert first.opsTaskInfo.requireAuth
        assert not first.brokerConfigList
        assert list(proven.topicMetaInfoList) == ["demo#1:1:2:1"]


@on_loop
async def test_a_wrong_proof_leaves_it_outside():
    async with rig() as server:
        server.topic("demo")
        client = Client(server, "a")
        await client.register(authInfo=NOTHING)

        response = await client.heartbeat(authInfo=proof(server, secret=b"guess"))

        assert (response.success, response.errCode) == (False, 415)
        assert server.gateway.master.balances.names() == []


@on_loop
async def test_registration_without_auth_info_is_refused_at_once():
    async with rig() as server:
        server.topic("demo")

        response = await Client(server, "a").register()

        assert (response.success, response.errCode) == (False, 415)


@on_loop
async def test_pending_registration_is_checked_on_authentication():
    async with rig() as server:
        client = Client(server, "a", topicList=["absent"])
        await client.register(authInfo=NOTHING)

        response = await client.heartbeat(authInfo=proof(server))

        assert (response.success, response.errCode) == (False, 431)


@on_loop
async def test_a_heartbeat_without_a_registration_before_it_has_to_register():
    async with rig() as server:
        response = await Client(server, "a").heartbeat(authInfo=NOTHING)

        assert (response.success, response.errCode) == (False, 411)


@on_loop
async def test_pending_registration_is_bound_to_its_connection():
    async with rig() as server:
        server.topic("demo")
        server.topic("other")
        client = Client(server, "a")
        stranger = Client(server, "a", topicList=["other"])
        await client.register(authInfo=NOTHING)

        response = await stranger.register(authInfo=NOTHING)
        heartbeat_response = await stranger.heartbeat(authInfo=NOTHING)

        assert response.errCode == 415
        assert heartbeat_response.errCode == 411
        await client.heartbeat(authInfo=proof(server))
        assert client.has == client.infos(0)


@on_loop
async def test_unauthenticated_pending_registration_expires():
    async with rig() as server:
        server.topic("demo")
        client = Client(server, "a")
        await client.register(authInfo=NOTHING)

        await pass_time(2 * server.tube.consumer_timeout_s)

        assert (await client.heartbeat(authInfo=NOTHING)).errCode == 411


@pytest.mark.parametrize("bound", ["PENDING_MAX", "PENDING_BYTES_MAX"])
@on_loop
async def test_number_of_pending_registrations_is_limited(bound, monkeypatch):
    monkeypatch.setattr(master, bound, 0)
    async with rig() as server:
        server.topic("demo")
        server.gateway.master.pending = PendingRegistrations(60.0)

        response = await Client(server, "a").register(authInfo=NOTHING)

        assert response.errCode == 415
