"""One administrative request on its way, and how what came of it is said: status and JSON.

A handler is a function `(asked) -> answer`, or a coroutine, and answers with

    a value         200 and its JSON
    None            204
    Reply           what it says
    BrokerError     raised: the status of its class in STATUS, and {"reason": the message}
    Problem         raised: a status and a reason of its own

Bodies are bounded and read before the handler runs. Statuses and bodies are those of a real broker
(4.0.7, asked path by path), except where we refuse what it would only pretend to do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from trilogue.broker import errors as broker_errors
from trilogue.broker.access import Operation, Principal, ResourceKind
from trilogue.broker.broker import Broker
from trilogue.broker.commit import Commit
from trilogue.broker.errors import BrokerError, InvalidName, UnknownTopic
from trilogue.broker.names import (
    NamespaceName,
    PulsarName,
    TopicName,
    parse_namespace,
    parse_pulsar,
)
from trilogue.broker.naming import check_kept, find_partition
from trilogue.broker.partition import Partition
from trilogue.broker.topic import Topic
from trilogue.gateway.http.changing import alter_topic, carry_out, delete_topic
from trilogue.gateway.http.incoming import Problem
from trilogue.gateway.http.permitted import Permitted
from trilogue.gateway.pulsar.shared import Shared

SLASH = "\0"  # stands for a slash that was escaped, inside a part of a path
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that says itself what it is; with neither content nor media type it is empty."""

    status: int = 200
    content: bytes = b""
    media_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


NOTHING_SET = Reply(200)  # what a real broker says of a policy that was not set


STATUS: dict[type[BrokerError], int] = {
    broker_errors.BrokerError: 500,
    broker_errors.UnknownTopic: 404,
    broker_errors.UnknownTopicId: 404,
    broker_errors.UnknownNamespace: 404,
    broker_errors.UnknownSubscription: 404,
    broker_errors.TopicExists: 409,
    broker_errors.NamespaceExists: 409,
    broker_errors.InUse: 409,
    broker_errors.Outrun: 409,
    broker_errors.InvalidName: 412,
    broker_errors.InvalidPartitions: 412,
    broker_errors.InvalidSetting: 412,
    broker_errors.PolicyViolation: 412,
    broker_errors.InvalidRequest: 400,
    broker_errors.InvalidSchema: 422,
    broker_errors.IncompatibleSchema: 409,
    broker_errors.UnknownSchema: 404,
    broker_errors.OffsetOutOfRange: 404,
    broker_errors.NotServed: 405,
    broker_errors.AccessDenied: 403,
    broker_errors.AuthenticationFailed: 401,
    broker_errors.DiskFull: 503,
    broker_errors.TooManyPositions: 412,
    broker_errors.MetadataTooLarge: 412,
}


def status_of(problem: BrokerError) -> int:
    """The status of the nearest class that has one."""
    for kind in type(problem).__mro__:
        found = STATUS.get(kind)
        if found is not None:
            return found
    return 500


class Asked(Permitted):
    """One request: what it names, what it carries, and the broker it is about."""

    __slots__ = ("body", "door", "operation", "params", "principal", "request")

    door: Shared

    def __init__(
        self,
        door: Shared,
        request: Request,
        body: bytes,
        *,
        operation: Operation,
        principal: Principal,
    ) -> None:
        self.door = door
        self.request = request
        self.params: dict[str, str] = {
            name: text.replace(SLASH, "/") for name, text in request.path_params.items()
        }
        self.body = body
        self.operation = operation
        self.principal = principal

    @property
    def broker(self) -> Broker:
        """The broker behind the door."""
        return self.door.broker

    # -- what it carries

    def json(self, kind: type[T]) -> T:
        """The body as JSON of a certain shape; Problem 400."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(400, f"the body cannot be read: {error}") from error

    def any_json(self) -> Any:
        """The body as any JSON."""
        return self.json(object)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A query parameter that is true or false."""
        said = self.request.query_params.get(name)
        return default if said is None else said.lower() == "true"

    def number(self, name: str) -> int:
        """A number in the path; Problem 400."""
        text = self.params[name]
        if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 20):
            raise Problem(400, f"{name} is a number")
        return int(text)

    # -- what it names

    @property
    def namespace(self) -> NamespaceName:
        """The tenant and namespace in the path."""
        every = (self.params.get(each) for each in ("tenant", "cluster", "namespace"))
        parts = [each for each in every if each is not None]
        if any("/" in each for each in parts):
            raise InvalidName("tenants and namespaces have no slashes")
        return parse_namespace("/".join(parts))

    @property
    def name(self) -> PulsarName:
        """The topic in the path; InvalidName."""
        domain = self.params.get("domain", "persistent")
        if "/" in self.params["topic"]:
            raise InvalidName("a topic's own name has no slash")
        return parse_pulsar(f"{domain}://{self.namespace}/{self.params['topic']}")

    @property
    def topic(self) -> Topic:
        """The topic, whichever of its partitions is named; UnknownTopic."""
        name = self.name
        check_kept(name)
        found = self.broker.cluster.find(name.topic)
        if found is None or (name.partition is not None and not found.partitioned):
            raise UnknownTopic(f"Topic {name} not found")
        if name.partition is not None and name.partition >= len(found.partitions):
            raise UnknownTopic("Topic partitions were not yet created")
        return found

    @property
    def partition(self) -> tuple[Topic, Partition]:
        """The one partition that the path names; UnknownTopic."""
        _ = self.topic
        try:
            return find_partition(self.broker.cluster, self.name)
        except UnknownTopic as error:
            raise UnknownTopic(f"Topic {self.name} not found") from error

    @property
    def partitions(self) -> list[tuple[int, Partition]]:
        """The partitions that the path names, with the numbers clients know them by."""
        topic, wanted = self.topic, self.name.partition
        if not topic.partitioned:
            return [(-1, topic.partitions[0])]
        return [
            (index, partition)
            for index, partition in enumerate(topic.partitions)
            if wanted in {None, index}
        ]

    # -- what it does

    async def carry_out(self, decide: Callable[[], Commit[T]]) -> T:
        """Do what is decided, deciding again when somebody else was faster."""
        return await carry_out(self.door, decide)

    async def delete_topic(self, name: TopicName) -> None:
        """Delete a topic, when no change of it is under way."""
        await delete_topic(self.door, name)

    async def alter_topic(self, change: Callable[[dict[str, str]], None]) -> Topic:
        """Change what a topic's row keeps, when no other change of it is under way."""
        return await alter_topic(self.door, lambda: self.topic, change)


Handler = Callable[[Asked], Any | Coroutine[Any, Any, Any]]
Answering = Callable[[Asked], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Row:
    """One path below a prefix: which methods, who answers, and what access it needs.

    The thing that is protected is the topic, or the namespace, that the path names.
    """

    methods: str
    path: str
    handler: Handler
    resource: ResourceKind
    operation: Operation


def encode(answer: object) -> Reply:
    """Turn a handler's answer into what is sent."""
    if answer is None:
        return Reply(204)
    if isinstance(answer, Reply):
        return answer
    return Reply(200, msgspec.json.encode(answer), "application/json")


def refusal(status: int, reason: str) -> Reply:
    """What is sent when it cannot be: {"reason": ...}, as Pulsar's clients read it."""
    return Reply(status, msgspec.json.encode({"reason": reason}), "application/json")
