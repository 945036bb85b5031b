"""Our own Kafka client on our own door, and with TRILOGUE_TEST_REAL=1 the same on a real Kafka."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.kafka_cases import CASES, Case, Service, name


@pytest.mark.parametrize("case", CASES, ids=name)
def test_promises_are_kept(address: str, topic: str, case: Case):
    asyncio.run(asyncio.wait_for(case(Service(address, topic)), 60))
