"""A Kafka connection: requests numbered, versions agreed on, answers matched in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, NamedTuple

from trilogue.client.connection import FrameConnection
from trilogue.client.errors import ConnectionLost, Unsupported
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.api_versions import ApiVersionsRequest, ApiVersionsResponse
from trilogue.wire.kafka.compile import decoder, gatherer
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.header import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from trilogue.wire.kafka.schema import table

log = logging.getLogger("trilogue.client.kafka")
API_VERSIONS_KEY = 18
TRIED_FIRST = 3
CONNECT_S = 10.0
"""How long a server may take to be there; who has other servers asks them then."""


class _Waiting(NamedTuple):
    correlation_id: int
    key: int
    version: int
    answer: asyncio.Future[Any]
    timeout_s: float
    sent_at: float


class KafkaConnection:
    """One connection to one node. Many requests may be under way; answers come in their order.

    An answer that does not come in time costs the connection: nobody can get past it. So does one
    that cannot be read. A request's time begins when there is no other before it.
    """

    def __init__(
        self, client_id: str, timeout_s: float = 30.0, connect_timeout_s: float = CONNECT_S
    ) -> None:
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connect_timeout_s = min(timeout_s, connect_timeout_s)
        self._frames = FrameConnection(self._on_frame, self._on_lost)
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._watch: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._reason: ConnectionLost | None = None
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

    async def drained(self) -> None:
        """Wait until the server has read most of what was written, or the connection is lost."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._frames.drained()
        except TimeoutError:
            self._reason = ConnectionLost("the server reads nothing")
            self._frames.abort()

    async def open(self, host: str, port: int) -> None:
        """Connect and learn which versions the server speaks (KIP-511: retry in v0 on error 35)."""
        await self._frames.open(host, port, self._connect_timeout_s)
        asked = ApiVersionsRequest(client_software_name="trilogue", client_software_version="0.1")
        try:
            answer: ApiVersionsResponse = await self.start(API_VERSIONS_KEY, TRIED_FIRST, asked)
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                answer = await self.start(API_VERSIONS_KEY, 0, asked)
        except BaseException:  # cancelled, too: nobody would know of it any more
            self.close()
            raise
        self.served = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

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
        """Send now; the future holds the decoded answer, or what went wrong."""
        correlation_id = self.write(key, version, message)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        now = loop.time()
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        self._waiting.append(_Waiting(correlation_id, key, version, answer, limit_s, now))
        if len(self._waiting) == 1:
            self._watch_until(now + limit_s)
        return answer

    def write(self, key: int, version: int, message: Any) -> int:
        """Send a request that nobody answers (acks=0); its number."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        head = bytearray(4)
        encode_request_header(
            head, RequestHeader(key, version, self._correlation_id, self._client_id)
        )
        parts = gatherer(type(message), version)(message, head)
        size = sum(map(len, parts)) - 4
        head[0:4] = size.to_bytes(4, "big")
        self._frames.send(parts)
        return self._correlation_id

    def close(self) -> None:
        """Close; whoever waits gets ConnectionLost."""
        self._frames.close()

    def _look(self) -> None:
        """Whether the oldest request has waited too long; one look for all of them."""
        self._watch = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        oldest = self._waiting[0]
        deadline = max(oldest.sent_at, self._heard_at) + oldest.timeout_s
        if deadline <= loop.time():
            self._reason = ConnectionLost(f"no answer to API {oldest.key} in time")
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
        # One copy: answers hold views of it, while the receive buffer is used again.
        body = memoryview(bytes(frame))
        if not self._waiting:
            raise WireError("an answer that nobody asked for")
        waiting = self._waiting.popleft()
        if self._waiting:
            self._heard_at = now = asyncio.get_running_loop().time()
            self._watch_until(now + self._waiting[0].timeout_s)
        try:
            correlation_id, position = decode_response_header(body, waiting.key, waiting.version)
            if correlation_id != waiting.correlation_id:
                raise WireError(f"answer {correlation_id} for request {waiting.correlation_id}")
            answer = self._decode(waiting, body, position)
        except WireError as problem:
            # For who waits, and asks again, it is as if the connection had broken before.
            self._reason = ConnectionLost(
                f"an answer to API {waiting.key} cannot be read: {problem}"
            )
            log.warning("kafka.bad-answer api=%d version=%d problem=%s", *waiting[1:3], problem)
            _fail(waiting.answer, self._reason)
            self._frames.abort()
            return
        if not waiting.answer.done():  # its owner may have given up
            waiting.answer.set_result(answer)

    @staticmethod
    def _decode(waiting: _Waiting, body: memoryview, position: int) -> Any:
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
        for one in waiting:
            _fail(one.answer, ConnectionLost(str(self._reason or problem)))


def _fail(answer: asyncio.Future[Any], problem: Exception) -> None:
    if not answer.done():
        answer.set_exception(problem)
