"""Producers at the master (P2M): who is there, where the broker is, what topics they may write to.

A producer registers, then says in heartbeats which topics it publishes to. The answers tell it of
the broker, when its checksum is not the one the client knows, and of every topic it named that
exists and takes messages; one that does not is absent, which is no error (wire facts, section 6).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from trilogue.broker.access import Operation, Principal, ResourceKind
from trilogue.broker.errors import InvalidName
from trilogue.broker.names import parse_tubemq
from trilogue.gateway.tubemq.authentication import Role
from trilogue.gateway.tubemq.errors import Refusal
from trilogue.gateway.tubemq.sessions import Sessions
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.master_pb2 import (
    ApprovedClientConfig,
    CloseResponseM2P,
    HeartResponseM2P,
    RegisterResponseM2P,
)

if TYPE_CHECKING:
    from trilogue.gateway.tubemq.call import Call
    from trilogue.gateway.tubemq.door import TubeDoor
    from trilogue.gateway.tubemq.settings import TubeSettings

log = logging.getLogger(__name__)

OK = "OK!"
HOST_MAX = 1_024
SAID_MAX = 64  # characters kept of what a client says of its host and its Java


@dataclass(slots=True)
class Producer:
    """One producer, as the master knows it."""

    principal: Principal
    host: str
    jdk: str
    topics: int  # how many it named last


class Producers:
    """All producers of this master."""

    def __init__(self, settings: TubeSettings) -> None:
        self.sessions: Sessions[Producer] = Sessions(
            settings.producer_timeout_s, settings.producers_max
        )
        self.expired = 0

    def expire(self, now_s: float) -> None:
        """Forget those that were silent for too long."""
        for client_id, _ in self.sessions.expire(now_s):
            self.expired += 1
            log.info("tubemq.producer_expired", extra={"client": client_id})


def register(call: Call) -> Message:
    """Let a producer in, again if it is there already; tell it of the broker."""
    request, door = call.request, call.door
    client_id = _checked(call)
    names = _topics(call, request.topicList)
    producer = Producer(
        call.principal, request.hostName[:SAID_MAX], request.jdkVersion[:SAID_MAX], len(names)
    )
    _check_owner(call, client_id)
    if not door.producers.sessions.put(client_id, producer, door.loop.time()):
        raise Refusal(TubeCode.FORBIDDEN, "there are as many producers as there may be")
    return RegisterResponseM2P(
        success=True,
        errCode=TubeCode.SUCCESS,
        errMsg=OK,
        brokerCheckSum=door.broker_checksum,
        brokerInfos=[door.broker_info],
        authorizedInfo=door.authentication.authorized_info(call.principal, client_id),
        appdConfig=_config(door, request),
    )


def heartbeat(call: Call) -> Message:
    """Know that a producer is there; tell it of the topics it names."""
    request, door = call.request, call.door
    client_id = _checked(call)
    names = _topics(call, request.topicList)
    _check_owner(call, client_id)
    producer = door.producers.sessions.heard(client_id, door.loop.time())
    if producer is None:
        raise Refusal(
            TubeCode.NO_NODE, f"Invalid node id:{client_id}, you have to append node first!"
        )
    producer.topics = len(names)
    checksum = door.broker_checksum
    response = HeartResponseM2P(
        success=True,
        errCode=TubeCode.SUCCESS,
        errMsg=OK,
        brokerCheckSum=checksum,
        topicInfos=_topic_infos(door, names),
        authorizedInfo=door.authentication.authorized_info(call.principal, client_id),
        appdConfig=_config(door, request),
    )
    if request.brokerCheckSum != checksum:
        response.brokerInfos.append(door.broker_info)
    if door.authentication.require_auth(
        Role.PRODUCER, call.connection, client_id, request.authInfo
    ):
        response.requireAuth = True
    return response


def close(call: Call) -> Message:
    """Forget a producer; one that is not there is forgotten already (wire fact)."""
    client_id = _checked(call)
    _check_owner(call, client_id)
    call.door.producers.sessions.drop(client_id)
    return CloseResponseM2P(success=True, errCode=TubeCode.SUCCESS, errMsg=OK)


# ---- what all three look at


def check_client_id(client_id: str, most: int) -> str:
    """Return the id without blanks around it, or refuse one that is empty or too long."""
    text = client_id.strip()
    if not text:
        raise Refusal(TubeCode.BAD_REQUEST, "Request miss necessary clientId data!")
    if len(text) > most:
        raise Refusal(TubeCode.BAD_REQUEST, f"clientId's length over max value, allowed {most}")
    return text


def _checked(call: Call) -> str:
    """Whose request this is, by its id; who asks is known from here on."""
    client_id = check_client_id(call.request.clientId, call.door.settings.client_id_max)
    call.authenticate(Role.PRODUCER, client_id, call.request.authInfo)
    return client_id


def _check_owner(call: Call, client_id: str) -> None:
    """Nobody speaks for the producer of another user."""
    producer = call.door.producers.sessions.find(client_id)
    if producer is not None and producer.principal != call.principal:
        raise Refusal(TubeCode.CERTIFICATE_FAILURE, "this producer is another user's")


def _topics(call: Call, names: Iterable[str]) -> list[str]:
    """The topics a producer wants to write to, each once: AccessDenied where it may not."""
    found = dict.fromkeys(name.strip() for name in names)
    most = call.door.settings.topics_max
    if len(found) > most:
        raise Refusal(
            TubeCode.BAD_REQUEST,
            f"Booked topic's count over max value, required max count is {most}",
        )
    kept = []
    for name in found:
        try:
            canonical = parse_tubemq(name)
        except InvalidName:
            continue  # there is no such topic
        call.check_access(Operation.WRITE, ResourceKind.TOPIC, canonical)
        kept.append(name)
    return kept


def _topic_infos(door: TubeDoor, names: Iterable[str]) -> list[str]:
    topics = (door.find(name) for name in names)
    return [
        door.topic_info(topic)
        for topic in topics
        if topic is not None and door.takes_messages(topic)
    ]


def _config(door: TubeDoor, request: Any) -> ApprovedClientConfig:
    """The largest message of the cluster, under a number that changes with it.

    Wire fact: clients that say no configId are told, those that know the number are not.
    """
    size = door.message_bytes_max
    config = ApprovedClientConfig(configId=size)
    if request.appdConfig.configId != size:
        config.maxMsgSize = size
    return config
