"""Consumers that the master balances, bound ones among them (methods 4, 5, 6).

consumerRegisterC2M, consumerHeartbeatC2M, consumerCloseClientC2M.

What is decided about partitions stands in `broker/balance_group.py`; here it is put into words. The
first heartbeat after the registration already brings what a consumer shall read. An answer holds
flow control only for who tells its ids, and its text only where they are others than ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.balance_events import DISCONNECTS, Answer
from trilogue.broker.balance_shares import Part
from trilogue.broker.balance_terms import Difference, Kind, Terms
from trilogue.broker.errors import InconsistentMember
from trilogue.gateway.tubemq.assignments import bad_request
from trilogue.gateway.tubemq.authentication import Role
from trilogue.gateway.tubemq.errors import Refusal
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

if TYPE_CHECKING:
    from trilogue.gateway.tubemq.call import Call

OK = "OK!"
GROUP_MAX = 1_024  # characters, as a real master
HOST_MAX = 256
SESSION_KEY_MAX = 1_024
UNDEFINED = -2  # what clients and masters say for "nothing" everywhere
NO_TEXT = " "  # instead of an empty flow control

CLIENT_ID = re.compile(r"[_A-Za-z0-9.\-]+")
GROUP = re.compile(r"[^\x00-\x20\x7f#@,\ud800-\udfff](?:[^\x00-\x1f\x7f#@,\ud800-\udfff]*)")

CODES: dict[str, TubeCode] = {
    Difference.KIND.value: TubeCode.OTHER_CONSUME_TYPE,
    Difference.TOPICS.value: TubeCode.OTHER_TOPICS,
    Difference.FILTERS.value: TubeCode.OTHER_FILTERS,
    Difference.SESSION_KEY.value: TubeCode.OTHER_SESSION_KEY,
    Difference.SELECT_BIG.value: TubeCode.OTHER_SELECT_BIG,
    Difference.SOURCE_COUNT.value: TubeCode.OTHER_SOURCE_COUNT,
    Difference.NODE_ID.value: TubeCode.DUPLICATE_NODE_ID,
}


def register(call: Call) -> RegisterResponseM2C:
    """A consumer comes, or comes again."""
    check_ids(call)
    unproven = call.door.master.unproven
    if unproven.brings_none(call):
        unproven.keep(call)
        return RegisterResponseM2C(
            success=True, errCode=TubeCode.SUCCESS, errMsg=OK, notAllocated=True
        )
    admit(call)
    return _enter(call)


def _enter(call: Call) -> RegisterResponseM2C:
    """The registration of somebody known."""
    request: RegisterRequestC2M = call.request
    check_host(request.hostName)
    master = call.door.master
    topics = master.topics(request.topicList)
    terms = _terms(call, Terms(topics, filters=master.filters(request.topicCondition, topics)))
    check_may_read(call, terms)
    claims = master.claims(request.subscribeInfo)
    not_allocated = join(
        call,
        terms,
        claims=claims or None,
        allocated=bool(claims) or (request.HasField("notAllocated") and not request.notAllocated),
    )
    if claims:
        master.is_back(request.groupName, request.clientId)
    response = RegisterResponseM2C(
        success=True, errCode=TubeCode.SUCCESS, errMsg=OK, notAllocated=not_allocated
    )
    _tell_flow(call, response)
    response.authorizedInfo.CopyFrom(authorized_info(call))
    return response


def heartbeat(call: Call) -> HeartResponseM2C:
    """A consumer shows life, says how it went, and hears what it shall do."""
    request: HeartRequestC2M = call.request
    check_ids(call)
    master = call.door.master
    if master.unproven.brings_none(call):
        master.unproven.check_waits(call)
        return HeartResponseM2C(
            success=True,
            errCode=TubeCode.SUCCESS,
            errMsg=OK,
            notAllocated=True,
            requireAuth=True,
        )
    admit(call)
    enter_late(call, _enter)
    check_may_read(call, master.balances.terms(request.groupName))
    answer = None
    if request.HasField("event"):
        event = request.event
        answer = Answer(event.rebalanceId, event.opType, event.status)
    pulse = master.balances.heartbeat(
        request.groupName,
        request.clientId,
        master.now_ms,
        answer=answer,
        report=master.claims(request.subscribeInfo) if request.reportSubscribeInfo else None,
    )
    response = HeartResponseM2C(
        success=True, errCode=TubeCode.SUCCESS, errMsg=OK, notAllocated=pulse.not_allocated
    )
    if pulse.event is not None:
        if pulse.event.kind in DISCONNECTS:  # it waits for its gets before it gives anything away
            call.door.gets.release(request.groupName, request.clientId)
        response.event.CopyFrom(master.event(request.groupName, request.clientId, pulse.event))
    _tell_flow(call, response)
    if must_sign(call):
        response.requireAuth = True
    response.authorizedInfo.CopyFrom(authorized_info(call))
    return response


def close(call: Call) -> CloseResponseM2C:
    """A consumer goes, of either kind; who is not there has gone already (wire fact)."""
    request: CloseRequestC2M = call.request
    admit(call)
    call.check_access(Operation.READ, ResourceKind.GROUP, request.groupName)
    call.door.master.balances.leave(request.groupName, request.clientId)
    return CloseResponseM2C(success=True, errCode=TubeCode.SUCCESS, errMsg=OK)


# -- what both kinds of consumers have in common


def admit(call: Call) -> None:
    """Know who asks; refuse ids that are none, and whoever speaks for another user's consumer."""
    request = call.request
    check_ids(call)
    call.authenticate(Role.CONSUMER, request.clientId, request.authInfo)
    member = call.door.master.balances.find(request.groupName, request.clientId)
    if member is not None and member.principal != call.principal:
        raise Refusal(TubeCode.CERTIFICATE_FAILURE, "this consumer is another user's")


