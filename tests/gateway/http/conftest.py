from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.http.admin_client import Admin
from tests.gateway.http.tubemq.web_api_client import Web
from tests.server import start_server


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """One server for the tests of a module; each test creates its own namespace."""
    data = tmp_path_factory.mktemp("node") / "data"
    with start_server(data) as server, Admin(server) as made:
        yield made


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """One server for the tests of a module; each test creates its own topics and groups."""
    data = tmp_path_factory.mktemp("node") / "data"
    with start_server(data) as server, Web(server, data) as made:
        yield made
