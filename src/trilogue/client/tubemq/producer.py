"""Sends messages to the partitions of published topics, one after the other.

    send ─► room ─► partition (round robin, not at a faulty broker) ─► connection ─► broker
                        ^                                                  |
                        +--- never sent, or refused with 503: the next ----+

Topics are published, and given up again, at run time; what the master knows of them comes with
heartbeats. A message that may have reached a broker is not sent a second time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

from google.protobuf.message import Message as Proto

from trilogue.client.errors import (
    ClientError,
    ConnectionLost,
    InvalidOptionType,
    ServerUnreachable,
    describe_unreachable,
)
from trilogue.client.message_bytes import check_topic
from trilogue.client.pool import Address
from trilogue.client.tubemq.broker_metadata import BrokerMetadata, BrokerPartition
from trilogue.client.tubemq.connection import TubeConnection
from trilogue.client.tubemq.errors import TimedOut, TubeError
from trilogue.client.tubemq.message import Message, Payload, encode_message
from trilogue.client.tubemq.options import ProducerOptions
from trilogue.client.tubemq.server_connections import ServerConnections
from trilogue.client.tubemq.session import (
    RETRIABLE,
    RUNTIME,
    UNDEFINED,
    ClientContext,
    MasterSession,
    ipv4_as_int,
    new_client_id,
)
from trilogue.wire.tubemq.broker_pb2 import SendMessageRequestP2B, SendMessageResponseB2P
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.master_pb2 import (
    ApprovedClientConfig,
    CloseRequestP2M,
    CloseResponseM2P,
    HeartRequestP2M,
    HeartResponseM2P,
    RegisterRequestP2M,
    RegisterResponseM2P,
)
from trilogue.wire.tubemq.methods import BY_NAME

log = logging.getLogger("trilogue.client.tubemq")
SEND = BY_NAME["sendMessageP2B"]
NO_PARTITION = "no broker has a partition of it: create the topic, or check its name"


class Sent(NamedTuple):
    """Where a message is stored."""

    message_id: int
    topic: str
    partition: str
    """The partition's key: `brokerId:topic:partitionId`."""
    offset: int
    append_time_ms: int


