"""The HTTP interface of `trilogue serve --test`: rules, recordings, time, for any language.

Bodies and replies are JSON; an error is `{"error": "..."}` with status 400 for a wrong request, 404
for what does not exist, 408 where nothing came in time, 409 where the broker cannot do it.
docs/reference/test-server.md has all paths.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from trilogue.client.kafka.consumer.message import Message
from trilogue.client.kafka.errors import KafkaError, TimedOut
from trilogue.testing.embedded_broker import EmbeddedBroker
from trilogue.testing.faults import REQUESTS_MAX, Fault, Request

BODY_BYTES_MAX = 64 << 10
WAIT_S_MAX = 600.0


class ControlError(Exception):
    """A request that is refused: the status of the reply and its text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ControlRequest(NamedTuple):
    """What a handler gets."""

    path: Mapping[str, Any]
    query: Mapping[str, str]
    body: dict[str, Any]


Handler = Callable[[ControlRequest], Any]


class TestControl:
    """The handlers. Each runs in a thread of its own, since it waits for the broker's thread."""

    __test__ = False  # for pytest

    def __init__(self, broker: EmbeddedBroker, addresses: Callable[[], Mapping[str, str]]) -> None:
        self._broker = broker
        self._addresses = addresses
        self._ids = itertools.count(1)
        self._rules: dict[int, Fault] = {}

    def app(self) -> Starlette:
        """Return the application."""
        routes: list[tuple[str, str, Handler, int]] = [
            ("GET", "/test", lambda _: self._addresses(), 200),
            ("GET", "/test/rules", self._list_rules, 200),
            ("POST", "/test/rules", self._add_rule, 201),
            ("DELETE", "/test/rules", self._clear_rules, 204),
            ("GET", "/test/rules/{id:int}", self._show_rule, 200),
            ("DELETE", "/test/rules/{id:int}", self._remove_rule, 204),
            ("GET", "/test/recordings", self._list_recordings, 200),
            ("DELETE", "/test/recordings", self._forget_recordings, 204),
            ("GET", "/test/messages/{topic:path}", self._list_messages, 200),
            ("GET", "/test/clock", self._show_clock, 200),
            ("POST", "/test/clock", self._advance_clock, 200),
            ("POST", "/test/disk", self._set_disk, 200),
            ("POST", "/test/crash", lambda _: self._broker.crash(), 204),
            ("POST", "/test/restart", lambda _: self._broker.restart(), 204),
            ("POST", "/test/reset", self._reset, 204),
        ]
        return Starlette(
            routes=[
                Route(path, _endpoint(handler, status), methods=[method])
                for method, path, handler, status in routes
            ],
            exception_handlers={404: _reply_unknown, 405: _reply_unknown},
        )

    # -- rules

    def _add_rule(self, request: ControlRequest) -> dict[str, Any]:
        fields = dict(request.body)
        action = fields.pop("action", None)
        if action is None:
            raise ValueError('a rule has an action: {"action": "error", ...}')
        number = next(self._ids)
        self._rules[number] = self._broker.add_fault(action, **fields)
        return _describe_rule(number, self._rules[number])

    def _list_rules(self, _: ControlRequest) -> list[dict[str, Any]]:
        return [_describe_rule(number, rule) for number, rule in list(self._rules.items())]

    def _show_rule(self, request: ControlRequest) -> dict[str, Any]:
        return _describe_rule(request.path["id"], self._find_rule(request))

    def _remove_rule(self, request: ControlRequest) -> None:
        self._broker.remove_fault(self._find_rule(request))
        self._rules.pop(request.path["id"], None)

    def _clear_rules(self, _: ControlRequest) -> None:
        self._broker.clear_faults()
        self._rules.clear()

    def _find_rule(self, request: ControlRequest) -> Fault:
        rule = self._rules.get(request.path["id"])
        if rule is None:
            raise ControlError(404, f"there is no rule {request.path['id']}")
        return rule

    # -- what clients sent

    def _list_recordings(self, request: ControlRequest) -> list[dict[str, Any]]:
        """Return the requests that match; with `wait` seconds, when there are `count` of them."""
        query = request.query
        _check_names(query, {"protocol", "request", "topic", "client_id", "count", "wait"})

        def matches(each: Request) -> bool:
            return (
                query.get("protocol", each.protocol) == each.protocol
                and query.get("request", each.name) == each.name
                and query.get("client_id", each.client_id) == each.client_id
                and ("topic" not in query or query["topic"] in each.topics)
            )

        wait_s = _number(query, "wait", 0.0, WAIT_S_MAX)
        if wait_s:
            count = int(_number(query, "count", 1, REQUESTS_MAX))
            self._broker.wait_for(matches, count=count, timeout_s=wait_s)
        return [_describe_request(each) for each in self._broker.requests if matches(each)]

    def _forget_recordings(self, _: ControlRequest) -> None:
        self._broker.forget_requests()

    def _list_messages(self, request: ControlRequest) -> list[dict[str, Any]]:
        topic = request.path["topic"]
        try:
            return [_describe_message(each) for each in self._broker.messages(topic)]
        except TimedOut as error:
            raise ControlError(408, str(error)) from error
        except KafkaError as error:
            raise ControlError(404, f"{topic}: {error}") from error

    # -- the broker

    def _show_clock(self, _: ControlRequest) -> dict[str, int]:
        return {"now_ms": self._broker.clock.now_ms()}

    def _advance_clock(self, request: ControlRequest) -> dict[str, int]:
        seconds = request.body.get("advance")
        if request.body.keys() != {"advance"} or not isinstance(seconds, int | float):
            raise ValueError('expected {"advance": SECONDS}')
        self._broker.clock.advance(seconds)
        return self._show_clock(request)

    def _set_disk(self, request: ControlRequest) -> dict[str, bool]:
        is_full = request.body.get("full")
        if request.body.keys() != {"full"} or not isinstance(is_full, bool):
            raise ValueError('expected {"full": true} or {"full": false}')
        if is_full:
            self._broker.fill_disk()
        else:
            self._broker.free_disk()
        return {"full": is_full}

    def _reset(self, request: ControlRequest) -> None:
        keeps = request.body.get("keep_messages", False)
        if request.body.keys() - {"keep_messages"} or not isinstance(keeps, bool):
            raise ValueError('expected no body, or {"keep_messages": true}')
        try:
            self._broker.reset(keep_messages=keeps)
        except ValueError as error:
            raise ControlError(409, str(error)) from error
        self._rules.clear()


