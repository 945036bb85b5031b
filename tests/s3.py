"""Object storage for tests: one in memory, an S3 server, and a proxy before it that misbehaves."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

from tools.servers.probe import free_port

from trilogue.log.errors import ObjectExists, ObjectMissing
from trilogue.log.objects.objects import ListedObject, Objects, ObjectsEnvironment
from trilogue.log.objects.obstore_store import StoreOptions

KEYS = {"AWS_ACCESS_KEY_ID": "a-key", "AWS_SECRET_ACCESS_KEY": "a-very-secret-word"}
BUCKET = "trilogue"
CLUSTER = b"a cluster's id 1"


class MemoryObjects:
    """Objects in memory. `fail` is called with each operation and key, and may raise."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self.fail: Callable[[str, str], None] = lambda _operation, _key: None
        self.change: Callable[[str, bytes], bytes] = lambda _key, data: data

    def _enter(self, operation: str, key: str) -> None:
        self.calls.append((operation, key))
        self.fail(operation, key)

    def _get(self, key: str) -> bytes:
        if key not in self.objects:
            raise ObjectMissing(key)
        return self.objects[key]

    def put(self, key: str, data: memoryview | bytes) -> None:
        self._enter("put", key)
        if key in self.objects:
            raise ObjectExists(key)
        self.objects[key] = bytes(data)

    def read(self, key: str, position: int, size: int) -> bytes:
        self._enter("read", key)
        return self.change(key, self._get(key)[position : position + size])

    def size(self, key: str) -> int:
        self._enter("size", key)
        return len(self._get(key))

    def delete(self, key: str) -> None:
        self._enter("delete", key)
        self.objects.pop(key, None)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        self._enter("list", prefix)
        for key in sorted(self.objects):
            if key.startswith(f"{prefix}/"):
                yield ListedObject(key, len(self.objects[key]))

    def count(self, operation: str) -> int:
        return sum(each == operation for each, _ in self.calls)


class Hands:
    """A clock that moves with each sleep."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds

    def around(self) -> ObjectsEnvironment:
        return ObjectsEnvironment(self.monotonic, self.sleep, Random(1))


def make_objects(store: object, hands: Hands | None = None) -> Objects:
    return Objects(store, CLUSTER, (hands or Hands()).around())


class S3:
    """moto's server in a process of its own, with one empty bucket."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            env={**os.environ, **KEYS, "AWS_DEFAULT_REGION": "us-east-1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait()
        self.request("PUT", f"/{BUCKET}")

    def _wait(self) -> None:
        ends = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            assert self._process.poll() is None, "moto ended"
            assert time.monotonic() < ends, "moto does not answer"
            time.sleep(0.02)

    def request(self, method: str, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path)
        status = connection.getresponse().status
        connection.close()
        return status

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)


def _refuse(handler: BaseHTTPRequestHandler, status: int) -> None:
    body = f"<Error><Code>Broken</Code><Keys>{' '.join(KEYS.values())}</Keys></Error>"
    handler.send_response(status)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body.encode())


def options(port: int, prefix: str) -> StoreOptions:
    return StoreOptions(f"s3://{BUCKET}/{prefix}", f"http://127.0.0.1:{port}", "us-east-1")


class Proxy:
    """Passes requests on to a server, or applies the fault that `fault` returns.

    `fault` gets method and path; it returns None or one of:
    reset, hang, lose (the request arrives, the answer does not), cut (half the body comes), flip (a
    bit of the body), slow (a byte, and no more), or a status: 500, 503, 403, ...
    """

    def __init__(self, upstream: int) -> None:
        self.fault: Callable[[str, str], str | int | None] = lambda _method, _path: None
        self.seen: list[str] = []
        self.over = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with contextlib.suppress(OSError):
                    super().handle_one_request()
                    return
                self.close_connection = True

            def go(self) -> None:
                proxy._go(self, upstream)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = go  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def _go(self, handler: BaseHTTPRequestHandler, upstream: int) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        self.seen.append(handler.command)
        fault = self.fault(handler.command, handler.path)
        handler.close_connection = fault is not None
        if fault == "hang":
            self.over.wait(60)
            return
        if fault == "reset":
            linger = struct.pack("ii", 1, 0)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            handler.connection.close()
            return
        if isinstance(fault, int):
            _refuse(handler, fault)
            return
        there = http.client.HTTPConnection("127.0.0.1", upstream, timeout=30)
        there.request(handler.command, handler.path, body, dict(handler.headers))
        answer = there.getresponse()
        data = bytearray(answer.read())
        there.close()
        if fault == "lose":
            return
        if fault == "flip" and data:
            data[len(data) // 2] ^= 1
        handler.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"transfer-encoding", "connection"}:
                handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            part = {"cut": len(data) // 2, "slow": 1}.get(str(fault), len(data))
            handler.wfile.write(data[:part])
        if fault == "slow":
            self.over.wait(60)

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextlib.contextmanager
def s3_server() -> Iterator[S3]:
    """A server, and keys for it in this process's environment."""
    before = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    for name in before:
        del os.environ[name]
    os.environ.update(KEYS)
    server = S3()
    try:
        yield server
    finally:
        server.close()
        for name in KEYS:
            del os.environ[name]
        os.environ.update(before)
