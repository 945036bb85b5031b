"""Checks of schemas, which may take long: those of long definitions run in the executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from trilogue.broker.schemas.compatibility import Definition, is_slow_to_check
from trilogue.gateway.dependencies import ProtocolGateway

T = TypeVar("T")


async def run_check(gateway: ProtocolGateway, definition: Definition, work: Callable[[], T]) -> T:
    """Run work on a definition, in the executor if the definition is long."""
    if is_slow_to_check(definition):
        return await asyncio.get_running_loop().run_in_executor(gateway.executor, work)
    return work()
