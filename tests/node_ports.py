"""Ports for several nodes, which stay the same when one starts again; who listens to a port."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from contextlib import ExitStack
from pathlib import Path

from tools.servers.probe import PORTS

from trilogue.node.supervisor.node_settings import PORTS_APART

HOST = "127.0.0.1"
TRIES = 100


class NodePorts:
    """The addresses of the listeners of each node."""

    def __init__(self, names: tuple[str, ...], first: int, nodes: int) -> None:
        self._nodes = [
            {name: first + number + node * PORTS_APART for number, name in enumerate(names)}
            for node in range(nodes)
        ]

    @property
    def listen(self) -> dict[str, str]:
        """What the first node listens to; the others follow from it."""
        return {name: f"{HOST}:{port}" for name, port in self._nodes[0].items()}

    def addresses(self, name: str) -> str:
        """Return the addresses of one listener at all nodes, with commas."""
        return ",".join(f"{HOST}:{node[name]}" for node in self._nodes)

    @property
    def all(self) -> list[int]:
        """All ports."""
        return [port for node in self._nodes for port in node.values()]


def find_node_ports(nodes: int, *names: str) -> NodePorts:
    """Return ports that are free now, below those that the kernel gives to connections.

    They are bound without SO_REUSEADDR: with it also a port could be bound that a `ReservedPort` of
    another test holds.
    """
    for _ in range(TRIES):
        found = NodePorts(names, random.SystemRandom().randrange(*PORTS), nodes)
        with contextlib.suppress(OSError), ExitStack() as stack:
            for port in found.all:
                stack.enter_context(contextlib.closing(socket.socket())).bind((HOST, port))
            return found
    raise OSError(f"no {nodes * len(names)} ports are free")


def is_listening(port: int) -> bool:
    """Return whether a socket of this process listens to a port.

    To connect to a port that was closed proves nothing: another process may have it meanwhile.
    """
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not str(path.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(path.name))) as found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if listens and found.getsockname()[1] == port:
                    return True
    return False
