"""Consumers that the master balances, bound ones among them (methods 4, 5, 6).

consumerRegisterC2M, consumerHeartbeatC2M, consumerCloseClientC2M.

Partitions are assigned by `broker/tubemq/balanced_group.py`; this module encodes the result. The
first heartbeat after the registration already brings the partitions of a consumer. A response
contains flow control only for clients that send their ids of it, and its text only where the ids
differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from itertools import islice

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import InconsistentMember
from trilogue.broker.tubemq.even_assignment import TubePartition
from trilogue.broker.tubemq.group_terms import BalanceMode, GroupTerms, TermsMismatch
from trilogue.broker.tubemq.rebalance_events import DISCONNECTS
from trilogue.gateway.tubemq.auth.authentication import Role
from trilogue.gateway.tubemq.errors import TubeRequestError
from trilogue.gateway.tubemq.event_codes import parse_event_result
from trilogue.gateway.tubemq.master import TOPICS_MAX, bad_request
from trilogue.gateway.tubemq.request_context import RequestContext
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.master_pb2 import (
    CloseRequestC2M,
    CloseResponseM2C,
    HeartRequestC2M,
    HeartResponseM2C,
    MasterAuthorizedInfo,
    RegisterRequestC2M,
    RegisterResponseM2C,
)

OK = "OK!"
GROUP_MAX = 1_024  # characters, as a real master
HOST_MAX = 256
SESSION_KEY_MAX = 1_024
UNDEFINED = -2  # "nothing", for clients and masters
QUIET_S = 1.0  # after a disconnect event no get of the consumer is held
NO_TEXT = " "  # instead of an empty flow control

CLIENT_ID = re.compile(r"[_A-Za-z0-9.\-]+")
GROUP = re.compile(r"[^\x00-\x20\x7f#@,\ud800-\udfff](?:[^\x00-\x1f\x7f#@,\ud800-\udfff]*)")

CODES: dict[str, TubeCode] = {
    TermsMismatch.KIND.value: TubeCode.OTHER_CONSUME_TYPE,
    TermsMismatch.TOPICS.value: TubeCode.OTHER_TOPICS,
    TermsMismatch.FILTERS.value: TubeCode.OTHER_FILTERS,
    TermsMismatch.SESSION_KEY.value: TubeCode.OTHER_SESSION_KEY,
    TermsMismatch.SELECT_BIG.value: TubeCode.OTHER_SELECT_BIG,
    TermsMismatch.SOURCE_COUNT.value: TubeCode.OTHER_SOURCE_COUNT,
    TermsMismatch.NODE_ID.value: TubeCode.DUPLICATE_NODE_ID,
}


def register(context: RequestContext) -> RegisterResponseM2C:
    """Register a consumer, also one that is registered."""
    check_ids(context)
    if lacks_proof(context):
        keep_pending(context)
        return RegisterResponseM2C(
            success=True, errCode=TubeCode.SUCCESS, errMsg=OK, notAllocated=True
        )
    admit(context)
    return _complete_registration(context)


def _complete_registration(context: RequestContext) -> RegisterResponseM2C:
    """Register an authenticated consumer."""
    request: RegisterRequestC2M = context.request
    check_host(request.hostName)
    master = context.gateway.master
    check_names(context, request.topicList)
    topics = master.parse_topics(request.topicList)
    terms = _terms(
        context, GroupTerms(topics, filters=master.parse_filters(request.topicCondition, topics))
    )
    check_may_read(context, terms)
    claims = master.parse_owned_partitions(request.subscribeInfo)
    not_allocated = join_group(
        context,
        terms,
        claims=claims or None,
        allocated=bool(claims) or (request.HasField("notAllocated") and not request.notAllocated),
    )
    if claims:
        master.mark_returned(request.groupName, request.clientId)
    response = RegisterResponseM2C(
        success=True, errCode=TubeCode.SUCCESS, errMsg=OK, notAllocated=not_allocated
    )
    _add_flow_control(context, response)
    response.authorizedInfo.CopyFrom(authorized_info(context))
    return response


def heartbeat(context: RequestContext) -> HeartResponseM2C:
    """Renew a consumer's session, take its report, and return its next event, if any."""
    request: HeartRequestC2M = context.request
    check_ids(context)
    master = context.gateway.master
    if lacks_proof(context):
        check_pending(context)
        return HeartResponseM2C(
            success=True,
            errCode=TubeCode.SUCCESS,
            errMsg=OK,
            notAllocated=True,
            requireAuth=True,
        )
    admit(context)
    complete_pending(context, _complete_registration)
    check_may_read(context, master.balances.terms(request.groupName))
    answer = None
    if request.HasField("event"):
        event = request.event
        answer = parse_event_result(event)
    pulse = master.balances.heartbeat(
        request.groupName,
        request.clientId,
        master.now_ms,
        answer=answer,
        report=master.parse_owned_partitions(request.subscribeInfo)
        if request.reportSubscribeInfo
        else None,
    )
    response = HeartResponseM2C(
        success=True, errCode=TubeCode.SUCCESS, errMsg=OK, notAllocated=pulse.not_allocated
    )
    if pulse.event is not None:
        if pulse.event.kind in DISCONNECTS:  # it waits for its gets before it disconnects
            _release_held_gets(context)
        response.event.CopyFrom(
            master.encode_event(
                request.groupName, request.clientId, pulse.event, tls=context.connection.is_tls
            )
        )
    _add_flow_control(context, response)
    if requires_signature(context):
        response.requireAuth = True
    response.authorizedInfo.CopyFrom(authorized_info(context))
    return response


