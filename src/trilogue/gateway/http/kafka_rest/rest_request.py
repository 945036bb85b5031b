"""One request of the REST proxy: its JSON, and its client of Kafka's protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from trilogue.broker.access.authorizer import Principal
from trilogue.gateway.http.escaped_paths import SLASH
from trilogue.gateway.http.kafka_rest.clients import RestClient
from trilogue.gateway.http.kafka_rest.rest_errors import INVALID_REQUEST, RestError
from trilogue.gateway.http.kafka_rest.schema_lookup import SchemaLookup

DIGITS: Final = 10  # of a number in a path or a query
T = TypeVar("T")


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
        """The principal that sent the request."""
        principal: Principal = self.http.scope["access"].principal
        return principal

    def json(self, kind: type[T]) -> T:
        """Return the body as JSON of this type; raises RestError 422.

        Numbers may be texts, as Confluent's proxy (Jackson) takes them.
        """
        try:
            return msgspec.json.decode(self.body, type=kind, strict=False)
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
