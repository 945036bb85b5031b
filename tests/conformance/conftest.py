"""Servers and topics for the tests of foreign clients."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import brokers
from tests.brokers import Broker, PulsarBroker, TubeBroker
from tests.conformance.clients import tubemq
from tests.conformance.clients.administrators import CONFLUENT
from tests.conformance.clients.building import BUILD_S
from tests.conformance.clients.kafka_programs import PROGRAMS
from tests.conformance.clients.kafka_tools import TOOLS
from tests.conformance.clients.pulsar import Connection, Process, PulsarLibrary, connect
from tests.conformance.clients.pulsar_libraries import ALL as PULSAR_LIBRARIES
from tests.conformance.members import PARTITIONS, Make, Member, close
from tests.conformance.pulsar.pulsar_admin import Admin

SETTINGS: dict[str, object] = {}
TUBE_SETTINGS: dict[str, object] = {"tubemq.hold": "200ms"}  # what waits for nothing waits less
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
RUN = f"{time.time_ns() // 1_000_000:x}"[-7:] + WORKER  # a running server sees other runs
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of foreign clients do not count; the first test that needs a client builds it."""
    for item in items:
        if "conformance" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore"), append=False)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(BUILD_S + 120))


@pytest.fixture(scope="session")
def kafka_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    """The real Kafka takes seconds to start: one for all modules, made when first wanted."""
    made: list[Broker] = []
    yield made
    for broker in made:
        broker.kill9()


@pytest.fixture(scope="module", params=brokers.names())
def broker(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kafka_of_the_session: list[Broker],
) -> Iterator[Broker]:
    """A running server that the tests of one module share and leave running."""
    root = tmp_path_factory.mktemp(request.param)
    with brokers.running(brokers.make, request.param, root, SETTINGS, kafka_of_the_session) as made:
        yield made


@pytest.fixture
def address(broker: Broker) -> str:
    return broker.address


@pytest.fixture(params=[name for name in brokers.names() if name != "elsewhere"])
def own_broker(request: pytest.FixtureRequest, tmp_path: object) -> Iterator[Broker]:
    """A running server that one test has for itself: it may be killed and restarted."""
    made = brokers.make(request.param, tmp_path, SETTINGS)
    made.start()
    yield made
    made.kill9()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """An unused topic name, made from the test's name; the topic itself is not created."""
    return unique(request.node.name)


@pytest.fixture
def wide_topic(address: str, topic: str) -> str:
    """A topic of four partitions."""
    CONFLUENT.create(address, topic, PARTITIONS)
    return topic


@pytest.fixture
def join(address: str) -> Iterator[Callable[[Make, str, str], Member]]:
    """Makes members of groups and closes those that a test left open."""
    made: list[Member] = []

    def one(make: Make, group: str, topic: str) -> Member:
        made.append(make(address, group, topic))
        return made[-1]

    yield one
    close(made)


def unique(name: str) -> str:
    return f"{re.sub('[^a-z0-9]+', '-', name.lower())[:80].strip('-')}.{RUN}.{next(_numbers)}"


@pytest.fixture(scope="session")
def pulsar_of_the_session() -> Iterator[list[PulsarBroker]]:
    """The real Pulsar takes ten seconds to start: one for all modules, made when first wanted."""
    made: list[PulsarBroker] = []
    yield made
    for broker in made:
        broker.kill9()


@pytest.fixture(scope="module", params=brokers.pulsar_names())
def pulsar(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    pulsar_of_the_session: list[PulsarBroker],
) -> Iterator[PulsarBroker]:
    """A running server that the tests of one module share and leave running."""
    root = tmp_path_factory.mktemp(request.param)
    with brokers.running(
        brokers.make_pulsar, request.param, root, SETTINGS, pulsar_of_the_session
    ) as made:
        yield made


@pytest.fixture(params=[name for name in brokers.pulsar_names() if name != "elsewhere"])
def own_pulsar(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PulsarBroker]:
    """A running server that one test has for itself: it may be killed and restarted."""
    made = brokers.make_pulsar(request.param, tmp_path, SETTINGS)
    made.start()
    yield made
    made.kill9()


@pytest.fixture
def admin(pulsar: PulsarBroker) -> Admin:
    return Admin(pulsar.http)


@pytest.fixture
def connection(pulsar: PulsarBroker, library: PulsarLibrary) -> Iterator[Connection]:
    """A client object of the library that the test is about (its parameter `library`)."""
    made = connect(library, f"pulsar://{pulsar.address}")
    yield made
    made.close()


@pytest.fixture(scope="session")
def tubemq_of_the_session() -> Iterator[list[TubeBroker]]:
    """The real TubeMQ takes half a minute to start: one for all modules."""
    made: list[TubeBroker] = []
    yield made
    for broker in made:
        broker.kill9()


@pytest.fixture(scope="session")
def tube_drivers() -> Iterator[dict[str, Process]]:
    """One Java process for each server: the real one's is in a network with it."""
    made: dict[str, Process] = {}
    yield made
    for driver in made.values():
        driver.stop()


@pytest.fixture(scope="module", params=tubemq.servers())
def tube(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    tubemq_of_the_session: list[TubeBroker],
) -> Iterator[TubeBroker]:
    """A running server that the tests of one module share and leave running."""
    root = tmp_path_factory.mktemp(request.param)
    with brokers.running(
        brokers.make_tubemq, request.param, root, TUBE_SETTINGS, tubemq_of_the_session
    ) as made:
        yield made


@pytest.fixture
def tube_client(tube: TubeBroker, tube_drivers: dict[str, Process]) -> Iterator[tubemq.Client]:
    """A session factory of TubeMQ's Java client."""
    if tube.name not in tube_drivers:
        tube_drivers[tube.name] = tubemq.driver_process()
    with tube.inside():
        made = tubemq.connect(tube_drivers[tube.name], tube.address)
    yield made
    made.start("close")  # takes seconds with push consumers; no test waits for it


@pytest.fixture(scope="session", autouse=True)
def _libraries_end_with_the_session() -> Iterator[None]:
    yield
    for library in (*PULSAR_LIBRARIES, *PROGRAMS, *TOOLS):
        library.stop()
