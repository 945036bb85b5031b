"""Consumers that assign the partitions among themselves (methods 20, 21, 22).

consumerRegisterC2MV2, consumerHeartbeatC2MV2, consumerGetPartMetaInfoC2M; they close through
`consumers.close`.

The master returns the broker's address and the number of partitions, each with a number that
changes with it: a list is sent only to clients with another number. It sends no events, and keeps
of its members only their identity and the partitions that they report.
"""

from __future__ import annotations

from trilogue.broker.tubemq.balanced_group import TubeMember
from trilogue.broker.tubemq.even_assignment import TubePartition
from trilogue.broker.tubemq.group_terms import BalanceMode, GroupTerms
from trilogue.gateway.tubemq.consumers import (
    NO_TEXT,
    OK,
    UNDEFINED,
    admit,
    authorized_info,
    check_host,
    check_ids,
    check_may_read,
    check_names,
    check_pending,
    complete_pending,
    join_group,
    keep_pending,
    lacks_proof,
    requires_signature,
)
from trilogue.gateway.tubemq.master import Master, bad_request
from trilogue.gateway.tubemq.request_context import RequestContext
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


def register(context: RequestContext) -> RegisterResponseM2CV2:
    """Register a consumer, also one that is registered; the response has the broker's address."""
    check_ids(context)
    if lacks_proof(context):
        keep_pending(context)
        return RegisterResponseM2CV2(errCode=TubeCode.SUCCESS, errMsg=OK)
    admit(context)
    return _complete_registration(context)


def _complete_registration(context: RequestContext) -> RegisterResponseM2CV2:
    """Register an authenticated consumer."""
    request: RegisterRequestC2MV2 = context.request
    check_host(request.hostName)
    count, node_id = request.sourceCount, request.nodeId
    if count > 0 and not 0 <= node_id < count:
        raise bad_request("Request nodeId value must be between in [0, sourceCount-1]!")
    master = context.gateway.master
    check_names(context, request.topicList)
    topics = master.parse_topics(request.topicList)
    terms = GroupTerms(
        topics,
        BalanceMode.CLIENT,
        master.parse_filters(request.topicCondition, topics),
        source_count=max(0, count),
        node_id=node_id,
    )
    check_may_read(context, terms)
    join_group(context, terms, claims=_reported_partitions(master, request.subRepInfo))
    response = RegisterResponseM2CV2(errCode=TubeCode.SUCCESS, errMsg=OK)
    _add_broker_info(context, response, request.subRepInfo.brokerConfigId)
    _add_ops_task(context, response)
    return response


def heartbeat(context: RequestContext) -> HeartResponseM2CV2:
    """Renew a consumer's session; the response has what changed."""
    request: HeartRequestC2MV2 = context.request
    check_ids(context)
    if lacks_proof(context):
        check_pending(context)
        task = OpsTaskInfo(requireAuth=True)
        return HeartResponseM2CV2(errCode=TubeCode.SUCCESS, errMsg=OK, opsTaskInfo=task)
    admit(context)
    complete_pending(context, _complete_registration)
    member = _member(context)
    master, reported = context.gateway.master, request.subRepInfo
    master.balances.heartbeat(
        request.groupName,
        member.member_id,
        master.now_ms,
        report=_reported_partitions(master, reported),
    )
    response = HeartResponseM2CV2(errCode=TubeCode.SUCCESS, errMsg=OK)
    _add_broker_info(context, response, reported.brokerConfigId)
    number, metas = master.describe_topics(request.groupName, member.terms)
    if number != reported.topicMetaInfoId and metas:
        response.topicMetaInfoId = number
        response.topicMetaInfoList.extend(metas)
    _add_ops_task(context, response)
    return response


def get_partition_meta(context: RequestContext) -> GetPartMetaResponseM2C:
    """Return how many partitions the topics have."""
    request: GetPartMetaRequestC2M = context.request
    check_ids(context)
    if lacks_proof(context):
        check_pending(context)
        return GetPartMetaResponseM2C(errCode=TubeCode.SUCCESS, errMsg=OK)
    admit(context)
    member = _member(context)
    master = context.gateway.master
    master.balances.heartbeat(request.groupName, member.member_id, master.now_ms)
    response = GetPartMetaResponseM2C(errCode=TubeCode.SUCCESS, errMsg=OK)
    _add_broker_info(context, response, request.brokerConfigId)
    number, metas = master.describe_topics(request.groupName, member.terms)
    response.topicMetaInfoId = number
    if number != request.topicMetaInfoId:
        response.topicMetaInfoList.extend(metas)
    return response


def _member(context: RequestContext) -> TubeMember:
    """Return the member; raises where it has to register again, also as one of the other kind."""
    request, balances = context.request, context.gateway.master.balances
    member = balances.member(request.groupName, request.clientId)
    check_may_read(context, member.terms)
    if member.terms.kind is not BalanceMode.CLIENT:
        raise bad_request("the master balances this group")
    return member


def _reported_partitions(master: Master, reported: ClientSubRepInfo) -> set[TubePartition] | None:
    return master.parse_client_report(reported.partSubInfo) if reported.reportSubInfo else None


def _add_broker_info(
    context: RequestContext,
    response: RegisterResponseM2CV2 | HeartResponseM2CV2 | GetPartMetaResponseM2C,
    known: int,
) -> None:
    response.brokerConfigId = context.broker_checksum
    if known != response.brokerConfigId:
        response.brokerConfigList.extend(context.broker_infos)


def _add_ops_task(
    context: RequestContext, response: RegisterResponseM2CV2 | HeartResponseM2CV2
) -> None:
    """Add flow control where there is any, whether to sign, and the tokens."""
    request, rules = context.request, context.gateway.broker.rules
    known = request.opsTaskInfo if request.HasField("opsTaskInfo") else OpsTaskInfo()
    task = response.opsTaskInfo
    task.SetInParent()
    default, group = rules.default_flow, rules.flow(request.groupName)
    if default.id != UNDEFINED:
        task.defFlowCheckId = default.id
        if default.id != known.defFlowCheckId:
            task.defFlowControlInfo = default.text or NO_TEXT
    if group.id != UNDEFINED:
        task.groupFlowCheckId = group.id
        task.qryPriorityId = UNDEFINED
        if group.id != known.groupFlowCheckId:
            task.groupFlowControlInfo = group.text or NO_TEXT
    if requires_signature(context):
        task.requireAuth = True
    response.authorizedInfo.CopyFrom(authorized_info(context))
