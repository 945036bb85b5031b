"""A real server for our own client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server import Server, start_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running
