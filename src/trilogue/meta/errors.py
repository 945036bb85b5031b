"""Errors of changes of metadata; one class for each cause.

Failures of the store itself are the log's: StorageFailed, DiskFull, NewerFormat, CorruptLog.
"""

from __future__ import annotations


class MetaError(Exception):
    """A change that did not happen; none of its operations did."""


class PreconditionFailed(MetaError):
    """The state is not the one that the decision was based on: decide again."""


class InvalidChange(MetaError):
    """An operation that is unknown, malformed, or against a rule of the rows."""


class NoIdsLeft(MetaError):
    """The blocks of ids in memory are used up; `reserve` waits for the next one."""


class TooManyChanges(MetaError):
    """The queue of changes is full, mostly of those of clients; a retry may succeed."""


class Fenced(MetaError):
    """A newer owner of the data exists; this one may not write any more."""


class Unavailable(MetaError):
    """The store cannot be reached: nothing of this change was written."""
