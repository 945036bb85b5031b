"""How a door says no: what its handlers may raise, and which of its protocol's codes that is.

Each protocol's errors.py has the table; how it is looked through is the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from trilogue.broker.errors import BrokerError
from trilogue.entry.entry import EntryError
from trilogue.log.errors import LogError
from trilogue.meta.errors import MetaError

Code = TypeVar("Code")

REASONS = (BrokerError, EntryError, LogError, MetaError, TimeoutError)
"""What the rooms below say no with; anything else is a mistake and ends the connection."""


class ProtocolRefusal(Exception, Generic[Code]):
    """What only one protocol says no to, with the code that it has for that."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def nearest_code(codes: Mapping[type[BaseException], Code], problem: BaseException) -> Code | None:
    """The code of a problem's class, or of the nearest base class that has one."""
    for kind in type(problem).__mro__:
        code = codes.get(kind)
        if code is not None:
            return code
    return None
