"""A decision about slow facts that is not true yet.

The broker decides at once and never waits. What has to be in meta before it is true it returns as a
`Commit`, and somebody who may wait carries it out:

    await meta.reserve("partition", commit.partition_ids)
    await meta.commit(commit.ops(), commit.preconditions, fence)
    commit.apply()                     # now it is true, and `commit.done` is kept
    ... or, if anything above failed:
    raise commit.abandon(error)        # it never will be; `commit.done` is broken with a reason

Exactly one of `apply` and `abandon` must follow, also when the one who asked has gone away: a
commit that meta has taken and nobody applied would show only at the next start. So shield it.

A topic may have ten thousand partitions, and nobody may wait until all of them are made: `steps` is
`apply` in pieces, between which others may have their turn. What is made before the decision is
true is seen by nobody; what is left of what has gone is asked for by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from trilogue.broker.errors import BrokerError, StorageFailed, failure
from trilogue.broker.promise import Promise
from trilogue.log.errors import LogError
from trilogue.log.steps import Steps, to_the_end
from trilogue.meta.errors import PreconditionFailed
from trilogue.meta.port import Op, Precondition

T = TypeVar("T")


def nothing() -> Iterator[None]:
    """No steps: there is not much to do."""
    return iter(())


class Commit(Generic[T]):
    """Operations for meta, under which conditions, and what to do when they are durable."""

    __slots__ = (
        "_apply", "_ops", "_outrun", "_prepare", "_tidy", "done", "partition_ids", "preconditions"
    )  # fmt: skip

    def __init__(
        self,
        ops: Callable[[], Sequence[Op]],
        preconditions: Sequence[Precondition],
        apply: Callable[[], T],
        *,
        outrun: BrokerError,
        partition_ids: int = 0,
        prepare: Callable[[], Iterator[None]] = nothing,
        tidy: Callable[[], Iterator[None]] = nothing,
    ) -> None:
        """`apply` makes it true; `prepare` and `tidy` are what is long, before and after it."""
        self.partition_ids = partition_ids
        self.preconditions = preconditions
        self.done: Promise[T] = Promise()
        self._ops = ops
        self._apply = apply
        self._prepare = prepare
        self._tidy = tidy
        self._outrun = outrun

    def ops(self) -> Sequence[Op]:
        """Return the operations; takes the ids reserved, so it is called once."""
        return self._ops()

    def apply(self) -> T:
        """Make it true here, after it is durable in meta."""
        return to_the_end(self.steps())

    def steps(self) -> Steps[T]:
        """As `apply`, in short steps; to be gone through to the end."""
        yield from self._prepare()
        result = self._apply()
        yield from self._tidy()
        self.done.set_result(result)
        return result

    def abandon(self, error: BaseException) -> BrokerError:
        """Take the decision back and return what to tell whoever asked."""
        if isinstance(error, PreconditionFailed):
            reason: BrokerError = self._outrun
        elif isinstance(error, BrokerError):
            reason = error
        elif isinstance(error, LogError):
            reason = failure(error)
        else:
            reason = StorageFailed(f"the change was not recorded: {error}")
        self.done.set_error(reason)
        return reason
