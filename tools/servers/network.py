"""A network namespace with loopback only, for servers that listen on all addresses.

    network = OwnNetwork()
    with network.inside():
        process = subprocess.Popen([...])             # listens in there, whatever it binds
        socket.create_connection(("127.0.0.1", 8123))  # reaches it; so do threads made in here

Linux, and root (CAP_SYS_ADMIN): `may_have_one` checks this. A socket belongs to the network it was
created in and may be used from anywhere. The network ends with the last process that has it open.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
IFF_UP = 1
HERE = Path("/proc/thread-self/ns/net")
CAP_SYS_ADMIN = 21


def may_have_one() -> bool:
    """Whether this process may make and enter networks."""
    if not HERE.exists():
        return False
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff"))
    return bool(int(effective, 16) >> CAP_SYS_ADMIN & 1)


class OwnNetwork:
    """One network namespace, held open by a file descriptor."""

    def __init__(self) -> None:
        self.descriptor = -1
        self.error: OSError | None = None
        # a thread leaves the machine's network for good; no other thread does
        making = threading.Thread(target=self._make)
        making.start()
        making.join()
        if self.error is not None:
            raise self.error

    def _make(self) -> None:
        try:
            call("unshare", CLONE_NEWNET)
            bring_up("lo")
            self.descriptor = os.open(HERE, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.error = error

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What this thread opens and starts meanwhile is in the network."""
        before = os.open(HERE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            call("setns", self.descriptor, CLONE_NEWNET)
            try:
                yield
            finally:
                call("setns", before, CLONE_NEWNET)
        finally:
            os.close(before)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def call(name: str, *numbers: int) -> None:
    """A system call of the C library; OSError where it fails."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*numbers) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def bring_up(interface: str) -> None:
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", interface.encode(), 0)
        _, flags = struct.unpack_from("16sh", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        request = struct.pack("16sh14x", interface.encode(), flags | IFF_UP)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)
