"""Segments in object storage: the port, its errors and retries, and the keys of objects.

A segment that was merged may lie in S3-compatible storage or in a directory, with the same bytes as
in its file, under

    <prefix of the URL>/<cluster id, hex>/segments/<name of the segment>

Objects are never overwritten: ids of segments are never reused, and each put is conditional on the
key being absent (If-None-Match). A lost response does no harm: the next try finds the object,
compares its size, its header and its footer, which has the checksum of every block, with those of
the file, and accepts it.

No storage failure ends the broker. Unavailable data raises `StorageUnavailable` for one read. A
store that does not respond delays a few threads by a few seconds; after that reads fail at once,
and one of them tries from time to time (`Breaker`), until the first success closes the breaker.

All calls block: they are made in threads of the node or in a helper process, never on the loop.
obstore_store.py has the implementation for S3 and directories; tests have one in memory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import msgspec

from trilogue.log.errors import ObjectDenied, ObjectExists, StorageUnavailable
from trilogue.log.segments.segment import HEADER

if TYPE_CHECKING:
    from random import Random

    from typing_extensions import Buffer

    from trilogue.log.segments.segment_info import SegmentInfo

log = logging.getLogger(__name__)

STORE: Final = "objects"  # value of `SegmentInfo.store` for segments in object storage
OBJECT_BYTES_MAX: Final = 5 << 30  # of one put, the limit of S3
PROOF: Final = b"This object is put again and again, and has to stay as it is.\n"
LISTED_MAX: Final = 1_000_000  # names in one listing

Result = TypeVar("Result")


class ListedObject(NamedTuple):
    """One object of a listing."""

    key: str
    size: int


class ObjectStore(Protocol):
    """A flat store of immutable objects. Keys are relative to the URL it was opened with.

    Every call is one try, bounded in time, and raises `StorageUnavailable` or a subclass.
    """

    def put(self, key: str, data: Buffer) -> None:
        """Store an object, whole and durably, or nothing; `ObjectExists` if the key is in use."""

    def read(self, key: str, position: int, size: int) -> Buffer:
        """Read a range; less than `size` bytes only at the end of the object."""

    def size(self, key: str) -> int:
        """The object's length in bytes."""

    def delete(self, key: str) -> None:
        """Remove an object; no error if it does not exist."""

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """List all objects below a prefix (a folder: `a/b` does not include `a/bc`)."""


class RetryPolicy(NamedTuple):
    """How often and how long a call is retried. Waits grow from `first_s`, with random jitter."""

    tries: int
    limit_s: float  # no further try starts after that
    first_s: float
    most_s: float


READING: Final = RetryPolicy(tries=3, limit_s=6.0, first_s=0.05, most_s=1.0)
WRITING: Final = RetryPolicy(tries=4, limit_s=30.0, first_s=0.2, most_s=5.0)


class Breaker:
    """A circuit breaker: passes all calls while the store responds, after a failure one at a time.

    `rest_s` after the n-th failure in a row grows from `first_s` to `most_s`. Until it is over all
    other calls fail at once, since a thread that waits for a dead store blocks others.
    """

    def __init__(
        self, monotonic: Callable[[], float], *, first_s: float = 0.5, most_s: float = 10.0
    ) -> None:
        self._monotonic = monotonic
        self._first_s = first_s
        self._most_s = most_s
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._reason = ""

    @property
    def is_open(self) -> bool:
        """Whether the last call failed."""
        return bool(self._failures)

    def enter(self) -> None:
        """Admit a call; raises `StorageUnavailable` while it is too early to try again."""
        if not self._failures:
            return
        with self._lock:
            now = self._monotonic()
            if self._failures and now < self._until:
                raise StorageUnavailable(f"the object store failed just now: {self._reason}")
            self._until = now + self._rest_s()  # this call tries, the others keep failing

    def succeeded(self) -> None:
        """Admit all calls."""
        if self._failures:
            with self._lock:
                self._failures = 0
            log.info("objects.answers_again")

    def failed(self, reason: str) -> None:
        """Reject calls for a while."""
        with self._lock:
            self._failures += 1
            self._until = self._monotonic() + self._rest_s()
            self._reason = reason
            is_first = self._failures == 1
        if is_first:
            log.warning("objects.do_not_answer", extra={"reason": reason})

    def _rest_s(self) -> float:
        return min(self._most_s, self._first_s * 2.0 ** min(self._failures, 30))


class ObjectCounts(msgspec.Struct):
    """Counts since the start, for metrics. Plain additions: a lost one does no harm."""

    reads: int = 0
    read_bytes: int = 0
    read_seconds: float = 0.0
    retries: int = 0
    failures: int = 0  # of calls that failed in spite of all retries


