"""One request of the console: its principal, its parameters, and the form that it may have.

    ConsoleServices     what a node gives to the console
    ConsoleRequest      one request; every datum on a page passes its `can_see` or `check`

A change is a form that this console made: it has the token of its principal, and the browser names
this server as the origin. A page of another site can bring neither.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from starlette.requests import Request

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.errors import AccessDenied, InvalidName, NotOwner, UnknownTopic
from trilogue.broker.names import parse_pulsar
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.access_administration import AccessAdministration
from trilogue.gateway.dependencies import ProtocolGateway
from trilogue.gateway.http.administration import AuthorizedRequest
from trilogue.gateway.http.metrics import Gather
from trilogue.gateway.http.node_clients import NodeClients
from trilogue.gateway.http.request_limits import HttpError, read_body
from trilogue.gateway.pulsar.gateway import PulsarGateway
from trilogue.gateway.steps import next_step

ROOT: Final = "/console"
PAGE_ROWS: Final = 50
NAMES_PER_STEP: Final = 500
FIELDS_MAX: Final = 100  # of a form
TEXT_MAX: Final = 1_024  # characters of a query parameter
TOKEN_FIELD: Final = "token"  # noqa: S105 - the name of a field


class ConsoleServices(msgspec.Struct, frozen=True):
    """The parts of a node that pages show."""

    gateway: ProtocolGateway
    pulsar: PulsarGateway | None
    gather: Gather  # the metrics
    list_connections: Callable[[], Mapping[str, list[tuple[str, str, str]]]]
    make_administration: Callable[[], AccessAdministration]
    make_node_clients: Callable[[], NodeClients]
    has_access_control: bool


class NodeLink(msgspec.Struct, frozen=True):
    """A node whose console is at `address` (`http://host:port`)."""

    node_id: int
    is_this: bool
    address: str


class FormTokens:
    """Tokens of forms: each is of one principal, and of this process."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def make(self, principal: object) -> str:
        """Return the token of a principal."""
        return hmac.new(self._secret, str(principal).encode(), sha256).hexdigest()

    def check(self, principal: object, token: str) -> None:
        """Refuse a form with another token: HttpError 403."""
        if not hmac.compare_digest(self.make(principal).encode(), token.encode()):
            raise HttpError(403, "this form is of another session: open its page again")


class ConsoleRequest(AuthorizedRequest):
    """One request, with the parameters of its query and the fields of its form."""

    __slots__ = ("access", "fields", "gateway", "http", "operation", "services", "tokens")

    def __init__(self, services: ConsoleServices, http: Request, tokens: FormTokens) -> None:
        access: ClientAccess = http.scope["access"]  # of login.py
        self.access = access
        self.services = services
        self.gateway = services.gateway
        self.http = http
        self.tokens = tokens
        self.operation = Operation.DESCRIBE
        self.fields: dict[str, str] = {}

    @property
    def token(self) -> str:
        """The token that the forms of this principal have."""
        return self.tokens.make(self.principal)

    # -- what it has

    async def read_form(self) -> None:
        """Read the form; raises HttpError 403 where it is not of this console."""
        _check_origin(self.http)
        body = await read_body(self.http)
        try:
            pairs = parse_qsl(
                body.decode(),
                keep_blank_values=True,
                max_num_fields=FIELDS_MAX,
                strict_parsing=True,
            )
        except ValueError:
            raise HttpError(400, "the form cannot be read") from None
        self.fields = dict(pairs)
        self.tokens.check(self.principal, self.fields.get(TOKEN_FIELD, ""))

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter of the query; raises HttpError 400 where it is too long."""
        found = self.http.query_params.get(name, default)
        if len(found) > TEXT_MAX:
            raise HttpError(400, f"{name} has more than {TEXT_MAX} characters")
        return found

    def number(self, name: str, default: int) -> int:
        """Return a number of the query; raises HttpError 400."""
        return parse_number(name, self.text(name).strip(), default)

    def link(self, path: str, **parameters: object) -> str:
        """Return the address of a page of the console."""
        return make_link(path, **parameters)

    # -- other nodes

    def find_node(self, node_id: int) -> NodeLink | None:
        """Return where a node has its console, by the same scheme; None without such a listener."""
        ownership, scheme = self.broker.cluster.ownership, self.http.url.scheme
        address = ownership.listeners(node_id).get("https" if scheme == "https" else "http")
        if address is None:
            return None
        return NodeLink(node_id, node_id == ownership.node_id, f"{scheme}://{address}")

    def list_nodes(self) -> list[NodeLink]:
        """Return the nodes that own slots and have a console, for a bar of links."""
        found = map(self.find_node, self.broker.cluster.ownership.node_ids)
        return [each for each in found if each is not None]

    def link_at(self, node_id: int, path: str, **parameters: object) -> str:
        """Return the address of a page at a node, "" where it has no console."""
        node = self.find_node(node_id)
        return "" if node is None else node.address + make_link(path, **parameters)

    # -- what it may do

    def can(self, operation: Operation, kind: ResourceKind, name: object) -> bool:
        """Return whether the principal may do this, for pages that leave things out."""
        return self.access.can_see(operation, kind, str(name))

    def check(self, operation: Operation, kind: ResourceKind, name: object) -> None:
        """Refuse what the principal may not do: AccessDenied, and a line of the audit log."""
        if not self.access.is_allowed(operation, kind, str(name)):
            raise AccessDenied(operation, Resource(kind, str(name)))

    def find_topic(self, text: str, operation: Operation) -> Topic:
        """Return the topic of this name that the principal may do this to.

        Raises AccessDenied before anything shows whether the topic exists; UnknownTopic.
        """
        spelled = text if "://" in text or "/" not in text else f"persistent://{text}"
        found = parse_pulsar(spelled)
        if not found.persistent:
            raise InvalidName("non-persistent topics keep no messages and have no page")
        name = found.topic
        self.check(operation, ResourceKind.TOPIC, name)
        topic = self.broker.cluster.find_topic(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name}")
        return topic

    def find_partition(self, topic: Topic, number: int) -> Partition:
        """Return a partition of this node by its number; raises UnknownTopic, NotOwner."""
        partition = topic.partition(number)
        if partition.is_remote:
            owner = self.broker.cluster.ownership.partition_owner(partition.partition_id)
            raise NotOwner(f"node {owner} is the owner of the partition", owner)
        return partition

    async def map_partitions(self) -> dict[int, tuple[Topic, int]]:
        """Return topic and number of each partition that the principal may see, by id."""
        found: dict[int, tuple[Topic, int]] = {}
        for count, topic in enumerate(list(self.broker.cluster), 1):
            if self.can(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name):
                for number, partition in enumerate(topic.partitions):
                    found[partition.partition_id] = topic, number
            if count % NAMES_PER_STEP == 0:
                await next_step()
        return found


def parse_number(name: str, text: str, default: int) -> int:
    """Return a number from 0 on, the default for no text; raises HttpError 400."""
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise HttpError(400, f"{name} is a number from 0 on")
    return int(text)


def make_link(path: str, **parameters: object) -> str:
    """Return the address of a page of the console; parameters without a value are left out."""
    given = {name: value for name, value in parameters.items() if value not in {None, ""}}
    query = f"?{urlencode(given)}" if given else ""
    return f"{ROOT}{path}{query}"


def _check_origin(http: Request) -> None:
    """Refuse a form that another site makes the browser send: HttpError 403."""
    headers = http.headers
    origin = headers.get("origin")
    is_own = origin is None or urlsplit(origin).netloc == headers.get("host", "")
    if not is_own or headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise HttpError(403, "pages of other sites may change nothing here")
