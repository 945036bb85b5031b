"""The bypass matrix, TubeMQ: every method of both endpoints, each spelling of a denied topic."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.kafka.rig import batch
from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import Failure, Rig, send_fields, settle
from tests.security.bypass import ORDERS, SECRET, NoAcls, describe_state
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import Operation, Principal, Resource, ResourceKind
from trilogue.gateway.tubemq.methods import BROKER, MASTER

ME, GROUP = "192.0.2.2-1-1-1-1.13.0", "readers"
PRODUCER = {"clientId": ME, "brokerCheckSum": -1, "hostName": "h"}
CONSUMER = {"clientId": ME, "groupName": GROUP}
PART = {**CONSUMER, "topicName": "", "partitionId": 0}
SPELLINGS = ("orders", ORDERS)
OTHERS = ("Orders", "orders/", "%6frders", "orders-partition-0", "public/default/orders:0", "a/b")
FIELDS: dict[str, dict[str, Any]] = {
    "producerRegisterP2M": {**PRODUCER, "topicList": [""]},
    "producerHeartbeatP2M": {**PRODUCER, "topicList": [""]},
    "consumerRegisterC2M": {**CONSUMER, "hostName": "h", "topicList": [""]},
    "consumerRegisterC2MV2": {
        **CONSUMER,
        "hostName": "h",
        "sourceCount": 0,
        "nodeId": -1,
        "topicList": [""],
    },
    "sendMessageP2B": send_fields("", 0, b"forged"),
    "consumerRegisterC2B": {**PART, "opType": 31, "readStatus": 0, "currOffset": 0},
    "getMessagesC2B": {**PART, "escFlowCtrl": False, "manualCommitOffset": False},
    "consumerCommitC2B": {**PART, "lastPackConsumed": True},
    "consumerHeartbeatC2B": {
        **CONSUMER,
        "readStatus": 0,
        "partitionInfo": ["1::0"],
    },
}
WITHOUT_TOPIC = {  # of a client that is not registered: it could not
    "producerCloseClientP2M": {"clientId": ME},
    "consumerHeartbeatC2M": {**CONSUMER, "reportSubscribeInfo": False},
    "consumerCloseClientC2M": CONSUMER,
    "consumerHeartbeatC2MV2": CONSUMER,
    "consumerGetPartMetaInfoC2M": {**CONSUMER, "brokerConfigId": -2, "topicMetaInfoId": -2},
}
REFUSED_ALWAYS = {"brokerRegisterB2M", "brokerHeartbeatB2M", "brokerCloseClientB2M"}
AT_MASTER = {spec.method.name for spec in MASTER}


def test_every_method_is_in_the_matrix():
    known = {*FIELDS, *WITHOUT_TOPIC, *REFUSED_ALWAYS}
    assert {spec.method.name for spec in (*MASTER, *BROKER)} == known


class Denying(Rig):
    """A cluster with the secret topic, whose client may do nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.rules: Any = NoAcls()

    async def prepare(self) -> None:
        topic = self.topic("orders", 1)
        topic.partitions[0].append(memoryview(batch(SECRET)), now_ms=self.now_ms)
        await settle()

    def peer_for(self, method: str) -> Any:
        return self.master() if method in AT_MASTER else self.broker_peer()