class ObjectsEnvironment(msgspec.Struct, frozen=True):
    """Clock, sleep and random numbers, passed in so that tests control them."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], object]
    random: Random


class Objects:
    """The segments of one cluster in a store, with retries. Several threads may use it at once.

    With `node_id`, that of a node of a cluster on several machines, each node has a folder: it puts
    and lists there only, and reads the segments of others in theirs.
    """

    def __init__(
        self,
        store: ObjectStore,
        cluster_id: bytes,
        around: ObjectsEnvironment,
        node_id: int | None = None,
    ) -> None:
        self.counts = ObjectCounts()
        self.breaker = Breaker(around.monotonic)
        self._store = store
        self._cluster = cluster_id.hex()
        self._node_id = node_id
        self._folder = f"{self._folder_of(node_id)}/segments"
        self._proof = f"{self._folder_of(node_id)}/is-never-overwritten"
        self._around = around
        self._is_closed = False

    def close(self) -> None:
        """Stop retrying, so that waiting calls do not delay the end of the process."""
        self._is_closed = True

    def key(self, name: str, node_id: int | None = None) -> str:
        """Return the key of a segment that a node wrote (None: this one), relative to the URL."""
        if node_id is None or self._node_id is None:
            return f"{self._folder}/{name}"
        return f"{self._folder_of(node_id)}/segments/{name}"

    def _folder_of(self, node_id: int | None) -> str:
        return self._cluster if node_id is None else f"{self._cluster}/node-{node_id}"

    def read(self, name: str, position: int, size: int, node_id: int | None = None) -> Buffer:
        """Read a range of a segment that a node wrote (None: this one), complete or not at all."""
        key, counts = self.key(name, node_id), self.counts
        began = self._around.monotonic()
        self.breaker.enter()
        try:
            data = self._try(READING, lambda: self._read(key, position, size))
        except StorageUnavailable as error:
            if type(error) is StorageUnavailable:
                self.breaker.failed(str(error))
            else:  # the store responds
                self.breaker.succeeded()
            raise
        self.breaker.succeeded()
        counts.reads += 1
        counts.read_bytes += memoryview(data).nbytes
        counts.read_seconds += self._around.monotonic() - began
        return data

    def _read(self, key: str, position: int, size: int) -> Buffer:
        data = self._store.read(key, position, size)
        if memoryview(data).nbytes != size:
            raise StorageUnavailable(f"{key} ends early: {memoryview(data).nbytes} of {size} bytes")
        return data

    def prove(self) -> None:
        """Verify that the store refuses to overwrite; raises if it does not.

        The probe is a small object under a key of its own. If it exists already, the refusal of the
        put is the proof.
        """
        for _ in range(2):
            try:
                self._try(WRITING, lambda: self._store.put(self._proof, PROOF))
            except ObjectExists:
                return
        raise ObjectDenied("the store overwrites objects in spite of If-None-Match")

    def put(self, info: SegmentInfo, data: memoryview) -> bool:
        """Upload a segment; return whether it was in the store already.

        Raises `ObjectExists` when another object has its name: the segment then has to stay a file.
        """
        key = self.key(info.name, info.node_id)
        if len(data) != info.size:
            raise StorageUnavailable(f"{info.name} has {len(data)} bytes, not {info.size}")
        if info.size > OBJECT_BYTES_MAX:
            raise StorageUnavailable(f"{info.name} is larger than an object may be")
        try:
            self._try(WRITING, lambda: self._store.put(key, data))
        except ObjectExists:
            if not self._try(WRITING, lambda: self._is_same(key, info, data)):
                raise
            return True
        return False

    def _is_same(self, key: str, info: SegmentInfo, data: memoryview) -> bool:
        """Compare a segment's identity: its size, its header, and everything from the footer on."""
        if self._store.size(key) != info.size:
            return False
        return all(
            memoryview(self._read(key, start, stop - start)).cast("B") == data[start:stop]
            for start, stop in ((0, HEADER.size), (info.footer_position, info.size))
        )

    def delete(self, name: str, node_id: int | None = None) -> None:
        """Remove a segment that a node wrote (None: this one); no error if it does not exist."""
        self._try(WRITING, lambda: self._store.delete(self.key(name, node_id)))

    def names(self) -> list[str]:
        """List all names in the folder of this cluster's segments, including foreign files."""
        return self._try(WRITING, self._names)

    def _names(self) -> list[str]:
        names: list[str] = []
        for listed in self._store.list(self._folder):
            if len(names) >= LISTED_MAX:
                break
            names.append(listed.key.removeprefix(f"{self._folder}/"))
        return sorted(names)

    def _try(self, policy: RetryPolicy, call: Callable[[], Result]) -> Result:
        """Call until it succeeds, fails permanently, or `policy` is exhausted."""
        around = self._around
        ends = around.monotonic() + policy.limit_s
        for number in range(1, policy.tries + 1):
            try:
                return call()
            except StorageUnavailable as error:
                may_pass = type(error) is StorageUnavailable
                wait_s = min(policy.most_s, policy.first_s * 2.0 ** (number - 1))
                wait_s *= around.random.uniform(0.5, 1.0)
                in_time = around.monotonic() + wait_s < ends
                is_last = self._is_closed or number == policy.tries
                if not may_pass or is_last or not in_time:
                    self.counts.failures += not isinstance(error, ObjectExists)
                    raise
                self.counts.retries += 1
            around.sleep(wait_s)
        raise AssertionError("unreachable")