def close(context: RequestContext) -> CloseResponseM2C:
    """Remove a consumer of either kind; succeeds for an unknown one, as with a real master."""
    request: CloseRequestC2M = context.request
    admit(context)
    context.check_access(Operation.READ, ResourceKind.GROUP, request.groupName)
    context.gateway.master.balances.leave(request.groupName, request.clientId)
    return CloseResponseM2C(success=True, errCode=TubeCode.SUCCESS, errMsg=OK)


# -- shared by both kinds of consumers


def admit(context: RequestContext) -> None:
    """Check the ids and authenticate; raises where the consumer is another user's."""
    request = context.request
    check_ids(context)
    context.authenticate(Role.CONSUMER, request.clientId, request.authInfo)
    member = context.gateway.master.balances.find_member(request.groupName, request.clientId)
    if member is not None and member.principal != context.principal:
        raise TubeRequestError(TubeCode.CERTIFICATE_FAILURE, "this consumer is another user's")


def check_ids(context: RequestContext) -> None:
    """Check the client id and the group name."""
    request, settings = context.request, context.gateway.settings
    check_id("clientId", request.clientId, settings.client_id_max, CLIENT_ID)
    check_id("groupName", request.groupName, GROUP_MAX, GROUP)


def lacks_proof(context: RequestContext) -> bool:
    """Return whether a consumer that has to authenticate sends neither signature nor token.

    An empty authInfo, as Java's clients send it first (see PendingRegistrations).
    """
    if Role.CONSUMER not in context.gateway.authentication.settings.authenticate:
        return False
    request = context.request
    if not request.HasField("authInfo"):
        return False
    proof = request.authInfo
    return not proof.HasField("authInfo") and not proof.authorizedToken


def keep_pending(context: RequestContext) -> None:
    """Keep a registration until its proof comes; raises AuthenticationFailed."""
    now_s = context.gateway.loop.time()
    pending = context.gateway.master.pending
    pending.add(context.connection, context.request, context.size, now_s)


def check_pending(context: RequestContext) -> None:
    """Check that the consumer's registration is pending; raises UnknownMember."""
    now_s = context.gateway.loop.time()
    context.gateway.master.pending.check(context.connection, context.request, now_s)


def complete_pending(context: RequestContext, enter: Callable[[RequestContext], object]) -> None:
    """Complete the pending registration of a consumer that authenticated with this heartbeat."""
    request, master = context.request, context.gateway.master
    if master.balances.find_member(request.groupName, request.clientId) is not None:
        return
    now_s = context.gateway.loop.time()
    registration = master.pending.pop(context.connection, request, now_s)
    if registration is not None:
        context.request = registration
        try:
            enter(context)
        finally:
            context.request = request


def check_host(name: str) -> None:
    """Check the host name."""
    if not name.strip():
        raise bad_request("Request miss necessary hostName data!")
    if len(name) > HOST_MAX:
        raise bad_request(f"hostName's length over max value, allowed max length is {HOST_MAX}")


def check_names(context: RequestContext, topics: Iterable[str]) -> None:
    """Check access to the group, and to topics that need not exist."""
    context.check_access(Operation.READ, ResourceKind.GROUP, context.request.groupName)
    for name in islice(dict.fromkeys(topics), TOPICS_MAX):
        context.check_topic(Operation.READ, name.strip())