class Producer(MasterSession):
    """Sends messages; made by `TubeClient.producer`."""

    KIND = "producer"

    def __init__(
        self, core: ClientContext, servers: ServerConnections, options: ProducerOptions
    ) -> None:
        super().__init__(core, servers, new_client_id(core))
        self.options = options
        self.topics: dict[str, None] = {}
        """What is published now."""
        self.metadata = BrokerMetadata()
        self.in_flight = 0
        """Messages that were taken and are neither stored nor refused."""
        self.bytes_in_flight = 0
        self._config = ApprovedClientConfig(configId=UNDEFINED)
        self._room: deque[asyncio.Future[None]] = deque()
        self._flushing: list[asyncio.Future[None]] = []
        self._turns: dict[str, int] = {}
        self._connecting: dict[Address, list[tuple[SendAttempt, BrokerPartition]]] = {}
        self._number = ipv4_as_int(core.host_name())

    # The master.

    async def _register_once(self) -> None:
        request = RegisterRequestP2M(
            clientId=self.client_id,
            topicList=list(self.topics),
            brokerCheckSum=self.metadata.checksum,
            hostName=self.core.host_name(),
            authInfo=self.credentials.for_master(),
            jdkVersion=RUNTIME,
            appdConfig=ApprovedClientConfig(configId=self._config.configId),
        )
        self._take(await self.request_master("producerRegisterP2M", request, RegisterResponseM2P))

    async def _heartbeat_once(self) -> None:
        request = HeartRequestP2M(
            clientId=self.client_id,
            brokerCheckSum=self.metadata.checksum,
            hostName=self.core.host_name(),
            topicList=list(self.topics),
            authInfo=self.credentials.for_master(),
            appdConfig=ApprovedClientConfig(configId=self._config.configId),
        )
        answer = await self.request_master("producerHeartbeatP2M", request, HeartResponseM2P)
        self._take(answer)
        self.credentials.required = answer.requireAuth
        before = self.metadata.addresses()
        self.metadata.take_topics(answer.topicInfos)
        self.servers.connect_ahead(self.metadata.addresses() - before)

    def _take(self, answer: RegisterResponseM2P | HeartResponseM2P) -> None:
        """Keep what both answers hold: brokers, tokens, and what the master approves of."""
        if answer.HasField("authorizedInfo"):
            self.credentials.store_tokens(answer.authorizedInfo)
        if answer.HasField("appdConfig"):
            self._config = answer.appdConfig
        self.metadata.take_brokers(answer.brokerCheckSum, answer.brokerInfos)

    @property
    def _needs_heartbeat(self) -> bool:
        return any(not self.metadata.places(topic) for topic in self.topics)

    async def publish(self, *topics: str) -> set[str]:
        """Send to these topics from now on; those of them that have partitions already.

        The others (unknown to the master, or new) are requested again with every heartbeat.
        TubeError (415) where this user may not write to one of them: then none is published.
        """
        self.check()
        for topic in topics:
            check_topic(topic)
        if not all(topic.strip() for topic in topics):
            raise TubeError(TubeCode.BLANK_TOPIC, "a topic has a name", "publish")
        new = [topic for topic in topics if topic not in self.topics]
        self.topics |= dict.fromkeys(topics)
        try:
            await self._report_topics()
        except TubeError:
            for topic in new:
                self.topics.pop(topic, None)
            raise
        return {topic for topic in topics if self.metadata.places(topic)}

    async def unpublish(self, *topics: str) -> None:
        """Send to these topics no more."""
        self.check()
        for topic in topics:
            self.topics.pop(topic, None)
            self.metadata.forget(topic)
        await self._report_topics()

    async def _report_topics(self) -> None:
        """Send the published topics to the master, at the latest with the next heartbeat."""
        try:
            await self.send_heartbeat()
        except RETRIABLE:
            self.wake()
        except TubeError as problem:
            if problem.is_denied:
                raise
            self._on_refused(problem)
            self.check()

    # Sending.

    async def send(self, message: Message) -> Sent:
        """Send a message and wait until it is stored.

        TubeError where it is refused, by this client (441 no topic, 442 no body, 443 not
        published, 444 no partition, 445 too long, 420 closed) or by the broker; ConnectionLost and
        TimedOut leave open whether it is stored.
        """
        return await (await self.submit(message))

    async def submit(self, message: Message) -> asyncio.Future[Sent]:
        """Hand a message over and go on: waits only for room, where it is stored is the future's.

        What the client itself refuses is raised here.
        """
        while True:
            try:
                attempt = self._attempt(message)
            except ClientError:
                self._make_room()  # if there was some for us, it is for another now
                raise
            size = len(attempt.payload.data)
            if self._has_room(size):
                break
            await self._wait_for_room()
        self.in_flight += 1
        self.bytes_in_flight += size
        if self._room and self._has_room(0):  # a large one made room for many
            self._make_room()
        attempt.start()
        return attempt.future

    def _has_room(self, size: int) -> bool:
        return not self.in_flight or (
            self.in_flight < self.options.max_pending
            and self.bytes_in_flight + size <= self.options.max_memory_bytes
        )

    def _attempt(self, message: Message) -> SendAttempt:
        self.check()
        if not isinstance(message, Message):
            raise InvalidOptionType(
                f"message={message!r} is not allowed: message is a Message(topic, body)"
            )
        about = f"message to {message.topic}"
        if not message.topic.strip():
            raise TubeError(TubeCode.BLANK_TOPIC, "a message has a topic", about)
        if not message.body:
            raise TubeError(TubeCode.EMPTY_BODY, "a message has a body", about)
        if message.topic not in self.topics:
            raise TubeError(TubeCode.TOPIC_NOT_PUBLISHED, "publish the topic first", about)
        if not self.metadata.places(message.topic):
            raise TubeError(TubeCode.TOPIC_WITHOUT_PARTITION, NO_PARTITION, about)
        return SendAttempt(
            self, message, encode_message(message, self.message_size_max(message.topic))
        )

    def message_size_max(self, topic: str) -> int:
        """The size limit of body and attributes, as the master last reported it."""
        return self.metadata.size_max(topic, self._config.maxMsgSize)

    async def _wait_for_room(self) -> None:
        waiter = self._loop.create_future()
        self._room.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._make_room()  # it was for us, and we are gone
            with suppress(ValueError):
                self._room.remove(waiter)
            raise

    def _make_room(self) -> None:
        while self._room:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def settled(self, size: int) -> None:
        """One message less is under way."""
        self.in_flight -= 1
        self.bytes_in_flight -= size
        if self._room:
            self._make_room()
        if not self.in_flight:
            flushing, self._flushing = self._flushing, []
            for waiter in flushing:
                if not waiter.done():
                    waiter.set_result(None)

    def choose(self, topic: str) -> BrokerPartition | None:
        """The next partition in turn, past those of brokers that are better left alone."""
        places = self.metadata.places(topic)
        if not places:
            return None
        first = self._turns.get(topic)
        if first is None:
            first = self.core.dice.randrange(len(places))
        for step in range(len(places)):
            place = places[(first + step) % len(places)]
            if not self.servers.is_avoided(place.address):
                self._turns[topic] = first + step + 1
                return place
        self._turns[topic] = first + 1  # all are faulty: any may be well again
        return places[first % len(places)]

    def build_request(self, place: BrokerPartition, message: Message, payload: Payload) -> Proto:
        """The request that stores a message in a partition."""
        return SendMessageRequestP2B(
            clientId=self.client_id,
            topicName=place.topic,
            partitionId=place.partition_id,
            data=payload.data,
            flag=payload.flag,
            checkSum=payload.checksum,
            sentAddr=self._number,
            msgType=message.type,
            msgTime=message.time,
            authInfo=self.credentials.for_producer(),
        )

    # Connecting: messages that wait for a connection are sent in order, before later ones.

    def join_connecting(self, attempt: SendAttempt, place: BrokerPartition) -> bool:
        """Whether others wait for a connection to this broker already; then this one does too."""
        waiting = self._connecting.get(place.address)
        if waiting is None:
            return False
        waiting.append((attempt, place))
        return True

    def connect(self, attempt: SendAttempt, place: BrokerPartition) -> None:
        """Connect to a broker for this message and all that come until then."""
        self._connecting[place.address] = [(attempt, place)]
        self.spawn(self._connect(place.address))

    async def _connect(self, address: Address) -> None:
        try:
            connection = await self.servers.get(address)
        except asyncio.CancelledError:
            for attempt, _ in self._connecting.pop(address):
                attempt.closed()
            raise
        except ClientError as problem:
            for attempt, _ in self._connecting.pop(address):
                attempt.not_connected(problem)
        except Exception as problem:
            log.exception("tubemq.connect_failed")
            for attempt, _ in self._connecting.pop(address):
                attempt.not_connected(ClientError(f"no connection: {problem!r}"))
        else:
            for attempt, place in self._connecting.pop(address):
                attempt.send_to(connection, place)

    async def flush(self) -> None:
        """Wait until everything submitted is stored or refused."""
        self._check_loop()
        if self.in_flight:
            waiter = self._loop.create_future()
            self._flushing.append(waiter)
            await waiter

    def _on_failed(self) -> None:
        waiting, self._room = self._room, deque()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _leave(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.core.options.close_timeout_s / 2):
                await self.flush()
        async with self.lock:
            if not self._registered:
                return
            request = CloseRequestP2M(
                clientId=self.client_id, authInfo=self.credentials.for_master()
            )
            await self.request_master("producerCloseClientP2M", request, CloseResponseM2P)


