"""The TubeMQ signatures that the nodes of a data directory accepted, in a file of all of them.

A signature is accepted once: at one node, and also after a start within its time. The file is a
table of buckets; a bucket is locked while it is read and written, and a lock is never waited for.

    bucket    SLOTS x (16 bytes, keyed hash of user, time and nonce | u64 end in ms of the epoch)

A slot whose time is over is free. What the file cannot take (a full disk) is remembered in memory
only. It is not synced: after a power cut a machine needs longer than a signature's time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Final

from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway.tubemq.auth.signatures import (
    REPLAYED_SIGNATURE,
    SIGNATURE_WINDOW_MS,
    TOO_MANY_SIGNATURES,
    SignatureCache,
)

log = logging.getLogger(__name__)

FILE: Final = "tubemq-signatures"
SLOT: Final = Struct("<16sQ")
SLOTS, BUCKETS = 32, 2_048
BUCKET_SIZE: Final = SLOTS * SLOT.size
ENDS_MS: Final = 2 * SIGNATURE_WINDOW_MS + 1  # a signature's time is at most one window ahead


class UsedSignatures(SignatureCache):
    """The accepted signatures of all nodes of a directory; raises OSError if there is no file."""

    def __init__(self, path: Path, key: bytes) -> None:
        super().__init__()
        self._key = key
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags, 0o600)
        os.ftruncate(self._descriptor, BUCKETS * BUCKET_SIZE)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def add(self, key: tuple[str, int, int], now_ms: int) -> None:
        """Remember a signature; raises AuthenticationFailed if a node has accepted it before."""
        super().add(key, now_ms)
        name = blake2b(repr(key).encode(), digest_size=16, key=self._key).digest()
        start = int.from_bytes(name[:4], "little") % BUCKETS * BUCKET_SIZE
        try:
            with self._locked(start):
                self._add_to_bucket(start, name, now_ms)
        except BlockingIOError:  # another node has a signature of this bucket at this moment
            raise AuthenticationFailed(TOO_MANY_SIGNATURES) from None
        except OSError as error:
            log.warning("tubemq.signature_not_shared", extra={"problem": error.strerror})

    @contextmanager
    def _locked(self, start: int) -> Iterator[None]:
        os.lseek(self._descriptor, start, os.SEEK_SET)
        os.lockf(self._descriptor, os.F_TLOCK, BUCKET_SIZE)
        try:
            yield
        finally:
            os.lseek(self._descriptor, start, os.SEEK_SET)
            os.lockf(self._descriptor, os.F_ULOCK, BUCKET_SIZE)

    def _add_to_bucket(self, start: int, name: bytes, now_ms: int) -> None:
        free = None
        bucket = os.pread(self._descriptor, BUCKET_SIZE, start)
        for number, (used, ends_ms) in enumerate(SLOT.iter_unpack(bucket)):
            if ends_ms <= now_ms:
                free = number if free is None else free
            elif used == name:
                raise AuthenticationFailed(REPLAYED_SIGNATURE)
        if free is None:
            raise AuthenticationFailed(TOO_MANY_SIGNATURES)
        os.pwrite(self._descriptor, SLOT.pack(name, now_ms + ENDS_MS), start + free * SLOT.size)
