"""Foreign clients, unmodified, behind one small interface: the tables that the tests walk.

EVERYONE has each library once, the Java one as three programs that stay; CLIENTS has Java's
console tools instead, which cost a start each time they are run.
"""

from __future__ import annotations

import pytest

from tests.conformance.clients.aio import Aiokafka
from tests.conformance.clients.base import CODECS, DEADLINE, Client, Deadline, Read, Record
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.java import Java
from tests.conformance.clients.kafka_programs import PROGRAMS
from tests.conformance.clients.kafka_python import KafkaPython
from tests.conformance.clients.kcat import Kcat

IN_PROCESS: list[Client] = [Confluent(), Aiokafka(), KafkaPython()]
JAVA: list[Client] = [Java("3.9.1"), Java("4.3.1")]
CLIENTS: list[Client] = [*IN_PROCESS, Kcat(), *JAVA]
EVERYONE: list[Client] = [*IN_PROCESS, Kcat(), *PROGRAMS]

__all__ = [
    "CLIENTS",
    "CODECS",
    "DEADLINE",
    "EVERYONE",
    "IN_PROCESS",
    "JAVA",
    "Client",
    "Deadline",
    "Read",
    "Record",
    "each",
]


def each(clients: list[Client]) -> list[object]:
    """The clients as test parameters, the Java ones marked."""
    return [
        pytest.param(
            client, id=client.name, marks=[pytest.mark.java] if "java" in client.name else []
        )
        for client in clients
    ]