def _endpoint(handler: Handler, status: int) -> Callable[[HttpRequest], Any]:
    async def serve(request: HttpRequest) -> Response:
        try:
            body = await _read_body(request)
            control = ControlRequest(request.path_params, request.query_params, body)
            result = await run_in_threadpool(handler, control)
        except ControlError as error:
            return _reply({"error": str(error)}, error.status)
        except ValueError as error:
            return _reply({"error": str(error)}, 400)
        except TimeoutError as error:
            return _reply({"error": str(error) or "the broker does not respond"}, 408)
        except RuntimeError as error:  # the broker is stopped
            return _reply({"error": str(error)}, 409)
        return Response(status_code=204) if status == 204 else _reply(result, status)

    return serve


async def _read_body(request: HttpRequest) -> dict[str, Any]:
    """Return the JSON object of a request, {} without a body; ValueError, ControlError."""
    received = bytearray()
    async for piece in request.stream():
        received += piece
        if len(received) > BODY_BYTES_MAX:
            raise ControlError(413, f"a body has at most {BODY_BYTES_MAX} bytes")
    if not received.strip():
        return {}
    try:
        return msgspec.json.decode(bytes(received), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ValueError(f"the body is no JSON object: {error}") from None


async def _reply_unknown(request: HttpRequest, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return _reply({"error": f"{request.method} {request.url.path} does not exist"}, status)


def _reply(content: object, status: int) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _check_names(query: Mapping[str, str], known: set[str]) -> None:
    for name in query:
        if name not in known:
            raise ValueError(f"there is no parameter {name!r}, but {', '.join(sorted(known))}")


def _number(query: Mapping[str, str], name: str, default: float, most: float) -> float:
    try:
        value = float(query.get(name, default))
    except ValueError:
        raise ValueError(f"{name} is a number") from None
    if not 0 <= value <= most:  # a NaN too
        raise ValueError(f"{name} is from 0 to {most:g}")
    return value


def _describe_rule(number: int, rule: Fault) -> dict[str, Any]:
    return {"id": number, **msgspec.to_builtins(rule)}


def _describe_request(request: Request) -> dict[str, Any]:
    described = msgspec.to_builtins(request)
    described["request"] = described.pop("name")
    return dict(described)


def _describe_message(message: Message) -> dict[str, Any]:
    """Return a message: bytes in base64, and as text where they are UTF-8."""
    return {
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp,
        "key": _describe_bytes(message.key),
        "value": _describe_bytes(message.value),
        "headers": [
            {"name": name, "value": _describe_bytes(value)} for name, value in message.headers
        ],
    }


def _describe_bytes(content: bytes | None) -> dict[str, str] | None:
    if content is None:
        return None
    described = {"base64": base64.b64encode(content).decode()}
    with contextlib.suppress(UnicodeDecodeError):
        described["text"] = content.decode()
    return described