def spelled(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the fields of a request about the topic of this name."""
    given = dict(fields)
    for key in fields:
        if key == "topicName":
            given[key] = name
        elif key == "topicList":
            given[key] = [name]
        elif key == "partitionInfo":
            given[key] = [f"1:{name}:0"]
    return given


def is_refused(response: Any) -> bool:
    """Return whether a response is an error, or (a producer's) names no broker for the topic."""
    if isinstance(response, Failure):
        return True
    if response.errCode != 200 or not getattr(response, "success", True):
        return True
    return not any("orders" in each for each in getattr(response, "topicInfos", ["orders"]))


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("method", FIELDS)
@on_loop
async def test_a_request_without_rights_gets_and_changes_nothing(method, name):
    async with Denying() as rig:
        await rig.prepare()
        before = describe_state(rig)[:-1]
        peer = rig.peer_for(method)
        response = await peer.request(method, **spelled(FIELDS[method], name))
        await settle()

        assert describe_state(rig) == (*before, [])
        assert SECRET not in bytes(peer.transport.written)
        assert is_refused(response), response
        denied = {resource.name for _, resource in rig.rules.asked}
        assert denied <= {ORDERS, GROUP}
        if method in {"sendMessageP2B", "producerRegisterP2M", "producerHeartbeatP2M"}:
            assert ORDERS in denied


@pytest.mark.parametrize("method", sorted(FIELDS.keys() - {"consumerCommitC2B"}))  # not registered
@on_loop
async def test_each_refusal_is_one_line_of_the_audit_log(method):
    async with Denying() as rig:
        await rig.prepare()
        lines: list[dict[str, object]] = []
        rig.gateway.audit = AuditLog(lines.append, lambda: rig.now_ms)
        peer = rig.peer_for(method)
        response = await peer.request(method, **spelled(FIELDS[method], "orders"))

        assert is_refused(response)
        assert [line["event"] for line in lines] == ["refused"], lines
        assert SECRET.decode() not in repr(lines)


@pytest.mark.parametrize("method", FIELDS)
@on_loop
async def test_no_answer_reveals_whether_a_topic_exists(method):
    async with Denying() as rig:
        await rig.prepare()
        answers = []
        for name in ("orders", "absent"):
            peer = rig.peer_for(method)
            response = await peer.request(method, **spelled(FIELDS[method], name))
            answers.append(str(response).replace(name, "NAME"))

        assert answers[0] == answers[1]


@pytest.mark.parametrize("method", WITHOUT_TOPIC)
@on_loop
async def test_a_client_that_is_not_registered_learns_nothing(method):
    async with Denying() as rig:
        await rig.prepare()
        before = describe_state(rig)[:-1]
        peer = rig.peer_for(method)
        await peer.request(method, **WITHOUT_TOPIC[method])

        assert describe_state(rig) == (*before, [])
        assert b"orders" not in bytes(peer.transport.written)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("method", FIELDS)
@on_loop
async def test_no_other_spelling_leads_to_the_topic(method, name):
    async with Denying() as rig:
        await rig.prepare()
        before = describe_state(rig)[:-1]
        peer = rig.peer_for(method)
        await peer.request(method, **spelled(FIELDS[method], name))
        await settle()

        assert describe_state(rig) == (*before, [])
        assert SECRET not in bytes(peer.transport.written)
        assert ORDERS not in {resource.name for _, resource in rig.rules.asked}


@on_loop
async def test_revoked_permission_ends_the_registration():
    async with Denying() as rig:
        await rig.prepare()
        rig.rules.is_open = True
        peer = rig.broker_peer()
        registered = await peer.request(
            "consumerRegisterC2B", **spelled(FIELDS["consumerRegisterC2B"], "orders")
        )
        assert registered.success
        rig.rules.is_open = False

        response = await peer.request(
            "getMessagesC2B", **spelled(FIELDS["getMessagesC2B"], "orders")
        )
        assert response.errCode == 415
        assert SECRET not in bytes(peer.transport.written)


class DenyingOneKind(NoAcls):
    """Allows everything, until one kind of resource is denied."""

    denied: ResourceKind | None = None

    def allowed(
        self, principal: Principal, operation: Operation, resource: Resource, host: str = ""
    ) -> bool:
        self.move()
        return resource.kind is not self.denied


@pytest.mark.parametrize("kind", [ResourceKind.TOPIC, ResourceKind.GROUP])
@on_loop
async def test_a_right_that_is_taken_away_ends_a_get_that_is_held(kind):
    async with Denying() as rig:
        rig.rules = rig.gateway.authorizer = rules = DenyingOneKind()
        rig.topic("orders", 1)
        peer = rig.broker_peer()
        fields = {name: spelled(FIELDS[name], "orders") for name in FIELDS}
        registered = await peer.request("consumerRegisterC2B", **fields["consumerRegisterC2B"])
        assert registered.success
        held = peer.send_request("getMessagesC2B", **fields["getMessagesC2B"])
        await settle()
        rules.denied = kind

        partition = rig.broker.cluster.find_topic(rig.name("orders")).partitions[0]
        partition.append(memoryview(batch(SECRET)), now_ms=rig.now_ms)

        assert (await peer.wait(held)).errCode == 415
        assert SECRET not in bytes(peer.transport.written)
