"""What can go wrong with a commit: whose fault it is stands in the type.

The store's own failures are the log's: StorageFailed, DiskFull, NewerFormat, CorruptLog.
"""

from __future__ import annotations


class MetaError(Exception):
    """A commit that did not happen; nothing of it did."""


class PreconditionFailed(MetaError):
    """The world is not as the one who decided saw it; decide again."""


class InvalidCommit(MetaError):
    """An operation that cannot be: unknown, malformed, or against a rule of the rows."""


class NoIdsLeft(MetaError):
    """The block of ids in memory is used up and the next is not durable yet; ask `reserve`."""


class TooManyCommits(MetaError):
    """The queue of commits is full, of clients' mostly; later there is room."""


class Fenced(MetaError):
    """A newer owner of the data exists; this one may not write any more."""
