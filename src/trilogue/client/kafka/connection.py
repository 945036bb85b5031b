"""A Kafka connection: correlation ids, version negotiation, responses in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, NamedTuple

from trilogue.client.connection import Dial, FrameConnection
from trilogue.client.errors import ConnectionLost, ServerUnreachable, Unsupported
from trilogue.client.kafka.errors import AuthenticationFailed, ResponseTooLarge
from trilogue.client.kafka.security import Security
from trilogue.wire.errors import FrameTooLarge, WireError
from trilogue.wire.frames import BUSY_CAPACITY
from trilogue.wire.kafka.api import MESSAGES, NAMES
from trilogue.wire.kafka.codec.compile import decoder, gatherer
from trilogue.wire.kafka.codec.header import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from trilogue.wire.kafka.codec.schema import table
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from trilogue.wire.kafka.security.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

log = logging.getLogger("trilogue.client.kafka")
API_VERSIONS_KEY = 18
HANDSHAKE_KEY = 17
AUTHENTICATE_KEY = 36
LIFE_SHARE = 0.8  # of a session, after which the client logs in again
IN_CLEAR = Security()
TRIED_FIRST = 3
CONNECT_S = 10.0
"""The default time for opening a connection."""
Buffer = bytes | bytearray | memoryview


class _PendingRequest(NamedTuple):
    correlation_id: int
    key: int
    version: int
    answer: asyncio.Future[Any]
    timeout_s: float
    sent_at: float


class KafkaConnection:
    """One connection to one node. Many requests may be in flight; responses come in their order.

    A response that does not come in time, or that cannot be read, closes the connection: the ones
    after it could not be read either. A request's time begins when there is no other before it.

    A session that ends by itself is renewed on the same connection before that (KIP-368): requests
    are held while the login runs, and sent after it.
    """

    def __init__(
        self,
        client_id: str,
        timeout_s: float = 30.0,
        connect_timeout_s: float = CONNECT_S,
        security: Security = IN_CLEAR,
        dial: Dial | None = None,
    ) -> None:
        self._security = security
        self._dial = dial
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connect_timeout_s = min(timeout_s, connect_timeout_s)
        self._frames = FrameConnection(self._on_frame, self._on_lost)
        self._waiting: deque[_PendingRequest] = deque()
        self._correlation_id = 0
        self._watch: asyncio.TimerHandle | None = None
        self._received_at = 0.0
        self._reason: ConnectionLost | None = None
        self._address = ""
        self._session_timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._held: list[tuple[list[Buffer], _PendingRequest | None]] | None = None
        self.served: dict[int, tuple[int, int]] = {}
        """API key to the lowest and highest version that the server speaks."""

    @property
    def is_open(self) -> bool:
        """Whether requests may be sent."""
        return self._frames.is_open

    @property
    def is_backed_up(self) -> bool:
        """Whether the server reads more slowly than we write."""
        return self._frames.is_backed_up

    def limit_frames(self, limit_bytes: int) -> None:
        """Accept no longer response from now on: it ends the connection with ResponseTooLarge."""
        self._frames.frame_limit = limit_bytes

    async def drained(self) -> None:
        """Wait until the server has read most of what was written, or the connection is lost."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._frames.drained()
        except TimeoutError:
            self._reason = ConnectionLost("the server reads nothing")
            self._frames.abort()

    async def open(self, host: str, port: int) -> None:
        """Connect within the time-outs; raises ConnectionLost.

        The first request learns which API versions the server serves (KIP-511: version 0 is tried
        after error 35).
        """
        self._address = f"{host}:{port}"
        tls = self._security.make_context()
        await self._frames.open(host, port, self._connect_timeout_s, tls, self._dial)
        request = ApiVersionsRequest(client_software_name="trilogue", client_software_version="0.1")
        try:
            answer: ApiVersionsResponse = await self.start(API_VERSIONS_KEY, TRIED_FIRST, request)
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                answer = await self.start(API_VERSIONS_KEY, 0, request)
            rows = answer.api_keys
            self.served = {row.api_key: (row.min_version, row.max_version) for row in rows}
            if self._security.has_login:
                await self._log_in()
        except BaseException:  # cancelled, too: nothing else would close the connection
            self.close()
            self._frames.abort()
            raise

    async def _log_in(self) -> None:
        """Log in by SASL, for the first time or again; raises AuthenticationFailed."""
        mechanism = self._security.mechanism
        chosen = await self._start_now(HANDSHAKE_KEY, 1, SaslHandshakeRequest(mechanism=mechanism))
        if chosen.error_code:
            names = ", ".join(chosen.mechanisms) or "none"
            raise AuthenticationFailed(
                f"{self._address} does not accept {mechanism}; it accepts {names}"
            )
        exchange = self._security.make_exchange()
        token = exchange.first()
        lifetime_ms = 0
        while not exchange.is_done:
            request = SaslAuthenticateRequest(auth_bytes=token)
            version = self.version(AUTHENTICATE_KEY)
            answer = await self._start_now(AUTHENTICATE_KEY, version, request)
            if answer.error_code:
                raise AuthenticationFailed(
                    f"{self._address}: {answer.error_message or 'the login failed'}: check "
                    "sasl_username and sasl_password (or the token)"
                )
            token = exchange.answer(bytes(answer.auth_bytes))
            lifetime_ms = answer.session_lifetime_ms
        if lifetime_ms > 0:
            delay_s = LIFE_SHARE * lifetime_ms / 1_000
            loop = asyncio.get_running_loop()
            self._session_timer = loop.call_later(delay_s, self._begin_renewal)

    def _begin_renewal(self) -> None:
        if self.is_open:
            self._held = []
            self._renewal = asyncio.get_running_loop().create_task(self._renew_session())

    async def _renew_session(self) -> None:
        """Log in again, then send what was held; a login that fails closes the connection."""
        try:
            await self._log_in()
        except Exception as problem:  # noqa: BLE001 - a function for tokens may raise anything
            if self.is_open:
                self._reason = ConnectionLost(f"the login could not be renewed: {problem}")
                self.close()
                self._frames.abort()
            return
        held, self._held = self._held or [], None
        for parts, pending in held:
            self._send(parts, pending)

    def version(self, key: int, most: int | None = None) -> int:
        """The newest version of API `key` that both sides speak."""
        ours = table(MESSAGES[key][0])
        low, high = self.served.get(key, (0, -1))
        best = min(high, ours.last if most is None else min(most, ours.last))
        if best < max(low, ours.first):
            raise Unsupported(
                f"the server does not serve API {key}"
                if high < 0
                else f"the server serves API {key} from v{low} to v{high}"
            )
        return best

    async def request(
        self, message: Any, *, most: int | None = None, timeout_s: float | None = None
    ) -> Any:
        """Send one request in the best common version and wait for its answer."""
        key = table(type(message)).key
        return await self.start(key, self.version(key, most), message, timeout_s)

    def start(
        self, key: int, version: int, message: Any, timeout_s: float | None = None
    ) -> asyncio.Future[Any]:
        """Send a request; the future holds the decoded answer, or what went wrong.

        It is sent at once, or when the login that runs is complete.
        """
        if self._held is None:
            return self._start_now(key, version, message, timeout_s)
        parts = self._encode(key, version, message)
        pending = self._make_pending(key, version, timeout_s)
        self._held.append((parts, pending))
        return pending.answer

    def write(self, key: int, version: int, message: Any) -> None:
        """Send a request without a response (acks=0)."""
        parts = self._encode(key, version, message)
        if self._held is None:
            self._frames.send(parts)
        else:
            # Copies: the caller uses its buffers again.
            self._held.append(([bytes(part) for part in parts], None))

    def _start_now(
        self, key: int, version: int, message: Any, timeout_s: float | None = None
    ) -> asyncio.Future[Any]:
        """Send a request at once, also while others are held: the login's own."""
        parts = self._encode(key, version, message)
        pending = self._make_pending(key, version, timeout_s)
        self._frames.send(parts)
        self._wait_for(pending)
        return pending.answer

    def _send(self, parts: list[Buffer], pending: _PendingRequest | None) -> None:
        """Send a request that was held; one that cannot be sent fails."""
        try:
            self._frames.send(parts)
        except ConnectionLost as problem:
            if pending is not None:
                _fail(pending.answer, self._lost_error(problem))
            return
        if pending is not None:
            self._wait_for(pending._replace(sent_at=asyncio.get_running_loop().time()))

    def _make_pending(self, key: int, version: int, timeout_s: float | None) -> _PendingRequest:
        """Return the entry of the request that was encoded last."""
        loop = asyncio.get_running_loop()
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        return _PendingRequest(
            self._correlation_id, key, version, loop.create_future(), limit_s, loop.time()
        )

    def _wait_for(self, pending: _PendingRequest) -> None:
        self._waiting.append(pending)
        if len(self._waiting) == 1:
            self._watch_until(pending.sent_at + pending.timeout_s)

    def _encode(self, key: int, version: int, message: Any) -> list[Buffer]:
        """Return the frame of a request with the next correlation id."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        head = bytearray(4)
        encode_request_header(
            head, RequestHeader(key, version, self._correlation_id, self._client_id)
        )
        parts = gatherer(type(message), version)(message, head)
        size = sum(map(len, parts)) - 4
        head[0:4] = size.to_bytes(4, "big")
        return parts

    def close(self) -> None:
        """Close; pending requests fail with ConnectionLost."""
        if self._session_timer is not None:
            self._session_timer.cancel()
        self._frames.close()

    async def wait_closed(self) -> None:
        """Wait until the socket of a closed connection is closed."""
        await self._frames.wait_closed()

    def _look(self) -> None:
        """Whether the oldest request has waited too long; one look for all of them."""
        self._watch = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        oldest = self._waiting[0]
        deadline = max(oldest.sent_at, self._received_at) + oldest.timeout_s
        if deadline <= loop.time():
            self._reason = ServerUnreachable(
                f"{self._address} did not answer {NAMES[oldest.key][0]} "
                f"within {oldest.timeout_s:g} s"
            )
            self._frames.abort()
        else:
            self._watch = loop.call_at(deadline, self._look)

    def _watch_until(self, deadline: float) -> None:
        """Look then, if not before; who looks too early looks again."""
        if self._watch is not None:
            if self._watch.when() <= deadline:
                return
            self._watch.cancel()
        self._watch = asyncio.get_running_loop().call_at(deadline, self._look)

    def _on_frame(self, frame: memoryview) -> None:
        if len(frame) > BUSY_CAPACITY:  # its buffer would be released anyway
            body = self._frames.keep_frame(frame)
        else:
            # One copy: answers hold views of it, while the receive buffer is used again.
            body = memoryview(bytes(frame))
        if not self._waiting:
            raise WireError("a response without a request")
        waiting = self._waiting.popleft()
        if self._waiting:
            self._received_at = now = asyncio.get_running_loop().time()
            self._watch_until(now + self._waiting[0].timeout_s)
        try:
            correlation_id, position = decode_response_header(body, waiting.key, waiting.version)
            if correlation_id != waiting.correlation_id:
                raise WireError(f"answer {correlation_id} for request {waiting.correlation_id}")
            answer = self._decode(waiting, body, position)
        except Exception as problem:
            # To the caller, which may retry, this is a connection that broke before the answer.
            name = NAMES[waiting.key][0]
            self._reason = ConnectionLost(f"the answer to {name} cannot be read: {problem!r}")
            log.exception("kafka.bad-answer api=%s version=%d", name, waiting.version)
            _fail(waiting.answer, self._reason)
            self._frames.abort()
            return
        if not waiting.answer.done():  # its owner may have given up
            waiting.answer.set_result(answer)

    @staticmethod
    def _decode(waiting: _PendingRequest, body: memoryview, position: int) -> Any:
        response = MESSAGES[waiting.key][1]
        version = waiting.version
        refused = waiting.key == API_VERSIONS_KEY and version > 0
        if refused and bytes(body[position : position + 2]) == b"\0\x23":
            version = 0  # error 35 is always answered in v0
        return decoder(response, version)(body, position)[0]

    def _on_lost(self, problem: Exception) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        waiting, self._waiting = self._waiting, deque()
        held, self._held = self._held or [], None
        for one in (*waiting, *(pending for _, pending in held if pending is not None)):
            _fail(one.answer, self._lost_error(problem))

    def _lost_error(self, problem: Exception) -> ConnectionLost:
        if isinstance(self._reason, ServerUnreachable):
            return ServerUnreachable(str(self._reason))
        if isinstance(problem, FrameTooLarge):
            return ResponseTooLarge(f"{self._address}: {problem}")
        return ConnectionLost(f"{self._address}: {self._reason or problem}")


def _fail(answer: asyncio.Future[Any], problem: Exception) -> None:
    if not answer.done():
        answer.set_exception(problem)
