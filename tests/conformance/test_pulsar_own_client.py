"""Our own Pulsar client against our own door: the cases that a real broker proves.

With TRILOGUE_TEST_REAL=1 they run on a real Pulsar here too; tests/client/test_real_pulsar.py does
that in every run that has the jars.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.brokers import PulsarBroker
from tests.client.pulsar_cases import Case, Service, name
from tests.client.pulsar_cases_more import ALL


@pytest.mark.parametrize("case", ALL, ids=name)
def test_our_door(pulsar: PulsarBroker, topic: str, case: Case):
    asyncio.run(case(Service(pulsar.address, pulsar.http, topic)))
