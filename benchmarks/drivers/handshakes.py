"""TLS handshakes as a load: connect, shake hands, one request and its response, close, again.

    python -m benchmarks.drivers.handshakes ADDRESS CA --connections 8 --warmup 1 --seconds 3

Full handshakes: no session is resumed. Prints "begin" and "end" around what is measured, then one
line of JSON.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import threading
import time

API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
LIMIT_S = 10.0


class Clients:
    """Threads that connect again and again, and what they count while `counting`."""

    def __init__(self, address: str, ca: str, count: int) -> None:
        host, port = address.rsplit(":", 1)
        self.address = (host, int(port))
        self.context = ssl.create_default_context(cafile=ca)
        self.counting = self.stopped = False
        self.latencies: list[float] = []
        self.errors = 0
        self.threads = [threading.Thread(target=self._connect_again) for _ in range(count)]

    def _connect_again(self) -> None:
        while not self.stopped:
            began = time.monotonic()
            try:
                self._connect()
            except OSError:
                self.errors += 1
                continue
            if self.counting:
                self.latencies.append(time.monotonic() - began)

    def _connect(self) -> None:
        with socket.create_connection(self.address, LIMIT_S) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.context.wrap_socket(plain, server_hostname=self.address[0]) as secured:
                secured.sendall(API_VERSIONS_V0)
                if not secured.recv(1 << 16):
                    raise ConnectionError("closed without a response")


def main() -> None:
    parser = argparse.ArgumentParser(description="TLS handshakes as a load")
    parser.add_argument("address")
    parser.add_argument("ca", help="PEM file of the authority of the server's certificate")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=3.0)
    chosen = parser.parse_args()
    clients = Clients(chosen.address, chosen.ca, chosen.connections)
    for thread in clients.threads:
        thread.start()
    time.sleep(chosen.warmup)
    print("begin", flush=True)
    began, clients.counting = time.monotonic(), True
    time.sleep(chosen.seconds)
    clients.counting, seconds = False, time.monotonic() - began
    print("end", flush=True)
    clients.stopped = True
    for thread in clients.threads:
        thread.join()
    taken = sorted(clients.latencies)
    result = {
        "requests": len(taken),
        "bytes": len(taken),
        "errors": clients.errors,
        "seconds": seconds,
        "handshakes_per_s": len(taken) / seconds,
        "p50_ms": taken[len(taken) // 2] * 1_000,
        "p99_ms": taken[len(taken) * 99 // 100] * 1_000,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
