"""Runs the tests twice: on the module as installed, perhaps compiled, and on its twin."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.pure import load_pure
from trilogue.wire.tubemq import rpc_codec as hot

_FIELDS = {"trilogue__wire__fields": load_pure("trilogue.wire.fields")}
PURE = load_pure("trilogue.wire.tubemq.rpc_codec", **_FIELDS)
BOTH = (hot, PURE)


@pytest.fixture(params=BOTH, ids=["installed", "pure"], scope="session")
def room(request: pytest.FixtureRequest) -> ModuleType:
    return request.param
