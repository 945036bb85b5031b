"""Consumers that share out the partitions among themselves (methods 20, 21, 22).

consumerRegisterC2MV2, consumerHeartbeatC2MV2, consumerGetPartMetaInfoC2M; they close through
`consumers.close`.

The master tells where the broker is and how many partitions there are, each with a number that
changes with it: a list comes only to who has another number. It gives no events, and remembers of
its members only who they are and what they say to have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.broker.balance_group import Member
from trilogue.broker.balance_shares import Part
from trilogue.broker.balance_terms import Kind, Terms
from trilogue.gateway.tubemq.assignments import bad_request, part_claims
from trilogue.gateway.tubemq.consumers import (
    OK,
    UNDEFINED,
    admit,
    authorized_info,
    check_host,
    check_ids,
    check_may_read,
    enter_late,
    join,
    must_sign,
)
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.master_pb2 import (
    ClientSubRepInfo,
    GetPartMetaRequestC2M,
    GetPartMetaResponseM2C,
    HeartRequestC2MV2,
    HeartResponseM2CV2,
    OpsTaskInfo,
    RegisterRequestC2MV2,
    RegisterResponseM2CV2,
)

if TYPE_CHECKING:
    from trilogue.gateway.tubemq.call import Call


def register(call: Call) -> RegisterResponseM2CV2:
    """A consumer comes, or comes again, and hears where the broker is."""
    check_ids(call)
    unproven = call.door.master.unproven
    if unproven.brings_none(call):
        unproven.keep(call)
        return RegisterResponseM2CV2(errCode=TubeCode.SUCCESS, errMsg=OK)
    admit(call)
    return _enter(call)


def _enter(call: Call) -> RegisterResponseM2CV2:
    """The registration of somebody known."""
    request: RegisterRequestC2MV2 = call.request
    check_host(request.hostName)
    count, node_id = request.sourceCount, request.nodeId
    if count > 0 and not 0 <= node_id < count:
        raise bad_request("Request nodeId value must be between in [0, sourceCount-1]!")
    master = call.door.master
    topics = master.topics(request.topicList)
    terms = Terms(
        topics,
        Kind.CLIENT,
        master.filters(request.topicCondition, topics),
        source_count=max(0, count),
        node_id=node_id,
    )
    check_may_read(call, terms)
    join(call, terms, claims=_report(request.subRepInfo))
    response = RegisterResponseM2CV2(errCode=TubeCode.SUCCESS, errMsg=OK)
    _tell_broker(call, response, request.subRepInfo.brokerConfigId)
    _tell_tasks(call, response)
    return response


def heartbeat(call: Call) -> HeartResponseM2CV2:
    """A consumer shows life, and hears what has changed."""
    request: HeartRequestC2MV2 = call.request
    check_ids(call)
    unproven = call.door.master.unproven
    if unproven.brings_none(call):
        unproven.check_waits(call)
        told = OpsTaskInfo(requireAuth=True)
        return HeartResponseM2CV2(errCode=TubeCode.SUCCESS, errMsg=OK, opsTaskInfo=told)
    admit(call)
    enter_late(call, _enter)
    member = _member(call)
    master, reported = call.door.master, request.subRepInfo
    master.balances.heartbeat(
        request.groupName, member.member_id, master.now_ms, report=_report(reported)
    )
    response = HeartResponseM2CV2(errCode=TubeCode.SUCCESS, errMsg=OK)
    _tell_broker(call, response, reported.brokerConfigId)
    number, metas = master.topic_metas(request.groupName, member.terms)
    if number != reported.topicMetaInfoId and metas:
        response.topicMetaInfoId = number
        response.topicMetaInfoList.extend(metas)
    _tell_tasks(call, response)
    return response


def part_meta(call: Call) -> GetPartMetaResponseM2C:
    """A consumer asks how many partitions there are."""
    request: GetPartMetaRequestC2M = call.request
    check_ids(call)
    unproven = call.door.master.unproven
    if unproven.brings_none(call):
        unproven.check_waits(call)
        return GetPartMetaResponseM2C(errCode=TubeCode.SUCCESS, errMsg=OK)
    admit(call)
    member = _member(call)
    master = call.door.master
    master.balances.heartbeat(request.groupName, member.member_id, master.now_ms)
    response = GetPartMetaResponseM2C(errCode=TubeCode.SUCCESS, errMsg=OK)
    _tell_broker(call, response, request.brokerConfigId)
    number, metas = master.topic_metas(request.groupName, member.terms)
    response.topicMetaInfoId = number
    if number != request.topicMetaInfoId:
        response.topicMetaInfoList.extend(metas)
    return response


def _member(call: Call) -> Member:
    """Who asks; UnknownMember where it must register again, also as one of the other kind."""
    request, balances = call.request, call.door.master.balances
    member = balances.member(request.groupName, request.clientId)
    check_may_read(call, member.terms)
    if member.terms.kind is not Kind.CLIENT:
        raise bad_request("the master balances this group")
    return member


def _report(reported: ClientSubRepInfo) -> set[Part] | None:
    return part_claims(reported.partSubInfo) if reported.reportSubInfo else None


def _tell_broker(
    call: Call,
    response: RegisterResponseM2CV2 | HeartResponseM2CV2 | GetPartMetaResponseM2C,
    known: int,
) -> None:
    door = call.door
    response.brokerConfigId = door.broker_checksum
    if known != door.broker_checksum:
        response.brokerConfigList.append(door.broker_info)


def _tell_tasks(call: Call, response: RegisterResponseM2CV2 | HeartResponseM2CV2) -> None:
    """Flow control where there is any, whether to sign, and the tokens."""
    request, rules = call.request, call.door.broker.rules
    known = request.opsTaskInfo if request.HasField("opsTaskInfo") else OpsTaskInfo()
    told = response.opsTaskInfo
    told.SetInParent()
    default, group = rules.default_flow, rules.flow(request.groupName)
    if default.id != UNDEFINED:
        told.defFlowCheckId = default.id
        if default.id != known.defFlowCheckId:
            told.defFlowControlInfo = default.text
    if group.id != UNDEFINED:
        told.groupFlowCheckId = group.id
        told.qryPriorityId = UNDEFINED
        if group.id != known.groupFlowCheckId:
            told.groupFlowControlInfo = group.text
    if must_sign(call):
        told.requireAuth = True
    response.authorizedInfo.CopyFrom(authorized_info(call))
