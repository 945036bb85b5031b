"""`trilogue serve` as a process: how it starts, what it refuses, how it ends."""

from __future__ import annotations

import json
import signal
import socket
import stat

import httpx
import pytest
from confluent_kafka import Consumer

from tests.node.clients import consume, produce
from tests.server import LISTENERS, launch_server, start_server
from trilogue.wire.tubemq.frame import BlockFrames, encode_request, parse_response
from trilogue.wire.tubemq.master_pb2 import RegisterRequestP2M


def refused(tmp_path, **arguments):
    server = launch_server(tmp_path / "data", **arguments)
    code = server.wait()
    return code, server.output.strip()


# -- starting --------------------------------------------------------------------------------


def test_ready_file_names_process_and_listeners_and_goes_at_the_end(tmp_path):
    server = start_server(tmp_path / "data")

    content = json.loads(server.ready_file.read_text())
    assert content["pid"] == server.pid
    assert set(content["doors"]) == set(LISTENERS)
    for address in content["doors"].values():
        host, port = address.rsplit(":", 1)
        socket.create_connection((host, int(port)), 5).close()

    assert server.stop() == 0
    assert not server.ready_file.exists()
    left = {path.name for path in server.ready_file.parent.iterdir()}
    assert left == {server.data.name, server.log_file.name}


def test_it_prints_where_it_listens(tmp_path):
    with start_server(tmp_path / "data") as server:
        for door, address in server.doors.items():
            assert f"{door:13} {address}\n" in server.output


def test_the_data_directory_is_private(tmp_path):
    with start_server(tmp_path / "data") as server:
        for path in [server.data, *server.data.rglob("*")]:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_listener_may_be_off(tmp_path):
    with start_server(tmp_path / "data", listen={"kafka": "127.0.0.1:0", "http": "off"}) as server:
        assert set(server.doors) == {"kafka"}


def test_ipv6_literals_work(tmp_path):
    with start_server(tmp_path / "data", listen={"kafka": "[::1]:0", "http": "[::1]:0"}) as server:
        assert server.doors["http"].startswith("[::1]:")
        assert httpx.get(f"{server.http}/healthz").status_code == 200
        assert produce(server, "t", [b"x"]) == [0]


def test_a_standby_is_a_master_that_sends_its_clients_on(tmp_path):
    doors = {"tubemq-master": "127.0.0.1:0", "kafka": "off", "http": "off"}
    with start_server(tmp_path / "data", listen=doors, tubemq__standby=True) as server:
        request = RegisterRequestP2M(clientId="p", hostName="h", brokerCheckSum=-1)
        host, port = server.tubemq.split(":")
        with socket.create_connection((host, int(port)), 60) as master:
            master.sendall(encode_request(7, 1, 1, request.SerializeToString(), timeout_ms=10_000))
            frames, reported = BlockFrames(), None
            while reported is None:
                frames.received(master.recv_into(frames.get_buffer()))
                reported = frames.next()
            answer = parse_response(reported)

        assert answer.exception == "org.apache.inlong.tubemq.corerpc.exception.StandbyException"


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0"])
@pytest.mark.parametrize("door", ["kafka", "pulsar", "tubemq-broker", "http"])
def test_a_listener_that_others_reach_needs_insecure(tmp_path, door, address):
    other = "kafka" if door == "http" else "http"
    listen = {door: address, other: "127.0.0.1:0"}

    code, output = refused(tmp_path, listen=listen)

    assert code == 2
    assert output.count("\n") == 0
    assert "--insecure" in output
    assert not (tmp_path / "data").exists()


def test_insecure_option_accepts_other_hosts_and_is_logged(tmp_path):
    with start_server(
        tmp_path / "data",
        listen={"kafka": "0.0.0.0:0", "http": "off"},
        arguments=["--insecure", "--advertise", "kafka=127.0.0.1:0"],
    ) as server:
        assert "listener.insecure" in server.output


