"""Errors of the source and the sink, and how Spark shows them: as a sentence.

PySpark sends the traceback of its Python worker to the driver, some sixty lines for a misspelt
option. Where the message says all, the traceback is left out, by PySpark's own switch: it reads the
variable SPARK_HIDE_TRACEBACK when it reports the error, and the worker ends with that error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from trilogue.client.errors import ClientError

HIDE = "SPARK_HIDE_TRACEBACK"


class SourceError(Exception):
    """An error of the source or the sink that its message explains."""


class OptionError(SourceError, ValueError):
    """An option of the source or the sink is unknown, missing or has a wrong value."""


class DataLost(SourceError, RuntimeError):
    """Requested offsets are no longer, or not yet, in the log."""


class UnreadableSegments(SourceError, RuntimeError):
    """A data directory is damaged, away, or of a newer version."""


class RowError(SourceError, ValueError):
    """A row cannot be written: its topic is null, or its partition does not exist."""


class MalformedRecord(SourceError, ValueError):
    """A message cannot be decoded, and mode is FAILFAST."""


class SchemaUnavailable(SourceError, RuntimeError):
    """A schema registry does not answer, refuses the client, or has not what is needed."""


class NotStored(SourceError, RuntimeError):
    """The server refuses these rows, also in a retry."""


@contextmanager
def explained_errors() -> Iterator[None]:
    """Let Spark show only the message of a SourceError or ClientError; also a decorator."""
    try:
        yield
    except (SourceError, ClientError):
        if _is_worker():
            os.environ[HIDE] = "1"
        raise


def _is_worker() -> bool:
    """Whether this process is a Python worker of Spark."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
