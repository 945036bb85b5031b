"""A proxy that breaks a Kafka connection at one request: at the step that a rule names.

Each client has a rule of its own, found by its client id, so that many can be tried at one server
at the same time. A rule names a kind of request, which of them is met, and what is done then:

    request lost   it does not arrive, and the connection is reset
    answer lost    it is done, and the connection is reset instead of its answer
    all lost       it is done, and all connections of this client are reset
    request held   nothing of this connection arrives any more, and nothing ends it
    answer held    it is done, and nothing comes back any more, and nothing ends it
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum

from tests.client.proxy import Ends, Proxy


class How(Enum):
    """What is done at the step."""

    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    ALL_LOST = "all lost"
    REQUEST_HELD = "request held"
    ANSWER_HELD = "answer held"


@dataclass(eq=False)
class Rule:
    """What is done to one client, and when; `met` once it was."""

    key: int
    number: int
    how: How
    met: asyncio.Event = field(default_factory=asyncio.Event)
    links: set[Link] = field(default_factory=set)


class Link:
    """One connection of a client, and the one that it is handed on by."""

    def __init__(self, rules: dict[str, Rule], client: Ends, server: Ends) -> None:
        self._rules = rules
        self._client, self._server = client, server
        self._rule: Rule | None = None
        self._lost_answer: bytes | None = None
        self._held = asyncio.Event()

    async def run(self) -> None:
        ways = [asyncio.ensure_future(one) for one in (self._ahead(), self._back())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.reset()  # before anything is awaited: the cancellation may come a second time
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def reset(self) -> None:
        for _, writer in (self._client, self._server):
            writer.transport.abort()

    async def _ahead(self) -> None:
        while (frame := await read_frame(self._client[0])) is not None:
            if self._is_met(frame[4:]):
                assert self._rule is not None
                if self._rule.how is How.REQUEST_LOST:
                    return
                if self._rule.how is How.REQUEST_HELD:
                    await self._hold()
                self._lost_answer = frame[8:12]
            self._server[1].write(frame)

    async def _back(self) -> None:
        while (frame := await read_frame(self._server[0])) is not None:
            if frame[4:8] == self._lost_answer:
                assert self._rule is not None
                if self._rule.how is How.ANSWER_HELD:
                    await self._hold()
                if self._rule.how is How.ALL_LOST:
                    for link in self._rule.links:
                        link.reset()
                return
            self._client[1].write(frame)

    async def _hold(self) -> None:
        await self._held.wait()  # for ever: until the proxy ends, or the client goes

    def _is_met(self, body: bytes) -> bool:
        """Whether this is the request that the rule of its client is about."""
        size = int.from_bytes(body[8:10], "big")
        rule = self._rules.get(body[10 : 10 + size].decode())
        if rule is None:
            return False
        self._rule = rule
        rule.links.add(self)
        if rule.met.is_set() or int.from_bytes(body[:2], "big") != rule.key:
            return False
        rule.number -= 1
        if rule.number == 0:
            rule.met.set()
        return rule.number == 0


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame with its length; None at the end of the connection."""
    try:
        head = await reader.readexactly(4)
        return head + await reader.readexactly(int.from_bytes(head, "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class Breaker(Proxy):
    """The proxy."""

    def __init__(self, port: int, target: str, rules: dict[str, Rule]) -> None:
        super().__init__(port, target)
        self._rules = rules

    async def hand_on(self, client: Ends, server: Ends) -> None:
        await Link(self._rules, client, server).run()