@pytest.mark.parametrize(
    ("listen", "message"),
    [
        ({"tubemq-master": "127.0.0.1:0"}, "listen.tubemq-master must be off too"),
        ({"tubemq-broker": "[::1]:0"}, "to a name or an IPv4 address"),
        ({"kafak": "127.0.0.1:0"}, "did you mean kafka"),
        ({"kafka": "127.0.0.1"}, "is not HOST:PORT"),
        ({"kafka": "no-such-host.invalid:1"}, "does not resolve"),
    ],
)
def test_a_listener_that_cannot_be_is_refused(tmp_path, listen, message):
    code, output = refused(tmp_path, listen=listen)

    assert code == 2
    assert message in output
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("door", ["kafka", "pulsar", "tubemq-broker", "http"])
def test_a_taken_port_is_named(tmp_path, door):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        other = "kafka" if door == "http" else "http"

        code, output = refused(tmp_path, listen={door: address, other: "127.0.0.1:0"})

    assert code == 1
    assert f"{door} cannot listen on {address}" in output.splitlines()[-1]
    assert "in use" in output.splitlines()[-1]


def test_a_second_process_on_the_same_data_is_refused(tmp_path):
    with start_server(tmp_path / "data") as first:
        code, output = refused(tmp_path)

        assert code == 1
        assert "is in use by another process" in output.splitlines()[-1]
        assert produce(first, "t", [b"still here"]) == [0]


def test_data_of_a_newer_version_is_refused(tmp_path):
    with start_server(tmp_path / "data") as server:
        pass
    (server.data / "format").write_text("999999\n")

    code, output = refused(tmp_path)

    assert code == 1
    assert "newer" in output.splitlines()[-1]


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    code, output = refused(tmp_path, arguments=["--data", str(tmp_path / "file" / "data")])

    assert code == 1
    assert output == f"trilogue: the data directory: Not a directory: {tmp_path}/file/data"


def test_a_ready_file_that_cannot_be_written_is_named(tmp_path):
    code, output = refused(tmp_path, arguments=["--ready-file", str(tmp_path / "none" / "ready")])

    assert code == 1
    assert "ready file" in output.splitlines()[-1]
    assert "No such file" in output.splitlines()[-1]


# -- ending ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_loses_nothing(tmp_path, number):
    server = start_server(tmp_path / "data")
    values = [b"%d" % index for index in range(100)]
    produce(server, "t", values)

    server.signal(number)

    assert server.wait() == 0
    with start_server(tmp_path / "data") as server:
        assert consume(server, "t", len(values)) == values


def test_an_orderly_end_leaves_nothing_to_recover(tmp_path):
    server = start_server(tmp_path / "data")
    produce(server, "t", [b"x"] * 10)
    assert server.stop() == 0

    with start_server(tmp_path / "data") as server:
        assert "tail_bytes=0" in server.output


def test_a_signal_ends_long_polls_at_once(tmp_path):
    server = start_server(tmp_path / "data")
    produce(server, "t", [b"x"])
    consumer = Consumer(
        {
            "bootstrap.servers": server.kafka,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 60_000,
            "fetch.min.bytes": 1_000_000,
            "socket.timeout.ms": 120_000,
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    consumer.poll(0.5)

    code = server.stop(timeout=8)

    consumer.close()
    assert code == 0


def test_kill_minus_nine_loses_nothing(tmp_path):
    values = []
    for life in range(3):
        with start_server(tmp_path / "data") as server:
            more = [b"%d-%d" % (life, index) for index in range(50)]
            assert produce(server, "t", more) == list(range(len(values), len(values) + len(more)))
            values += more

    with start_server(tmp_path / "data") as server:
        assert consume(server, "t", len(values)) == values


# -- health ----------------------------------------------------------------------------------


def test_health_and_metrics_answer(tmp_path):
    with start_server(tmp_path / "data") as server:
        produce(server, "t", [b"x"] * 3)

        health = httpx.get(f"{server.http}/healthz")
        metrics = httpx.get(f"{server.http}/metrics").text

    assert health.status_code == 200
    assert health.json()["state"] == "serving"
    assert "trilogue_journal_commits_total" in metrics
    assert 'trilogue_requests_total{api="Produce",door="kafka"}' in metrics