def check_may_read(context: RequestContext, terms: GroupTerms) -> None:
    """Check access to the group and its topics, and the administrators' rules."""
    group = context.request.groupName
    context.check_access(Operation.READ, ResourceKind.GROUP, group)
    for topic in terms.topics:
        context.check_access(Operation.READ, ResourceKind.TOPIC, topic)
    context.gateway.master.check_rules(group, terms)


def join_group(
    context: RequestContext,
    terms: GroupTerms,
    *,
    claims: Collection[TubePartition] | None,
    allocated: bool = False,
) -> bool:
    """Add a consumer to its group; return `notAllocated` of the response."""
    request, master = context.request, context.gateway.master
    try:
        return master.balances.join(
            request.groupName,
            request.clientId,
            terms,
            master.now_ms,
            claims=claims,
            allocated=allocated,
            host=request.hostName,
            is_tls=context.connection.is_tls,
            principal=context.principal,
            size=request.ByteSize(),
        )
    except InconsistentMember as problem:
        text = f"[Inconsistency subscribe] {problem}"
        raise TubeRequestError(CODES[problem.what], text) from problem


def requires_signature(context: RequestContext) -> bool:
    """Return whether the client has to sign its next heartbeat."""
    request = context.request
    return context.gateway.authentication.needs_signature(
        Role.CONSUMER, context.connection, request.clientId, request.authInfo
    )


def authorized_info(context: RequestContext) -> MasterAuthorizedInfo:
    """Return the tokens that the client sends from now on."""
    authentication = context.gateway.authentication
    return authentication.authorized_info(context.principal, context.request.clientId)


def check_id(name: str, text: str, most: int, allowed: re.Pattern[str]) -> None:
    """Check that a name is not empty, not too long, and of allowed characters."""
    if not text.strip():
        raise bad_request(f"Request miss necessary {name} data!")
    if len(text) > most:
        raise bad_request(f"{name}'s length over max value, allowed max length is {most}")
    if not allowed.fullmatch(text):
        raise bad_request(f"{name} has characters that it may not have")


# -- inside


def _release_held_gets(context: RequestContext) -> None:
    request, gateway = context.request, context.gateway
    consumer = gateway.broker.registrations.consumer(request.groupName, request.clientId)
    if consumer is not None:
        gateway.held_gets.release(consumer, gateway.loop.time() + QUIET_S)


def _terms(context: RequestContext, unbound: GroupTerms) -> GroupTerms:
    request: RegisterRequestC2M = context.request
    if not request.requireBound:
        return unbound
    key = request.sessionKey.strip()
    if not key:
        raise bad_request("[Parameter error] blank value of sessionKey!")
    if len(key) > SESSION_KEY_MAX:
        raise bad_request(f"[Parameter error] a sessionKey has {SESSION_KEY_MAX} characters")
    if request.totalCount <= 0:
        raise bad_request("[Parameter error] totalSourceCount must over zero!")
    most = context.gateway.master.balances.settings.members_max
    if request.totalCount > most:
        raise bad_request(f"[Parameter error] a group has {most} consumers at most")
    return GroupTerms(
        unbound.topics,
        BalanceMode.BOUND,
        unbound.filters,
        session_key=key,
        session_time=request.sessionTime,
        select_big=request.selectBig,
        source_count=request.totalCount,
        offsets=context.gateway.master.parse_required_offsets(
            request.requiredPartition, unbound.topics
        ),
    )


def _add_flow_control(
    context: RequestContext, response: RegisterResponseM2C | HeartResponseM2C
) -> None:
    """Add flow control for clients that send their ids of it."""
    request, rules = context.request, context.gateway.broker.rules
    if not request.HasField("defFlowCheckId") and not request.HasField("groupFlowCheckId"):
        return
    default, group = rules.default_flow, rules.flow(request.groupName)
    response.ssdStoreId = UNDEFINED
    response.qryPriorityId = UNDEFINED
    response.defFlowCheckId = default.id
    response.defFlowControlInfo = (
        default.text if default.id != request.defFlowCheckId else ""
    ) or NO_TEXT
    response.groupFlowCheckId = group.id
    response.groupFlowControlInfo = (
        group.text if group.id != request.groupFlowCheckId else ""
    ) or NO_TEXT
