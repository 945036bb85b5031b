"""One administrative request of Pulsar's REST API, and the encoding of its reply: status and JSON.

A handler is a function `(request) -> result`, or a coroutine, and its result becomes

    a value         200 and its JSON
    None            204
    Reply           itself
    BrokerError     raised: the status of its class in STATUS, and {"reason": the message}
    HttpError       raised: its status and reason

Bodies are bounded and read before the handler runs. Statuses and bodies are those of a real broker
(4.0.7, compared path by path), except where an unsupported request is rejected here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from trilogue.broker import errors as broker_errors
from trilogue.broker.access.acls import Acl
from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.access.granted_actions import GrantedActions
from trilogue.broker.errors import (
    AccessDenied,
    BrokerError,
    InvalidName,
    NotOwner,
    UnknownTopic,
)
from trilogue.broker.names import (
    NamespaceName,
    PulsarName,
    TopicName,
    parse_namespace,
    parse_pulsar,
)
from trilogue.broker.topics.lookup import check_persistent, find_partition
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.http.administration import AuthorizedRequest
from trilogue.gateway.http.escaped_paths import SLASH
from trilogue.gateway.http.request_limits import HttpError, check_origin
from trilogue.gateway.pulsar.gateway import PulsarGateway
from trilogue.gateway.pulsar.metadata.lookup import may_create
from trilogue.gateway.pulsar.metadata.subscription_access import check_administered

T = TypeVar("T")


class Reply(msgspec.Struct, frozen=True):
    """A complete reply; with neither content nor media type it is empty."""

    status: int = 200
    content: bytes = b""
    media_type: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


NOTHING_SET = Reply(200)  # a real broker's reply for an unset policy


STATUS: dict[type[BrokerError], int] = {
    broker_errors.BrokerError: 500,
    broker_errors.UnknownTopic: 404,
    broker_errors.UnknownTopicId: 404,
    broker_errors.UnknownNamespace: 404,
    broker_errors.UnknownSubscription: 404,
    broker_errors.TopicExists: 409,
    broker_errors.NamespaceExists: 409,
    broker_errors.InUse: 409,
    broker_errors.ConcurrentChange: 409,
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
    broker_errors.UnknownTransaction: 404,
    broker_errors.InvalidTransactionState: 409,
    broker_errors.ConcurrentTransactions: 409,
    broker_errors.AccessDenied: 403,
    broker_errors.AuthenticationFailed: 401,
    broker_errors.TooManyLogins: 503,
    broker_errors.DiskFull: 503,
    broker_errors.TooManyPositions: 412,
    broker_errors.MetadataTooLarge: 412,
}


def status_of(problem: BrokerError) -> int:
    """Return the status of the nearest base class that has one."""
    for kind in type(problem).__mro__:
        found = STATUS.get(kind)
        if found is not None:
            return found
    return 500


class AdminRequest(AuthorizedRequest):
    """One request: its path, its body, and the broker that it is about."""

    __slots__ = ("access", "authority", "body", "gateway", "http", "operation", "params")

    gateway: PulsarGateway

    def __init__(
        self,
        gateway: PulsarGateway,
        http: Request,
        body: bytes,
        *,
        operation: Operation,
        access: ClientAccess,
        authority: str = "",
    ) -> None:
        """Take a request; `authority` is a PEM file that signs the certificates of other nodes.

        "" where the machine's authorities do.
        """
        self.authority = authority
        self.gateway = gateway
        self.http = http
        self.params: dict[str, str] = {
            name: text.replace(SLASH, "/") for name, text in http.path_params.items()
        }
        self.body = body
        self.operation = operation
        self.access = access

    # -- what it carries

    def json(self, kind: type[T]) -> T:
        """Return the body as JSON of this type; raises HttpError 400.

        Numbers may be texts, as a real broker (Jackson) takes them, and Go's client sends limits.
        """
        try:
            return msgspec.json.decode(self.body, type=kind, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HttpError(400, f"the body cannot be read: {error}") from error

    def any_json(self) -> Any:
        """Return the body as any JSON."""
        return self.json(object)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean query parameter."""
        value = self.http.query_params.get(name)
        return default if value is None else value.lower() == "true"

    def number(self, name: str) -> int:
        """Return a number of the path; raises HttpError 400."""
        text = self.params[name]
        if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 20):
            raise HttpError(400, f"{name} is a number")
        return int(text)

    # -- permissions

    def check_grant(self, kind: ResourceKind, name: object) -> None:
        """Refuse a grant by a principal that may not do everything there: AccessDenied."""
        if not self.access.is_allowed(Operation.ALL, kind, str(name)):
            raise AccessDenied(Operation.ALL, Resource(kind, str(name)))

    def check_subscription(self, subscription: str) -> None:
        """Refuse a subscription that the namespace has for other roles: AccessDenied."""
        check_administered(self.access, self.broker.namespaces, subscription, self.name.topic)

    def may_create_topic(self) -> bool:
        """Whether the topic of the path may be created by a GET: the client wants and may that.

        Raises HttpError 403 where a page makes a browser send it.
        """
        if not self.flag("checkAllowAutoCreation"):
            return False
        check_origin(self.http, changes=True)
        return may_create(self.access, self.name.topic)

    async def change_acls(self, new: Collection[Acl], old: Collection[Acl]) -> None:
        """Create and delete ACLs."""
        if new or old:
            acls = self.broker.acls
            await self.commit_change(lambda: acls.plan_replace(new, old))

    async def delete_topic(self, name: TopicName) -> None:
        """Delete a topic, and what was granted on it: a topic of the same name begins without."""
        await super().delete_topic(name)
        await self.change_acls((), GrantedActions(self.broker.acls, name).all_acls())

    # -- what it names

    @property
    def namespace(self) -> NamespaceName:
        """The tenant and namespace of the path."""
        every = (self.params.get(each) for each in ("tenant", "cluster", "namespace"))
        parts = [each for each in every if each is not None]
        if any("/" in each for each in parts):
            raise InvalidName("tenants and namespaces have no slashes")
        return parse_namespace("/".join(parts))

    @property
    def name(self) -> PulsarName:
        """The topic name of the path; raises InvalidName."""
        domain = self.params.get("domain", "persistent")
        if "/" in self.params["topic"]:
            raise InvalidName("a topic's own name has no slash")
        return parse_pulsar(f"{domain}://{self.namespace}/{self.params['topic']}")

    @property
    def topic(self) -> Topic:
        """The topic of the path, also where it names a partition; raises UnknownTopic."""
        name = self.name
        check_persistent(name)
        found = self.broker.cluster.find_topic(name.topic)
        if found is None or (name.partition is not None and not found.partitioned):
            raise UnknownTopic(f"Topic {name} not found")
        if name.partition is not None and name.partition >= len(found.partitions):
            raise UnknownTopic("Topic partitions were not yet created")
        return found

    @property
    def partition(self) -> tuple[Topic, Partition]:
        """The topic and the one partition of the path; raises UnknownTopic."""
        _ = self.topic
        try:
            return find_partition(self.broker.cluster, self.name)
        except UnknownTopic as error:
            raise UnknownTopic(f"Topic {self.name} not found") from error

    @property
    def partitions(self) -> list[tuple[int, Partition]]:
        """The partitions of the path, with the numbers that clients know; -1: not partitioned.

        Raises NotOwner where another node has one of them.
        """
        topic, wanted = self.topic, self.name.partition
        found = [
            (index if topic.partitioned else -1, partition)
            for index, partition in enumerate(topic.partitions)
            if wanted in {None, index}
        ]
        for _, partition in found:
            if partition.is_remote:
                owner = self.broker.cluster.ownership.partition_owner(partition.partition_id)
                raise NotOwner(f"node {owner} is the owner of the partition", owner)
        return found


Handler = Callable[[AdminRequest], Any | Coroutine[Any, Any, Any]]


class AdminRoute(msgspec.Struct, frozen=True):
    """One path: its methods, its handler, and the access it needs.

    With `finds_coordinators` the topic of transaction coordinators needs none. What `is_public`
    every client that may connect reads, the anonymous one included, as at a real broker.
    """

    methods: str
    path: str
    handler: Handler
    resource: ResourceKind
    operation: Operation
    finds_coordinators: bool = False
    is_public: bool = False

    def below(self, prefix: str) -> AdminRoute:
        """Return the same route under a longer path."""
        return replace(self, path=prefix + self.path)


def encode_reply(answer: object) -> Reply:
    """Return the reply for a handler's result."""
    if answer is None:
        return Reply(204)
    if isinstance(answer, Reply):
        return answer
    return Reply(200, msgspec.json.encode(answer), "application/json")


def error_reply(status: int, reason: str) -> Reply:
    """Return an error as Pulsar's clients read it: {"reason": ...}."""
    return Reply(status, msgspec.json.encode({"reason": reason}), "application/json")
