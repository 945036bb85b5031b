"""Rules for faults: which requests of clients fail, how, and how often."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from enum import Enum

import msgspec

REQUESTS_MAX = 100_000  # recorded; the oldest are forgotten
OWN_CLIENT = "trilogue-testing"  # reads for the test: not recorded, and meets no faults


class Action(Enum):
    """What happens to a request that a fault applies to."""

    ERROR = "error"  # the client gets an error of its protocol; the broker never sees the request
    DELAY = "delay"  # the broker gets the request later, and those that follow on its connection
    CUT = "cut"  # the connection closes; the broker never sees the request
    DROP_RESPONSE = "drop-response"  # the broker handles the request, then the connection closes
    CRASH = "crash"  # the broker ends without seeing the request, and starts again
    FULL_DISK = "full-disk"  # from this request on, for `seconds` (0: until a test frees it)


class Request(msgspec.Struct, frozen=True):
    """A request of a client, as it came."""

    protocol: str  # kafka, pulsar, tubemq
    name: str  # Produce, SEND, sendMessageP2B
    topics: tuple[str, ...] = ()  # topics that it names, as the client spells them
    client_id: str = ""
    version: int = 0  # of a Kafka request
    correlation_id: int = 0  # Kafka's, Pulsar's request id or sequence id, TubeMQ's serial number
    connection: int = 0  # a number for each connection
    received_at: float = 0.0  # monotonic time in s


class Fault(msgspec.Struct):
    """A rule: the next `count` requests that match, after `skip` others, get the action."""

    action: Action
    protocol: str | None = None  # None: of any
    request: str | None = None
    topic: str | None = None
    count: int | None = 1  # None: all
    skip: int = 0
    error: str = ""  # a name: NOT_LEADER_OR_FOLLOWER, ServiceNotReady; TubeMQ's are numbers
    seconds: float = 0.0  # of a delay, of a full disk; until a dropped response's connection closes
    applied: int = 0  # how often it has been applied

    def matches(self, request: Request) -> bool:
        """Whether the rule names this request."""
        return (
            self.protocol in {None, request.protocol}
            and self.request in {None, request.name}
            and (self.topic is None or self.topic in request.topics)
        )


class FaultTable:
    """The rules and the recorded requests of a broker. Threads of tests and the broker's use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._requests: list[Request] = []
        self._changed = threading.Condition(self._lock)
        self._numbers = itertools.count(1)

    def next_connection(self) -> int:
        """Return the number of a new connection."""
        return next(self._numbers)

    def add(self, fault: Fault) -> Fault:
        """Add a rule; of several that match the one that was added first applies."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def rules(self) -> list[Fault]:
        """Return all rules, in their order."""
        with self._lock:
            return list(self._faults)

    def remove(self, fault: Fault) -> None:
        """Remove this very rule, if it is there."""
        with self._lock:
            self._faults[:] = [each for each in self._faults if each is not fault]

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self._faults.clear()

    def record(self, request: Request) -> Fault | None:
        """Record a request; return the rule that applies to it."""
        if request.client_id == OWN_CLIENT:
            return None
        with self._lock:
            self._requests.append(request)
            del self._requests[:-REQUESTS_MAX]
            self._changed.notify_all()
            return next(filter(None, (_apply(each, request) for each in self._faults)), None)

    def forget_requests(self) -> None:
        """Remove what was recorded."""
        with self._lock:
            self._requests.clear()

    def requests(self) -> list[Request]:
        """Return what was recorded."""
        with self._lock:
            return list(self._requests)

    def wait_for(
        self, condition: Callable[[Request], bool], timeout_s: float, *, count: int = 1
    ) -> Request:
        """Return the `count`th recorded request that fulfils the condition; TimeoutError."""
        found: list[Request] = []

        def look() -> bool:
            found[:] = filter(condition, self._requests)
            return len(found) >= count

        with self._lock:
            if not self._changed.wait_for(look, timeout_s):
                names = sorted({f"{each.protocol} {each.name}" for each in self._requests})
                raise TimeoutError(f"no such request within {timeout_s} s; there were: {names}")
        return found[count - 1]


def _apply(fault: Fault, request: Request) -> Fault | None:
    if not fault.matches(request):
        return None
    if fault.skip:
        fault.skip -= 1
        return None
    if fault.count is not None and fault.applied >= fault.count:
        return None
    fault.applied += 1
    return fault
