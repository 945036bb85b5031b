"""An S3 server for the tests of a module, and a proxy before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.s3 import S3, Proxy, s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture
def proxy(s3: S3) -> Iterator[Proxy]:
    made = Proxy(s3.port)
    yield made
    made.close()
