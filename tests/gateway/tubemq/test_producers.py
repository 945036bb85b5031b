"""producerRegisterP2M, producerHeartbeatP2M, producerCloseClientP2M."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import FULL, Rig
from tests.waiting import pass_time
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.tubemq.auth.authentication import AuthenticationSettings, Role
from trilogue.gateway.tubemq.auth.signatures import signature
from trilogue.gateway.tubemq.settings import TubeSettings

CLIENT = "192.0.2.2-1-1-1-1.13.0"
ME = {"clientId": CLIENT, "hostName": "192.0.2.2", "brokerCheckSum": -1}
MIB = 1 << 20


@on_loop
async def test_registration_returns_the_broker():
    async with Rig() as rig:
        response = await rig.master().request("producerRegisterP2M", **ME)

        assert (response.success, response.errCode, response.errMsg) == (True, 200, "OK!")
        assert list(response.brokerInfos) == [FULL]
        assert response.brokerCheckSum >= 0
        assert response.authorizedInfo.visitAuthorizedToken == rig.gateway.tokens.visit_token(
            CLIENT
        )
        assert response.appdConfig.maxMsgSize == MIB


@on_loop
async def test_a_heartbeat_returns_the_topics_that_exist():
    """An unknown topic is left out, without an error."""
    async with Rig() as rig:
        rig.topic("demo", 3)
        rig.topic("small", 1, max_message_bytes="100000")
        master = rig.master()
        first = await master.request("producerRegisterP2M", **ME)

        response = await master.request(
            "producerHeartbeatP2M",
            **{**ME, "brokerCheckSum": first.brokerCheckSum},
            topicList=["demo", "nope", " demo ", "small", "a:b", ""],
        )

        assert list(response.topicInfos) == [f"demo#1:3:1#{MIB}", "small#1:1:1#100000"]
        assert response.brokerCheckSum == first.brokerCheckSum
        assert not response.brokerInfos
        assert not response.HasField("requireAuth")


@on_loop
async def test_heartbeat_with_another_broker_checksum_returns_the_broker():
    async with Rig() as rig:
        master = rig.master()
        first = await master.request("producerRegisterP2M", **ME)

        response = await master.request("producerHeartbeatP2M", **{**ME, "brokerCheckSum": 5})

        assert list(response.brokerInfos) == [FULL]
        assert response.brokerCheckSum == first.brokerCheckSum


@on_loop
async def test_the_checksum_outlives_a_restart_and_changes_with_the_address():
    async with Rig() as rig:
        before = rig.gateway.broker_checksum()
    async with Rig() as rig:
        assert rig.gateway.broker_checksum() == before
        rig.gateway.advertised = lambda: ("other.example", 8123)
        assert rig.gateway.broker_checksum() != before
        assert 0 <= rig.gateway.broker_checksum() < 1 << 63


@on_loop
async def test_known_client_config_is_not_sent_again():
    async with Rig() as rig:
        master = rig.master()
        first = await master.request("producerRegisterP2M", **ME, appdConfig={"configId": -2})
        assert first.appdConfig.maxMsgSize == MIB

        known = {"configId": first.appdConfig.configId}
        response = await master.request("producerHeartbeatP2M", **ME, appdConfig=known)

        assert response.appdConfig.configId == first.appdConfig.configId
        assert not response.appdConfig.HasField("maxMsgSize")


@on_loop
async def test_heartbeat_of_an_unknown_producer_returns_411():
    async with Rig() as rig:
        response = await rig.master().request("producerHeartbeatP2M", **ME)

        assert (response.success, response.errCode, response.brokerCheckSum) == (False, 411, -1)
        assert response.errMsg == f"Invalid node id:{CLIENT}, you have to append node first!"


@on_loop
async def test_a_producer_that_is_silent_is_forgotten():
    async with Rig(tube=TubeSettings(producer_timeout_s=30)) as rig:
        master = rig.master()
        await master.request("producerRegisterP2M", **ME)
        for _ in range(3):
            await pass_time(20)
            assert (await master.request("producerHeartbeatP2M", **ME)).success

        await pass_time(32)

        assert (await master.request("producerHeartbeatP2M", **ME)).errCode == 411
        assert rig.gateway.producers.expired == 1


@on_loop
async def test_a_producer_comes_again_on_another_connection():
    async with Rig() as rig:
        first = rig.master()
        await first.request("producerRegisterP2M", **ME)
        first.drop()

        assert (await rig.master().request("producerHeartbeatP2M", **ME)).success


@on_loop
async def test_closing_forgets_a_producer_and_also_one_that_is_not_there():
    async with Rig() as rig:
        master = rig.master()
        await master.request("producerRegisterP2M", **ME)

        for _ in range(2):
            response = await master.request("producerCloseClientP2M", clientId=CLIENT)
            assert (response.success, response.errCode, response.errMsg) == (True, 200, "OK!")

        assert (await master.request("producerHeartbeatP2M", **ME)).errCode == 411


@pytest.mark.parametrize("client_id", ["", "  ", "x" * 1_025])
@on_loop
async def test_an_id_that_is_none_is_refused(client_id):
    async with Rig() as rig:
        response = await rig.master().request(
            "producerRegisterP2M", **{**ME, "clientId": client_id}
        )
        assert (response.success, response.errCode) == (False, 400)


@on_loop
async def test_there_are_so_many_producers_and_so_many_topics_of_one():
    async with Rig(tube=TubeSettings(producers_max=1, topics_max=2)) as rig:
        master = rig.master()
        assert (await master.request("producerRegisterP2M", **ME)).success

        other = await master.request("producerRegisterP2M", **{**ME, "clientId": "other"})
        beat = await master.request("producerHeartbeatP2M", **ME, topicList=["a", "b", "c"])

        assert (other.success, other.errCode) == (False, 403)
        assert (beat.success, beat.errCode) == (False, 400)
        assert "required max count is 2" in beat.errMsg


@pytest.mark.parametrize("name", ["producerRegisterP2M", "producerHeartbeatP2M"])
@on_loop
async def test_a_topic_that_a_producer_may_not_write_to_is_refused_by_its_canonical_name(name):
    async with Rig() as rig:
        rig.topic("demo")
        master = rig.master()
        await master.request("producerRegisterP2M", **ME)
        rig.rules.deny(Operation.WRITE, ResourceKind.TOPIC, "public/default/demo")

        response = await master.request(name, **ME, topicList=["demo"])

        assert (response.success, response.errCode) == (False, 415)
        assert "public/default/demo" in response.errMsg


@on_loop
async def test_a_topic_that_takes_no_messages_is_absent():
    async with Rig() as rig:
        rig.topic("closed")
        topic = rig.broker.cluster.topic(rig.name("closed"))
        await rig.commit(
            rig.broker.cluster.plan_alter(
                topic.name, {**topic.settings, "tubemq.accept-publish": "false"}
            )
        )
        master = rig.master()
        await master.request("producerRegisterP2M", **ME)

        response = await master.request("producerHeartbeatP2M", **ME, topicList=["closed"])

        assert response.success
        assert not response.topicInfos


@on_loop
async def test_unsigned_producer_is_refused_if_signatures_are_required():
    demands = AuthenticationSettings(authenticate=frozenset({Role.PRODUCER}))
    async with Rig(demands=demands, users={"alice": b"secret"}) as rig:
        master = rig.master()

        for name in ("producerRegisterP2M", "producerHeartbeatP2M"):
            response = await master.request(name, **ME)
            assert (response.success, response.errCode, response.brokerCheckSum) == (False, 415, -1)
        closed = await master.request("producerCloseClientP2M", clientId=CLIENT)
        assert (closed.success, closed.errCode) == (False, 415)


@on_loop
async def test_requests_for_the_producer_of_another_user_are_denied():
    demands = AuthenticationSettings(authenticate=frozenset({Role.PRODUCER}))
    users = {"alice": b"secret", "bob": b"another"}
    async with Rig(demands=demands, users=users) as rig:

        def signed(user: str, nonce: int) -> dict[str, Any]:
            response = signature(user, users[user], rig.now_ms, nonce)
            words = {"userName": user, "timestamp": rig.now_ms, "nonce": nonce, "othParams": ""}
            return {"authInfo": {**words, "signature": response}}

        alice, bob = rig.master(), rig.master()
        first = await alice.request("producerRegisterP2M", **ME, authInfo=signed("alice", 1))
        assert first.success
        assert first.authorizedInfo.authAuthorizedToken

        taken = await bob.request("producerRegisterP2M", **ME, authInfo=signed("bob", 2))
        beat = await bob.request("producerHeartbeatP2M", **ME, authInfo=signed("bob", 3))
        closed = await bob.request(
            "producerCloseClientP2M", clientId=CLIENT, authInfo=signed("bob", 4)
        )

        assert [each.errCode for each in (taken, beat, closed)] == [415] * 3
        token = {"authorizedToken": first.authorizedInfo.authAuthorizedToken}
        assert (await alice.request("producerHeartbeatP2M", **ME, authInfo=token)).success