class SendAttempt:
    """One message on its way."""

    __slots__ = ("_message", "_place", "_producer", "_tries", "future", "payload")

    def __init__(self, producer: Producer, message: Message, payload: Payload) -> None:
        self.future: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        self._producer = producer
        self._message = message
        self.payload = payload
        self._place: BrokerPartition | None = None
        self._tries = 0

    def start(self) -> None:
        """Send it to the partition whose turn it is."""
        self._tries += 1
        producer = self._producer
        self._place = producer.choose(self._message.topic)
        if self._place is None:
            about = f"message to {self._message.topic}"
            self._settle(TubeError(TubeCode.TOPIC_WITHOUT_PARTITION, NO_PARTITION, about))
            return
        if producer.join_connecting(self, self._place):
            return
        try:
            connection = producer.servers.peek(self._place.address)
        except ClientError as problem:
            self._settle(problem)
            return
        if connection is None:
            producer.connect(self, self._place)
        else:
            self.send_to(connection, self._place)

    def not_connected(self, problem: ClientError) -> None:
        """Nothing was sent yet, so another broker may do as well."""
        if isinstance(problem, ConnectionLost):
            self._retry(problem)
        else:
            self._settle(problem)

    def closed(self) -> None:
        """The producer was closed while this waited for a connection."""
        self._settle(ConnectionLost("the producer was closed"))

    def send_to(self, connection: TubeConnection, place: BrokerPartition) -> None:
        """Send it to the broker."""
        request = self._producer.build_request(place, self._message, self.payload)
        try:
            connection.send_request(SEND, request, self._done)
        except ConnectionLost as problem:
            self._retry(problem)
        except ClientError as problem:
            self._settle(problem)

    def _done(self, answer: Any, problem: Exception | None) -> None:
        place = self._place
        assert place is not None
        if problem is not None:
            if isinstance(problem, TimedOut):
                self._producer.servers.mark_faulty(place.address)
            self._settle(problem)
            return
        assert isinstance(answer, SendMessageResponseB2P)
        if not answer.success:
            refused = TubeError(answer.errCode, answer.errMsg, f"message to {place.key}")
            if refused.error is TubeCode.SERVICE_UNAVAILABLE:
                self._producer.servers.mark_faulty(place.address)
                self._retry(refused)
            else:
                self._settle(refused)
            return
        # Old brokers return the message's id in the text only.
        number = answer.messageId if answer.HasField("messageId") else _number(answer.errMsg)
        offset = answer.appendOffset if answer.HasField("appendOffset") else -1
        sent = Sent(number, place.topic, place.key, offset, answer.appendTime)
        self._producer.settled(len(self.payload.data))
        if not self.future.done():
            self.future.set_result(sent)

    def _retry(self, problem: ClientError) -> None:
        """It is stored nowhere: try another partition, as long as that makes sense."""
        if self._tries < self._producer.options.tries and not self.future.done():
            self.start()
        elif isinstance(problem, ConnectionLost) and self._place is not None:
            host, port = self._place.address
            self._settle(ServerUnreachable(describe_unreachable(f"{host}:{port}", problem)))
        else:
            self._settle(problem)

    def _settle(self, problem: Exception) -> None:
        self._producer.settled(len(self.payload.data))
        if not self.future.done():
            self.future.set_exception(problem)


def _number(text: str) -> int:
    return int(text) if text.removeprefix("-").isdecimal() else -1
