"""Client-balanced consumers: the addresses and partition counts in their responses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import FULL, Rig
from tests.gateway.tubemq.test_consumers import DEMO, FLOW
from tests.gateway.tubemq.test_consumers import Client as ServerClient
from trilogue.broker.tubemq.even_assignment import TubePartition
from trilogue.broker.tubemq.group_rules import ConsumeRecord, FlowControlText, TubeGroupRecord
from trilogue.gateway.tubemq.settings import TubeSettings

REPORT = {"brokerConfigId": 1, "topicMetaInfoId": 1, "reportSubInfo": True}


class Client:
    """A ClientBalanceConsumer of the Java client, without its timers."""

    def __init__(self, rig: Rig, name: str, count: int = 2, node_id: int = 0) -> None:
        self.peer = rig.master()
        self.client = {"clientId": f"g_{name}", "groupName": "g"}
        self.nodes = {"sourceCount": count, "nodeId": node_id}
        self.ids = {"brokerConfigId": -2, "topicMetaInfoId": -2}

    async def register(self, **more: Any) -> Any:
        fields = {
            **self.client,
            **self.nodes,
            "hostName": "192.0.2.2",
            "topicList": ["demo"],
            "subRepInfo": {**self.ids, "reportSubInfo": False},
            **more,
        }
        return self.learn(await self.peer.request("consumerRegisterC2MV2", **fields))

    async def heartbeat(self, has: list[str] | None = None, **more: Any) -> Any:
        report = {"reportSubInfo": has is not None, "partSubInfo": has or []}
        fields = {**self.client, "subRepInfo": {**self.ids, **report}, **more}
        return self.learn(await self.peer.request("consumerHeartbeatC2MV2", **fields))

    async def meta(self) -> Any:
        return self.learn(
            await self.peer.request("consumerGetPartMetaInfoC2M", **self.client, **self.ids)
        )

    def learn(self, response: Any) -> Any:
        for name in self.ids:
            if name in response.DESCRIPTOR.fields_by_name and response.HasField(name):
                self.ids[name] = getattr(response, name)
        return response


@on_loop
async def test_registration_returns_the_broker_and_meta_the_partitions():
    async with Rig() as rig:
        rig.topic("demo", 3)
        client = Client(rig, "a")

        registered = await client.register()
        meta = await client.meta()

        assert (registered.errCode, registered.errMsg) == (200, "OK!")
        assert list(registered.brokerConfigList) == [FULL]
        assert registered.HasField("opsTaskInfo")
        assert registered.authorizedInfo.visitAuthorizedToken > 0
        assert list(meta.topicMetaInfoList) == ["demo#1:1:3:1"]
        assert meta.topicMetaInfoId >= 0  # clients look at no other


@on_loop
async def test_lists_are_sent_only_for_outdated_ids():
    async with Rig() as rig:
        rig.topic("demo", 3)
        client = Client(rig, "a")
        await client.register()
        first = await client.meta()

        again = await client.meta()
        beat = await client.heartbeat()
        registered = await client.register()

        assert not first.brokerConfigList
        assert (list(again.topicMetaInfoList), list(again.brokerConfigList)) == ([], [])
        assert again.topicMetaInfoId == first.topicMetaInfoId
        assert (beat.HasField("topicMetaInfoId"), list(beat.brokerConfigList)) == (False, [])
        assert beat.HasField("brokerConfigId")  # the Java client reads it unasked
        assert not registered.brokerConfigList


@on_loop
async def test_a_topic_that_grows_or_goes_is_heard_of_with_the_next_heartbeat():
    async with Rig() as rig:
        rig.topic("demo", 1)
        rig.topic("more", 1)
        client = Client(rig, "a")
        await client.register(topicList=["demo", "more"])
        await client.meta()

        await rig.commit(rig.broker.cluster.plan_add_partitions(DEMO, 4))
        grown = await client.heartbeat()
        await rig.commit(rig.broker.cluster.plan_delete(DEMO))
        gone = await client.heartbeat()

        assert list(grown.topicMetaInfoList) == ["demo#1:1:4:1", "more#1:1:1:1"]
        assert list(gone.topicMetaInfoList) == ["more#1:1:1:1"]


@on_loop
async def test_a_group_that_is_kept_out_hears_so_with_its_next_heartbeat():
    async with Rig() as rig:
        rig.topic("demo", 1)
        client = Client(rig, "a")
        await client.register()

        await rig.commit(rig.broker.rules.plan_consume("g", DEMO, ConsumeRecord(may=False)))

        assert (await client.heartbeat()).errCode == 450


@on_loop
async def test_topic_without_subscribe_has_status_0():
    async with Rig() as rig:
        topic = rig.topic("demo", 1)
        client = Client(rig, "a")
        await client.register()
        settings = {**topic.settings, "tubemq.accept-subscribe": "false"}

        await rig.commit(rig.broker.cluster.plan_alter(DEMO, settings))

        assert list((await client.heartbeat()).topicMetaInfoList) == ["demo#1:1:1:0"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"nodeId": 0}, 430),
        ({"sourceCount": 3, "nodeId": 1}, 429),
        ({"nodeId": 2}, 400),
        ({"nodeId": -1}, 400),
        ({"topicList": []}, 400),
        ({"topicList": ["nope"]}, 431),
        ({"topicCondition": ["demo#x"]}, 426),
        ({"nodeId": 1, "subRepInfo": {"brokerConfigId": 1, "topicMetaInfoId": 1}}, 200),
        ({"nodeId": 1, "subRepInfo": {**REPORT, "partSubInfo": ["demo#1:1"]}}, 200),
        ({"nodeId": 1, "subRepInfo": {**REPORT, "partSubInfo": ["demo#1"]}}, 400),
    ],
)
@on_loop
async def test_second_registration_must_match_the_first(fields, code):
    async with Rig() as rig:
        rig.topic("demo", 2)
        await Client(rig, "a", 2, 0).register()

        response = await Client(rig, "b").register(**fields)

        assert response.errCode == code


@on_loop
async def test_both_kinds_do_not_mix():
    async with Rig() as rig:
        rig.topic("demo", 2)
        client, server = Client(rig, "a"), ServerClient(rig, "b")
        await client.register()

        refused = await server.register()
        await server.peer.request("consumerCloseClientC2M", **client.client)
        taken = await server.register()
        other = await Client(rig, "b").heartbeat()

        assert (refused.errCode, taken.errCode, other.errCode) == (424, 200, 400)


@on_loop
async def test_source_count_zero_requires_no_count():
    async with Rig() as rig:
        rig.topic("demo", 2)

        response = [await Client(rig, name, 0, 7).register() for name in "ab"]

        assert [each.errCode for each in response] == [200, 200]


@on_loop
async def test_reported_partitions_are_in_the_group_view():
    async with Rig() as rig:
        rig.topic("demo", 3)
        client = Client(rig, "a")
        await client.register()

        response = await client.heartbeat(["demo#1:0,1:2"])

        assert response.errCode == 200
        member = rig.gateway.master.balances.view("g").members[0]
        assert member.parts == (TubePartition(DEMO, 0), TubePartition(DEMO, 2))


@pytest.mark.parametrize(
    "text", ["demo#1", "demo#x:1", "demo#1:", "demo#1:" + "1" * 30, "demo#1:²", "demo#:1"]
)
@on_loop
async def test_a_report_that_is_none_is_refused(text):
    async with Rig() as rig:
        rig.topic("demo", 3)
        client = Client(rig, "a")
        await client.register()

        assert (await client.heartbeat([text])).errCode == 400


@on_loop
async def test_flow_control_is_sent_if_set():
    async with Rig() as rig:
        rig.topic("demo", 3)
        flow = FlowControlText(7, FLOW, holds=True)
        await rig.commit(rig.broker.rules.plan_group("g", TubeGroupRecord(flow)))
        client = Client(rig, "a")

        first = await client.register()
        then = await client.heartbeat(opsTaskInfo={"groupFlowCheckId": 7})

        result = first.opsTaskInfo
        assert (result.groupFlowCheckId, result.groupFlowControlInfo) == (7, FLOW)
        assert not result.HasField("defFlowCheckId")
        assert then.opsTaskInfo.groupFlowCheckId == 7
        assert not then.opsTaskInfo.HasField("groupFlowControlInfo")


@on_loop
async def test_unknown_consumer_gets_411():
    async with Rig(tube=TubeSettings(consumer_timeout_s=5)) as rig:
        rig.topic("demo", 3)
        client = Client(rig, "a")
        unknown = await client.meta()
        await client.register()
        rig.gateway.master.balances.tick(rig.gateway.master.now_ms + 5_000)

        late = await client.heartbeat()

        assert (unknown.errCode, unknown.errMsg) == (411, "Not found groupName g in holder!")
        assert late.errCode == 411
