"""One request of the REST proxy: its JSON, its client of Kafka's protocol, and its errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from trilogue.broker.access.authorizer import Principal
from trilogue.client.errors import ClientError, TimedOut
from trilogue.client.kafka.errors import AuthenticationFailed, KafkaError
from trilogue.gateway.http.escaped_paths import SLASH
from trilogue.gateway.http.kafka_rest.clients import RestClient
from trilogue.wire.kafka.errors import ErrorCode

TOPIC_NOT_FOUND: Final = 40401
PARTITION_NOT_FOUND: Final = 40402
INSTANCE_NOT_FOUND: Final = 40403
FORMAT_MISMATCH: Final = 40601
INSTANCE_EXISTS: Final = 40902
NO_PAYLOAD_VALUE: Final = 42209
NO_JSON_VALUE: Final = 42208
INVALID_SCHEMA: Final = 42205
UNSERIALIZABLE: Final = 42207
KEY_SCHEMA_MISSING: Final = 42201
VALUE_SCHEMA_MISSING: Final = 42202
INVALID_REQUEST: Final = 422
FORBIDDEN: Final = 40301
UNAUTHORIZED: Final = 40101
KAFKA_ERROR: Final = 50002
TOO_MANY: Final = 42901
DIGITS: Final = 10  # of a number in a path or a query
T = TypeVar("T")

if TYPE_CHECKING:
    from trilogue.gateway.http.kafka_rest.schema_lookup import SchemaLookup

CODES: Final[dict[int, int]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: TOPIC_NOT_FOUND,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 42202,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: FORBIDDEN,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: FORBIDDEN,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: FORBIDDEN,
    ErrorCode.TOPIC_ALREADY_EXISTS: 40002,
    ErrorCode.INVALID_PARTITIONS: 40002,
    ErrorCode.INVALID_REPLICATION_FACTOR: 40002,
    ErrorCode.INVALID_CONFIG: 40002,
    ErrorCode.POLICY_VIOLATION: 40002,
}


class RestError(Exception):
    """An error with a code: an HTTP status, or one and two digits more."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def error_of(problem: ClientError) -> RestError:
    """Return the error of the proxy for one of the client inside."""
    if isinstance(problem, AuthenticationFailed):
        return RestError(UNAUTHORIZED, str(problem))
    if isinstance(problem, KafkaError):
        return RestError(CODES.get(problem.code, KAFKA_ERROR), str(problem))
    if isinstance(problem, TimedOut):
        return RestError(50003, str(problem))
    return RestError(KAFKA_ERROR, str(problem))


class RestRequest:
    """One request: its path, its body, and the client that it is served by."""

    __slots__ = ("body", "client", "http", "params", "schemas")

    def __init__(
        self, http: Request, body: bytes, client: RestClient, schemas: SchemaLookup
    ) -> None:
        self.http = http
        self.body = body
        self.client = client
        self.schemas = schemas
        self.params: dict[str, str] = {
            name: text.replace(SLASH, "/") for name, text in http.path_params.items()
        }

    @property
    def principal(self) -> Principal:
        """Who sent the request."""
        principal: Principal = self.http.scope["access"].principal
        return principal

    def json(self, kind: type[T]) -> T:
        """Return the body as JSON of this type; raises RestError 422."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise RestError(INVALID_REQUEST, f"the body cannot be read: {problem}") from problem

    def number(self, name: str) -> int:
        """Return a number of the path; raises RestError 404."""
        text = self.params[name]
        if not (text.isascii() and text.isdigit() and len(text) <= DIGITS):
            raise RestError(404, f"HTTP 404 Not Found: {text[:40]} is no number")
        return int(text)

    def query_number(self, name: str, default: int, most: int) -> int:
        """Return a number of the query, at most `most`; raises RestError 422."""
        text = self.http.query_params.get(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) <= DIGITS):
            raise RestError(INVALID_REQUEST, f"{name} is a number")
        return min(int(text), most)


class RestReply(msgspec.Struct, frozen=True):
    """A reply with a media type, a status or headers of its own; None as content is no body."""

    content: Any
    media_type: str = ""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class RestStream(msgspec.Struct, frozen=True):
    """A reply whose lines are sent as they come."""

    lines: AsyncGenerator[bytes, None]
    media_type: str


class RestRoute(msgspec.Struct, frozen=True):
    """One path: its method and its handler, whose result becomes JSON; None is 204."""

    method: str
    path: str
    handler: Callable[[RestRequest], Awaitable[Any]]
    streams: bool = False  # the handler reads the body itself, and may return a RestStream
