from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway_http.asking import Admin
from tests.server import start_server


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """One server for the tests of a module; each test makes a namespace of its own."""
    data = tmp_path_factory.mktemp("node") / "data"
    with start_server(data) as server, Admin(server) as made:
        yield made