def check_ids(call: Call) -> None:
    """Refuse ids that are none."""
    request, settings = call.request, call.door.settings
    check_id("clientId", request.clientId, settings.client_id_max, CLIENT_ID)
    check_id("groupName", request.groupName, GROUP_MAX, GROUP)


def enter_late(call: Call, enter: Callable[[Call], object]) -> None:
    """Let in who registered without a proof and has brought it with this heartbeat."""
    request, master = call.request, call.door.master
    if master.balances.find(request.groupName, request.clientId) is not None:
        return
    registration = master.unproven.take(call)
    if registration is not None:
        call.request = registration
        try:
            enter(call)
        finally:
            call.request = request


def check_host(name: str) -> None:
    """Refuse a host name that is none."""
    if not name.strip():
        raise bad_request("Request miss necessary hostName data!")
    if len(name) > HOST_MAX:
        raise bad_request(f"hostName's length over max value, allowed max length is {HOST_MAX}")


def check_may_read(call: Call, terms: Terms) -> None:
    """Refuse what the client, or its group, may not read."""
    group = call.request.groupName
    call.check_access(Operation.READ, ResourceKind.GROUP, group)
    for topic in terms.topics:
        call.check_access(Operation.READ, ResourceKind.TOPIC, topic)
    call.door.master.check_rules(group, terms)


def join(
    call: Call, terms: Terms, *, claims: Collection[Part] | None, allocated: bool = False
) -> bool:
    """Take a consumer into its group; whether it shall believe that nobody reads yet."""
    request, master = call.request, call.door.master
    try:
        return master.balances.join(
            request.groupName,
            request.clientId,
            terms,
            master.now_ms,
            claims=claims,
            allocated=allocated,
            host=request.hostName,
            principal=call.principal,
            size=request.ByteSize(),
        )
    except InconsistentMember as problem:
        text = f"[Inconsistency subscribe] {problem}"
        raise Refusal(CODES[problem.what], text) from problem


def must_sign(call: Call) -> bool:
    """Whether the client shall bring a signature with its next heartbeat."""
    request = call.request
    return call.door.authentication.require_auth(
        Role.CONSUMER, call.connection, request.clientId, request.authInfo
    )


def authorized_info(call: Call) -> MasterAuthorizedInfo:
    """The tokens that the client shall show from now on."""
    authentication = call.door.authentication
    return authentication.authorized_info(call.principal, call.request.clientId)


def check_id(name: str, text: str, most: int, allowed: re.Pattern[str]) -> None:
    """Refuse what is empty, too long or of other characters."""
    if not text.strip():
        raise bad_request(f"Request miss necessary {name} data!")
    if len(text) > most:
        raise bad_request(f"{name}'s length over max value, allowed max length is {most}")
    if not allowed.fullmatch(text):
        raise bad_request(f"{name} has characters that it may not have")


# -- inside


def _terms(call: Call, unbound: Terms) -> Terms:
    request: RegisterRequestC2M = call.request
    if not request.requireBound:
        return unbound
    key = request.sessionKey.strip()
    if not key:
        raise bad_request("[Parameter error] blank value of sessionKey!")
    if len(key) > SESSION_KEY_MAX:
        raise bad_request(f"[Parameter error] a sessionKey has {SESSION_KEY_MAX} characters")
    if request.totalCount <= 0:
        raise bad_request("[Parameter error] totalSourceCount must over zero!")
    most = call.door.master.balances.settings.members_max
    if request.totalCount > most:
        raise bad_request(f"[Parameter error] a group has {most} consumers at most")
    return Terms(
        unbound.topics,
        Kind.BOUND,
        unbound.filters,
        session_key=key,
        session_time=request.sessionTime,
        select_big=request.selectBig,
        source_count=request.totalCount,
        offsets=call.door.master.required(request.requiredPartition, unbound.topics),
    )


def _tell_flow(call: Call, response: RegisterResponseM2C | HeartResponseM2C) -> None:
    """Flow control, for who says what it has of it."""
    request, rules = call.request, call.door.broker.rules
    if not request.HasField("defFlowCheckId") and not request.HasField("groupFlowCheckId"):
        return
    default, group = rules.default_flow, rules.flow(request.groupName)
    response.ssdStoreId = UNDEFINED
    response.qryPriorityId = UNDEFINED
    response.defFlowCheckId = default.id
    response.defFlowControlInfo = default.text if default.id != request.defFlowCheckId else NO_TEXT
    response.groupFlowCheckId = group.id
    response.groupFlowControlInfo = group.text if group.id != request.groupFlowCheckId else NO_TEXT
