"""A server that binds all addresses cannot be reached from outside its network namespace."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest
from tools.servers.network import OwnNetwork, may_have_one
from tools.servers.tubemq import listens

from tests.tools import require


@pytest.fixture(autouse=True)
def _may_have_one() -> None:
    require("root", found=may_have_one())


def test_listener_inside_the_network_is_unreachable_from_outside():
    network = OwnNetwork()
    with network.inside():
        server = socket.create_server(("0.0.0.0", 0))
        port = server.getsockname()[1]
        assert listens(port)

    with server:
        assert not listens(port)
    network.close()


def test_threads_and_programs_made_inside_are_inside():
    network = OwnNetwork()
    found: list[bool] = []
    with network.inside(), socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=lambda: found.append(listens(port)))
        thread.start()
        thread.join()
        requests = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
        subprocess.run([sys.executable, "-c", requests], check=True)

    assert found == [True]
    network.close()


def test_one_comes_back_from_it_also_after_an_error():
    network = OwnNetwork()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with network.inside():
            assert not listens(port)
        assert listens(port)

        with pytest.raises(ValueError, match="none"), network.inside():
            int("none")

        assert listens(port)
    network.close()
