"""The HTTP listener through real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import httpx
import msgspec
import pytest
import uvloop

from tests.node_ports import is_listening
from trilogue.gateway.http.app import Health, SharedPage, build_app
from trilogue.gateway.http.connection_limits import HttpLimits
from trilogue.gateway.http.listener import HttpListener
from trilogue.gateway.http.metrics import Exposition, Histogram, HistogramSample, Metric
from trilogue.gateway.http.received_pieces import PIECE_BYTES

READ_BYTES = 256 << 10  # of uvloop


def health(state="serving"):
    return Health(state, "1.2.3", 1.5, 1)


def make_app(state=health, gather=list):
    return build_app(state, lambda: Exposition(gather).page)


@contextlib.asynccontextmanager
async def opened(*, state=health, gather=list, limits=None):
    door = HttpListener(lambda: make_app(state, gather), limits or HttpLimits())
    host, port = door.bind("127.0.0.1", 0)
    door.serve()
    try:
        yield door, host, port
    finally:
        async with asyncio.timeout(60):
            await door.close()


def get(path, **scenario):
    async def run():
        async with opened(**scenario) as (_, host, port), httpx.AsyncClient() as client:
            return await client.get(f"http://{host}:{port}{path}")

    return asyncio.run(run())


def test_health_is_200_while_serving():
    response = get("/healthz")

    assert response.status_code == 200
    assert (response.json()) == {
        "state": "serving",
        "version": "1.2.3",
        "uptime_s": 1.5,
        "node_id": 1,
        "missing_segments": [],
    }


@pytest.mark.parametrize("state", ["starting", "draining", "failed"])
def test_health_is_503_while_it_does_not_serve(state):
    response = get("/healthz", state=lambda: health(state))

    assert response.status_code == 503
    assert state == response.json()["state"]


def test_a_suspended_node_answers_no_requests_but_those_for_its_state():
    """It may have been replaced: what it knows may be old."""

    async def empty_page():
        return b""

    async def answer(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"here"})

    async def run(state):
        app = build_app(
            lambda: health(state),
            lambda: empty_page,
            lambda: answer,
            {"/own": lambda: answer},
        )
        transport = httpx.ASGITransport(app=app)
        paths = ("/livez", "/readyz", "/healthz", "/metrics", "/own", "/admin/v2/clusters")
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            return [(await client.get(path)).status_code for path in paths]

    assert asyncio.run(run("suspended")) == [200, 503, 503, 200, 503, 503]
    assert asyncio.run(run("serving")) == [200] * 6


def test_metrics_are_read_on_the_loop_and_encoded_in_a_thread():
    threads = {}

    class Samples(list):
        def __iter__(self):
            threads["encoded"] = threading.get_ident()
            return super().__iter__()

    def gather():
        threads["read"] = threading.get_ident()
        return [Metric("trilogue_up", "gauge", "Up.", Samples([({}, 1)]))]

    assert "trilogue_up 1.0" in get("/metrics", gather=gather).text
    assert threads["read"] == threading.get_ident()
    assert threads["encoded"] != threading.get_ident()


def test_metrics_are_gathered_per_request():
    reads = []

    def gather():
        reads.append(1)
        yield Metric("trilogue_messages_total", "counter", "Messages.", [({"api": "a"}, 3)])
        yield Metric("trilogue_tail_bytes", "gauge", "Bytes.", [({}, 7)])
        yield Metric("trilogue_none", "gauge", "Nothing.", [])

    response = get("/metrics", gather=gather)

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'trilogue_messages_total{api="a"} 3.0' in response.text
    assert "trilogue_tail_bytes 7.0" in response.text
    assert "process_resident_memory_bytes" in response.text
    assert len(reads) == 1


def test_histograms_are_written_bucket_by_bucket():
    buckets = [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    histogram = Histogram("lag_seconds", "Lag.", [HistogramSample({}, buckets, 12.0)])

    response = get("/metrics", gather=lambda: [histogram])

    lines = [line for line in response.text.splitlines() if line.startswith("lag_seconds")]
    assert lines == [
        'lag_seconds_bucket{le="1.0"} 2.0',
        'lag_seconds_bucket{le="2.0"} 3.0',
        'lag_seconds_bucket{le="+Inf"} 4.0',
        "lag_seconds_count 4.0",
        "lag_seconds_sum 12.0",
    ]


@pytest.mark.parametrize(
    ("path", "well"), [("/livez", {"starting", "serving", "draining"}), ("/readyz", {"serving"})]
)
@pytest.mark.parametrize("state", ["starting", "serving", "draining", "failed"])
def test_probes_follow_the_state(path, well, state):
    response = get(path, state=lambda: health(state))

    assert response.status_code == (200 if state in well else 503)
    assert response.text == "ok" or state in response.text


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ({"state": "suspended"}, "the lease of this node is over"),
        ({"disk_full": "the disk is full: 0 bytes are free"}, "the disk is full"),
    ],
)
def test_a_node_that_should_get_no_clients_names_the_reason_and_stays_alive(cause, reason):
    def look():
        return msgspec.structs.replace(health(), **cause)

    ready, live = get("/readyz", state=look), get("/livez", state=look)

    assert ready.status_code == 503
    assert reason in ready.text
    assert (live.status_code, live.text) == (200, "ok")


@pytest.mark.parametrize("path", ["/", "/nothing", "/healthz/..%2f..%2fetc/passwd"])
def test_other_paths_are_not_found(path):
    assert get(path).status_code == 404


def test_a_connection_that_sends_no_request_head_is_cut():
    async def scenario():
        async with opened(limits=HttpLimits(head_s=0.05)) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET /healthz HT")
            async with asyncio.timeout(60):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            writer.close()

    asyncio.run(scenario())


def test_an_answered_connection_that_starts_a_head_and_stops_is_cut():
    async def scenario():
        async with opened(limits=HttpLimits(head_s=0.2, keep_alive_s=300)) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            writer.write(b"GET /healthz HT")
            async with asyncio.timeout(60):  # less than the keep-alive limit
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            writer.close()

    asyncio.run(scenario())


def test_connections_beyond_the_limit_are_closed_at_once():
    async def scenario():
        async with opened(limits=HttpLimits(connections=1)) as (door, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            second, second_writer = await asyncio.open_connection(host, port)
            async with asyncio.timeout(60):
                with contextlib.suppress(ConnectionError):
                    assert await second.read() == b""
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            assert door.connections == 1
            writer.close()
            second_writer.close()

    asyncio.run(scenario())


def test_the_end_of_a_reply_does_not_wait_for_the_peer():
    """As the node runs it: uvloop leaves Nagle's algorithm on."""

    async def scenario():
        async with opened() as (door, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            (connection,) = door._server.server_state.connections
            accepted = connection.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()

    uvloop.run(scenario())


def test_an_address_has_a_share_of_the_connections():
    async def scenario():
        limits = HttpLimits(connections=10, connections_per_address=1)
        async with opened(limits=limits) as (door, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            refused, refused_writer = await asyncio.open_connection(host, port)
            async with asyncio.timeout(60):
                with contextlib.suppress(ConnectionError):
                    assert await refused.read() == b""
            other, other_writer = await asyncio.open_connection(
                host, port, local_addr=("127.0.0.2", 0)
            )
            for sent, received in ((writer, reader), (other_writer, other)):
                sent.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
                assert b"200 OK" in await received.readuntil(b"\r\n\r\n")
            assert door.connections == 2
            for each in (writer, refused_writer, other_writer):
                each.close()

    asyncio.run(scenario())


def test_a_request_head_without_end_is_refused():
    async def scenario():
        async with opened() as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 100_000)
            async with asyncio.timeout(60):
                with contextlib.suppress(ConnectionError):
                    assert b"400" in await reader.read()
            writer.close()

    asyncio.run(scenario())


def test_pipelined_requests_are_held_in_one_place_within_one_read():
    """While a request is answered nothing more is parsed or read, and all are answered."""
    count = 3_000
    request = b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"x" * 300 + b"\r\n\r\n"
    parsed, unparsed = [], []

    async def scenario():
        async def app(scope, receive, send):
            (connection,) = door._server.server_state.connections
            parsed.append(len(connection.conn.trailing_data[0]))
            unparsed.append(len(connection._pieces._rest))
            await receive()
            await asyncio.sleep(0)
            headers = [(b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b""})

        door = HttpListener(lambda: app, HttpLimits())
        host, port = door.bind("127.0.0.1", 0)
        door.serve()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(request * count)
        for _ in range(count):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()
        await door.close()

    uvloop.run(scenario())
    assert len(parsed) == count
    assert max(parsed) < 2 * PIECE_BYTES
    assert max(unparsed) <= READ_BYTES


def test_a_taken_port_is_refused_and_leaves_nothing_open():
    async def scenario():
        async with opened() as (_, host, port):
            other = HttpListener(make_app, HttpLimits())
            with pytest.raises(OSError, match="in use"):
                other.bind(host, port)
            await other.close()

    asyncio.run(scenario())


def test_the_first_connection_builds_the_application_and_is_served_by_it():
    made = []

    def make():
        made.append(threading.current_thread())
        return make_app()

    async def scenario():
        door = HttpListener(make, HttpLimits())
        host, port = door.bind("127.0.0.1", 0)
        door.serve()
        assert (door.connections, door.requests, made) == (0, 0, [])
        async with httpx.AsyncClient() as client:
            for _ in range(2):
                assert (await client.get(f"http://{host}:{port}/healthz")).status_code == 200
        assert door.requests == 2
        await door.close()

    asyncio.run(scenario())
    assert len(made) == 1
    assert made[0] is not threading.main_thread()


def test_a_listener_without_a_connection_closes_its_sockets():
    async def scenario():
        door = HttpListener(make_app, HttpLimits())
        _, port = door.bind("127.0.0.1", 0)
        door.serve()
        assert is_listening(port)
        await door.close()
        assert not is_listening(port)

    asyncio.run(scenario())


def test_an_application_that_cannot_be_built_closes_the_sockets(caplog):
    def make():
        raise ImportError("no starlette")

    async def scenario():
        door = HttpListener(make, HttpLimits())
        host, port = door.bind("127.0.0.1", 0)
        door.serve()
        reader, writer = await asyncio.open_connection(host, port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        await door.close()

    asyncio.run(scenario())
    assert caplog.messages[-1] == "listener.failed"


def test_a_page_is_made_once_for_all_that_wait_for_it():
    made = []

    async def make() -> bytes:
        made.append(len(made))
        await asyncio.sleep(0)
        return b"%d" % made[-1]

    async def run():
        page = SharedPage(make)
        first = await asyncio.gather(*[page.get() for _ in range(50)])
        return set(first), await page.get()

    assert asyncio.run(run()) == ({b"0"}, b"1")
