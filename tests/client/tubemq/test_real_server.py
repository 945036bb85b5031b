"""Our TubeMQ client against a real Apache TubeMQ, which also proves the cases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.brokers import TubeBroker, make_tubemq
from tests.client.tubemq.cases import CASES, Case, Service, name

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TubeBroker]:
    server = make_tubemq("tubemq", tmp_path_factory.mktemp("tubemq"))
    server.start()
    yield server
    server.kill9()


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_real_server(real: TubeBroker, case: Case):
    with real.inside():
        asyncio.run(case(Service(real.address, real.topic)))
