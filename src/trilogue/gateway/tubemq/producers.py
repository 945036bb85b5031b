"""Producers at the master (methods 1, 2, 3): register, heartbeat, close.

A producer registers, then names in heartbeats the topics that it publishes to. The response
contains the broker's address, if its checksum is not the one that the client sent, and every named
topic that exists and accepts messages. A topic that does not exist is left out, without an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import InvalidName
from trilogue.broker.names import parse_tubemq
from trilogue.gateway.tubemq.auth.authentication import Role
from trilogue.gateway.tubemq.errors import TubeRequestError
from trilogue.gateway.tubemq.gateway_context import TubeGatewayContext
from trilogue.gateway.tubemq.master import Producer, find_topic
from trilogue.gateway.tubemq.request_context import RequestContext
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.master_pb2 import (
    ApprovedClientConfig,
    CloseResponseM2P,
    HeartResponseM2P,
    RegisterResponseM2P,
)

OK = "OK!"
HOST_MAX = 1_024
DESCRIPTION_MAX = 64  # characters kept of a client's host name and Java version


def register(context: RequestContext) -> Message:
    """Register a producer, also one that is registered; the response names the broker."""
    request, gateway = context.request, context.gateway
    client_id = _authenticate_client(context)
    names = _check_topics(context, request.topicList)
    producer = Producer(
        context.principal,
        request.hostName[:DESCRIPTION_MAX],
        request.jdkVersion[:DESCRIPTION_MAX],
        len(names),
    )
    _check_owner(context, client_id)
    if not gateway.producers.sessions.put_session(client_id, producer, gateway.loop.time()):
        raise TubeRequestError(TubeCode.FORBIDDEN, "there are as many producers as there may be")
    return RegisterResponseM2P(
        success=True,
        errCode=TubeCode.SUCCESS,
        errMsg=OK,
        brokerCheckSum=context.broker_checksum,
        brokerInfos=context.broker_infos,
        authorizedInfo=gateway.authentication.authorized_info(context.principal, client_id),
        appdConfig=_config(gateway, request),
    )


def heartbeat(context: RequestContext) -> Message:
    """Renew a producer's session; the response describes the topics that it names."""
    request, gateway = context.request, context.gateway
    client_id = _authenticate_client(context)
    names = _check_topics(context, request.topicList)
    _check_owner(context, client_id)
    producer = gateway.producers.sessions.touch(client_id, gateway.loop.time())
    if producer is None:
        raise TubeRequestError(
            TubeCode.NO_NODE, f"Invalid node id:{client_id}, you have to append node first!"
        )
    producer.topics = len(names)
    checksum = context.broker_checksum
    response = HeartResponseM2P(
        success=True,
        errCode=TubeCode.SUCCESS,
        errMsg=OK,
        brokerCheckSum=checksum,
        topicInfos=_topic_infos(gateway, names),
        authorizedInfo=gateway.authentication.authorized_info(context.principal, client_id),
        appdConfig=_config(gateway, request),
    )
    if request.brokerCheckSum != checksum:
        response.brokerInfos.extend(context.broker_infos)
    if gateway.authentication.needs_signature(
        Role.PRODUCER, context.connection, client_id, request.authInfo
    ):
        response.requireAuth = True
    return response


def close(context: RequestContext) -> Message:
    """Remove a producer; succeeds for an unknown one, as with a real master."""
    client_id = _authenticate_client(context)
    _check_owner(context, client_id)
    context.gateway.producers.sessions.remove(client_id)
    return CloseResponseM2P(success=True, errCode=TubeCode.SUCCESS, errMsg=OK)


# ---- checks of all three


def check_client_id(client_id: str, most: int) -> str:
    """Return the id without blanks around it; raises where it is empty or too long."""
    text = client_id.strip()
    if not text:
        raise TubeRequestError(TubeCode.BAD_REQUEST, "Request miss necessary clientId data!")
    if len(text) > most:
        raise TubeRequestError(
            TubeCode.BAD_REQUEST, f"clientId's length over max value, allowed {most}"
        )
    return text


def _authenticate_client(context: RequestContext) -> str:
    """Authenticate the client and return its id."""
    client_id = check_client_id(context.request.clientId, context.gateway.settings.client_id_max)
    context.authenticate(Role.PRODUCER, client_id, context.request.authInfo)
    return client_id


def _check_owner(context: RequestContext, client_id: str) -> None:
    """Check that the client id is not another user's."""
    producer = context.gateway.producers.sessions.find_session(client_id)
    if producer is not None and producer.principal != context.principal:
        raise TubeRequestError(TubeCode.CERTIFICATE_FAILURE, "this producer is another user's")


def _check_topics(context: RequestContext, names: Iterable[str]) -> list[str]:
    """Return the names of the topics to publish to, each once; raises AccessDenied."""
    found = dict.fromkeys(name.strip() for name in names)
    most = context.gateway.settings.topics_max
    if len(found) > most:
        raise TubeRequestError(
            TubeCode.BAD_REQUEST,
            f"Booked topic's count over max value, required max count is {most}",
        )
    kept = []
    for name in found:
        try:
            canonical = parse_tubemq(name)
        except InvalidName:
            continue  # no topic can have this name
        context.check_access(Operation.WRITE, ResourceKind.TOPIC, canonical)
        kept.append(name)
    return kept


def _topic_infos(gateway: TubeGatewayContext, names: Iterable[str]) -> list[str]:
    topics = (find_topic(gateway.broker, name) for name in names)
    return [
        gateway.topic_info(topic)
        for topic in topics
        if topic is not None and gateway.accepts_publish(topic)
    ]


def _config(gateway: TubeGatewayContext, request: Any) -> ApprovedClientConfig:
    """Return the size of the largest message, left out where the client's configId has it."""
    size = gateway.message_bytes_max
    config = ApprovedClientConfig(configId=size)
    if request.appdConfig.configId != size:
        config.maxMsgSize = size
    return config
