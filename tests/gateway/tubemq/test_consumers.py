"""Consumers at the master: registration, events of a rebalance, flow control, errors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import FULL, Rig
from tests.waiting import pass_time
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.names import TopicName
from trilogue.broker.tubemq.group_rules import ConsumeRecord, FlowControlText, TubeGroupRecord
from trilogue.gateway.tubemq.settings import TubeSettings
from trilogue.wire.tubemq.master_pb2 import EventProto

CONNECT, DISCONNECT = 10, 20
DEMO = TopicName("public", "default", "demo")
FLOW = '[{"type":1,"rule":[{"zeroCnt":3,"freqInMs":300}]}]'


def full(topic: str, number: int) -> str:
    return f"{FULL}#{topic}:{number}"


class Client:
    """A consumer as the Java client implements it, without its timers."""

    def __init__(self, rig: Rig, name: str, group: str = "g", **fields: Any) -> None:
        self.rig = rig
        self.peer = rig.master()
        self.fields = {"clientId": f"{group}_{name}", "groupName": group}
        self.how = {"topicList": ["demo"], "hostName": "192.0.2.2", **fields}
        self.has: list[str] = []
        self.event: EventProto | None = None

    async def register(self, **more: Any) -> Any:
        return await self.peer.request("consumerRegisterC2M", **{**self.fields, **self.how, **more})

    async def heartbeat(self, **more: Any) -> Any:
        """Send a heartbeat with the result of the last event, and process the next event."""
        fields: dict[str, Any] = {"reportSubscribeInfo": False, **self.fields, **more}
        if self.event is not None:
            done = EventProto()
            done.CopyFrom(self.event)
            done.status = 2
            fields |= {"event": done, "reportSubscribeInfo": True, "subscribeInfo": self.has}
        self.event = None
        response = await self.peer.request("consumerHeartbeatC2M", **fields)
        if response.success and response.HasField("event"):
            self.event = response.event
            result = list(response.event.subscribeInfo)
            if response.event.opType in {1, CONNECT}:
                self.has += result
            else:
                self.has = [each for each in self.has if each not in result]
        return response

    async def close(self) -> Any:
        return await self.peer.request("consumerCloseClientC2M", **self.fields)

    def infos(self, *numbers: int, topic: str = "demo") -> list[str]:
        client = f"{self.fields['clientId']}@{self.fields['groupName']}"
        return [f"{client}#{full(topic, number)}" for number in numbers]


async def both(rig: Rig) -> tuple[Client, Client]:
    """Two consumers that share four partitions."""
    rig.topic("demo", 4)
    one, two = Client(rig, "a"), Client(rig, "b")
    await one.register()
    await one.heartbeat()
    await two.register()
    for _ in range(3):
        await one.heartbeat()
        await two.heartbeat()
    assert one.has == one.infos(0, 1)
    assert two.has == two.infos(2, 3)
    return one, two


class TestComingAndGoing:
    @on_loop
    async def test_the_first_heartbeat_of_a_lone_consumer_brings_everything(self):
        async with Rig() as rig:
            rig.topic("demo", 3)
            client = Client(rig, "a")

            registered = await client.register(groupFlowCheckId=-2, defFlowCheckId=-2)
            response = await client.heartbeat(groupFlowCheckId=-2, defFlowCheckId=-2)

            assert registered.success
            assert registered.notAllocated
            assert response.event.opType == CONNECT
            assert not response.event.HasField("status")
            assert list(response.event.subscribeInfo) == client.infos(0, 1, 2)
            assert response.notAllocated
            assert response.authorizedInfo.visitAuthorizedToken > 0

    @on_loop
    async def test_when_it_is_done_it_hears_that_it_was_given_something(self):
        async with Rig() as rig:
            rig.topic("demo", 3)
            client = Client(rig, "a")
            await client.register()
            await client.heartbeat()

            response = await client.heartbeat()

            assert not response.HasField("event")
            assert not response.notAllocated

    @on_loop
    async def test_another_gets_its_half_when_the_first_has_let_go_of_it(self):
        async with Rig() as rig:
            rig.topic("demo", 4)
            one, two = Client(rig, "a"), Client(rig, "b")
            await one.register()
            await one.heartbeat()
            await two.register()
            await two.heartbeat()
            assert two.has == []

            response = await one.heartbeat()
            assert (response.event.opType, two.has) == (DISCONNECT, [])
            assert list(response.event.subscribeInfo) == one.infos(2, 3)
            early = await two.heartbeat()
            assert not early.HasField("event")
            await one.heartbeat()
            late = await two.heartbeat()

            assert late.event.opType == CONNECT
            assert late.event.rebalanceId == response.event.rebalanceId
            assert two.has == two.infos(2, 3)

    @on_loop
    async def test_remaining_consumer_gets_partitions_at_its_next_heartbeat_after_a_close(self):
        async with Rig() as rig:
            one, two = await both(rig)

            closed = await two.close()
            await one.heartbeat()

            assert closed.success
            assert sorted(one.has) == one.infos(0, 1, 2, 3)

    @on_loop
    async def test_partitions_of_an_expired_consumer_are_reassigned(self):
        async with Rig(tube=TubeSettings(consumer_timeout_s=5)) as rig:
            one, two = await both(rig)

            for _ in range(7):
                await pass_time(1)
                await one.heartbeat()
            lost = await two.heartbeat()

            assert sorted(one.has) == one.infos(0, 1, 2, 3)
            assert (lost.success, lost.errCode) == (False, 411)

    @on_loop
    async def test_returning_consumer_releases_reassigned_partitions(self):
        async with Rig(tube=TubeSettings(consumer_timeout_s=5)) as rig:
            one, two = await both(rig)
            for _ in range(8):
                await pass_time(1)
                await one.heartbeat()

            again = await two.register(subscribeInfo=two.has)
            response = await two.heartbeat()

            assert again.success
            assert response.event.opType in {2, DISCONNECT}
            assert list(response.event.subscribeInfo) == two.infos(2, 3)

    @on_loop
    async def test_close_of_an_unknown_consumer_succeeds(self):
        async with Rig() as rig:
            response = await Client(rig, "a").close()

            assert (response.success, response.errCode, response.errMsg) == (True, 200, "OK!")

    @on_loop
    async def test_heartbeats_of_unknown_groups_and_clients_return_411(self):
        async with Rig() as rig:
            rig.topic("demo")
            await Client(rig, "a").register()

            unknown = await Client(rig, "a", group="other").heartbeat()
            stranger = await Client(rig, "z").heartbeat()

            assert (unknown.errCode, unknown.errMsg) == (
                411,
                "Not found groupName other in holder!",
            )
            assert stranger.errCode == 411

    @on_loop
    async def test_a_topic_that_grows_is_read_at_once(self):
        async with Rig() as rig:
            rig.topic("demo", 1)
            client = Client(rig, "a")
            await client.register()
            await client.heartbeat()
            await client.heartbeat()

            await rig.commit(rig.broker.cluster.plan_add_partitions(DEMO, 3))
            await client.heartbeat()

            assert client.has == client.infos(0, 1, 2)


class TestWhoMayCome:
    @pytest.mark.parametrize(
        ("fields", "code", "text"),
        [
            ({"topicList": []}, 400, "Request miss necessary subscribed topicList data!"),
            ({"topicList": [" "]}, 400, "Request subscribed topicList data must not Blank!"),
            ({"topicList": ["nope"]}, 431, "Requested topic [[nope]] not deployed!"),
            ({"topicList": ["a b"]}, 431, "Requested topic [[a b]] not deployed!"),
            ({"clientId": ""}, 400, "Request miss necessary clientId data!"),
            ({"clientId": "x" * 1025}, 400, "allowed max length is 1024"),
            ({"clientId": "g@x#1"}, 400, "characters"),
            ({"groupName": " "}, 400, "Request miss necessary groupName data!"),
            ({"groupName": "g#h"}, 400, "characters"),
            ({"hostName": ""}, 400, "Request miss necessary hostName data!"),
            ({"topicCondition": ["other#a"]}, 400, "which is not read"),
            ({"topicCondition": ["demo"]}, 400, "not a condition"),
            ({"subscribeInfo": ["nonsense"]}, 400, "not a subscription"),
            ({"requireBound": True}, 400, "blank value of sessionKey"),
            (
                {"requireBound": True, "sessionKey": "k"},
                400,
                "[Parameter error] totalSourceCount must over zero!",
            ),
            (
                {
                    "requireBound": True,
                    "sessionKey": "k",
                    "totalCount": 1,
                    "requiredPartition": "1:x:0=5",
                },
                400,
                "wrong offset reset for unsubscribed topic",
            ),
            (
                {
                    "requireBound": True,
                    "sessionKey": "k",
                    "totalCount": 1,
                    "requiredPartition": "1:demo:0",
                },
                400,
                "unformatted",
            ),
        ],
    )
    @on_loop
    async def test_invalid_registration_returns_its_error(self, fields, code, text):
        async with Rig() as rig:
            rig.topic("demo")

            response = await Client(rig, "a").register(**fields)

            assert (response.success, response.errCode) == (False, code)
            assert text in response.errMsg
            assert not len(rig.gateway.master.balances)

    @pytest.mark.parametrize(
        ("first", "second", "code"),
        [
            ({}, {"requireBound": True, "sessionKey": "k", "totalCount": 2}, 424),
            ({}, {"topicList": ["demo", "more"]}, 425),
            ({}, {"topicCondition": ["demo#zz"]}, 426),
            ({"topicCondition": ["demo#a"]}, {"topicCondition": ["demo#a,b"]}, 426),
            ({"requireBound": True}, {"requireBound": True, "sessionKey": "other"}, 427),
            ({"requireBound": True}, {"requireBound": True, "selectBig": True}, 428),
            ({"requireBound": True}, {"requireBound": True, "totalCount": 3}, 429),
        ],
    )
    @on_loop
    async def test_all_of_a_group_read_in_one_way(self, first, second, code):
        async with Rig() as rig:
            rig.topic("demo")
            rig.topic("more")
            bound = {"sessionKey": "k", "totalCount": 2}
            one = Client(rig, "a", **({**bound, **first} if first else {}))
            two = Client(rig, "b", **({**bound, **second} if first else second))

            assert (await one.register()).success
            refused = await two.register()
            await one.close()
            alone = await two.register()

            assert (refused.success, refused.errCode) == (False, code)
            assert refused.errMsg.startswith("[Inconsistency subscribe] g_b")
            assert alone.success

    @on_loop
    async def test_a_group_that_administrators_keep_out_hears_their_code(self):
        async with Rig() as rig:
            rig.topic("demo")
            rules = rig.broker.rules
            await rig.commit(rules.plan_consume("g", DEMO, ConsumeRecord(may=False)))
            await rig.commit(
                rules.plan_consume("h", DEMO, ConsumeRecord(filtered=True, filters=("a",)))
            )

            kept_out = await Client(rig, "a").register()
            unfiltered = await Client(rig, "a", group="h").register()
            filtered = await Client(rig, "a", group="h").register(topicCondition=["demo#a"])

            assert kept_out.errCode == 450
            assert unfiltered.errCode == 455
            assert filtered.success

    @on_loop
    async def test_access_is_checked_for_the_group_and_each_topic(self):
        async with Rig() as rig:
            rig.topic("demo")
            rig.rules.deny(Operation.READ, ResourceKind.TOPIC, str(DEMO))

            response = await Client(rig, "a").register()

            assert (response.success, response.errCode) == (False, 415)


class TestFlowControl:
    @on_loop
    async def test_registration_without_flow_ids_gets_no_flow_control(self):
        async with Rig() as rig:
            rig.topic("demo")

            response = await Client(rig, "a").register()

            assert not response.HasField("defFlowCheckId")
            assert not response.HasField("groupFlowControlInfo")

    @on_loop
    async def test_flow_control_text_is_sent_only_for_an_outdated_id(self):
        async with Rig() as rig:
            rig.topic("demo")
            flow = FlowControlText(7, FLOW, holds=True)
            await rig.commit(rig.broker.rules.plan_group("g", TubeGroupRecord(flow)))
            client = Client(rig, "a")

            first = await client.register(defFlowCheckId=-2, groupFlowCheckId=-2)
            then = await client.heartbeat(defFlowCheckId=-2, groupFlowCheckId=7)

            assert (first.defFlowCheckId, first.defFlowControlInfo) == (-2, " ")
            assert (first.groupFlowCheckId, first.groupFlowControlInfo) == (7, FLOW)
            assert (then.groupFlowCheckId, then.groupFlowControlInfo) == (7, " ")
            assert (then.ssdStoreId, then.qryPriorityId) == (-2, -2)


BOUND = {"requireBound": True, "sessionKey": "k", "sessionTime": 1, "totalCount": 2}


class TestBound:
    @on_loop
    async def test_bound_group_assigns_partitions_when_all_members_have_joined(self):
        async with Rig() as rig:
            rig.topic("demo", 2)
            one, two = (Client(rig, name, **BOUND) for name in "ab")
            await one.register(requiredPartition="1:demo:0=5,1:demo:1=7")
            alone = await one.heartbeat()
            await two.register(requiredPartition="1:demo:0=3,1:demo:1=9")
            begins = await one.heartbeat()
            others = await two.heartbeat()

            assert not alone.HasField("event")
            assert alone.notAllocated
            assert begins.notAllocated  # until it has begun it names its own positions
            assert others.notAllocated
            assert sorted(one.has + two.has) == one.infos(1) + two.infos(0)

    @pytest.mark.parametrize(("big", "starts"), [(False, [3, 7]), (True, [5, 8])])
    @on_loop
    async def test_readers_begin_where_the_members_agreed(self, big, starts):
        async with Rig() as rig:
            rig.topic("demo", 2)
            peer = rig.broker_peer()
            for number in (0, 1) * 8:
                await peer.send("demo", number)
            one, two = (Client(rig, name, **BOUND, selectBig=big) for name in "ab")
            await one.register(requiredPartition="1:demo:0=5,1:demo:1=7")
            await two.register(requiredPartition="1:demo:0=3,1:demo:1=9")
            await one.heartbeat()

            registrations = rig.broker.registrations
            found = [
                registrations.register(each, "g", "g_a", now_ms=0)[0].committed
                for each in rig.broker.cluster.topic(DEMO).partitions
            ]

            assert found == starts
