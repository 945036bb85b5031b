"""The errors that handlers may raise, and the lookup of a protocol's code for them.

Each protocol's errors.py has the table; the lookup is the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from trilogue.broker.errors import BrokerError
from trilogue.entry.entry import EntryError
from trilogue.log.errors import LogError
from trilogue.meta.errors import MetaError

Code = TypeVar("Code")

EXPECTED_ERRORS = (BrokerError, EntryError, LogError, MetaError, TimeoutError)
"""What lower rooms raise for a request; any other exception is a bug and ends the connection."""


class ProtocolError(Exception, Generic[Code]):
    """A request that only one protocol refuses, with the protocol's code for that."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def find_code(codes: Mapping[type[BaseException], Code], problem: BaseException) -> Code | None:
    """Return the code of a problem's class, or of its nearest base class that has one."""
    for kind in type(problem).__mro__:
        code = codes.get(kind)
        if code is not None:
            return code
    return None
