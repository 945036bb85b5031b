"""A change of metadata that was decided and is not durable yet.

The broker decides at once and never waits. Operations that must be in meta before the decision
holds are returned as a `MetadataChange`, which the node's metadata writer carries out:

    await meta.reserve("partition", change.partition_ids)
    await meta.write(change.ops(), change.preconditions, fence)
    change.apply()                     # the decision holds; `change.done` has its result
    ... or, if anything above failed:
    raise change.abandon(error)        # it never will; `change.done` has the error

Exactly one of `apply` and `abandon` must follow, even if the caller is cancelled: a change that is
durable and not applied would show only at the next start. So the writer shields it.

A topic may have ten thousand partitions, too many to create without a pause: `steps` is `apply` in
pieces, between which the event loop runs. What `prepare` creates is not visible before the decision
holds, and what `clean_up` removes is not reachable any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from trilogue.broker.errors import (
    BrokerError,
    ConcurrentChange,
    MetadataUnavailable,
    StorageFailed,
    convert_log_error,
)
from trilogue.broker.promise import Promise
from trilogue.log.errors import LogError
from trilogue.log.steps import Steps, to_the_end
from trilogue.meta.errors import PreconditionFailed, Unavailable
from trilogue.meta.operations import DeleteSetting, Op, Precondition, PutSetting, SettingIs

T = TypeVar("T")


def no_steps() -> Iterator[None]:
    """Return no steps."""
    return iter(())


class MetadataChange(Generic[T]):
    """Operations for meta, their preconditions, and what to do when they are durable."""

    __slots__ = (
        "_apply",
        "_clean_up",
        "_on_conflict",
        "_ops",
        "_prepare",
        "done",
        "partition_ids",
        "preconditions"
    )  # fmt: skip

    def __init__(
        self,
        ops: Callable[[], Sequence[Op]],
        preconditions: Sequence[Precondition],
        apply: Callable[[], T],
        *,
        on_conflict: BrokerError,
        partition_ids: int = 0,
        prepare: Callable[[], Iterator[None]] = no_steps,
        clean_up: Callable[[], Iterator[None]] = no_steps,
    ) -> None:
        """Make a change that nothing has carried out yet.

        `apply` makes the decision hold; `prepare` and `clean_up` are the long work before and after
        it. `on_conflict` is the error if a precondition fails.
        """
        self.partition_ids = partition_ids
        self.preconditions = preconditions
        self.done: Promise[T] = Promise()
        self._ops = ops
        self._apply = apply
        self._prepare = prepare
        self._clean_up = clean_up
        self._on_conflict = on_conflict

    def ops(self) -> Sequence[Op]:
        """Return the operations. Takes the reserved ids, so it is called once."""
        return self._ops()

    def apply(self) -> T:
        """Make the decision hold here, after it is durable in meta."""
        return to_the_end(self.steps())

    def steps(self) -> Steps[T]:
        """Do what `apply` does in short steps, all of which must be taken."""
        yield from self._prepare()
        result = self._apply()
        yield from self._clean_up()
        self.done.set_result(result)
        return result

    def abandon(self, error: BaseException) -> BrokerError:
        """Settle `done` with the reason of a failure, and return that reason."""
        if isinstance(error, PreconditionFailed):
            reason: BrokerError = self._on_conflict
        elif isinstance(error, Unavailable):
            reason = MetadataUnavailable(str(error))
        elif isinstance(error, BrokerError):
            reason = error
        elif isinstance(error, LogError):
            reason = convert_log_error(error)
        else:
            reason = StorageFailed(f"the change was not recorded: {error}")
        self.done.set_error(reason)
        return reason


def plan_setting(
    key: str,
    before: str | None,
    text: str | None,
    apply: Callable[[str, str | None], None],
    *,
    subject: str = "it",
) -> MetadataChange[None]:
    """Return the change of one setting in meta, from `before` to `text`; None: there is none.

    `apply` gets the key and the text. Where the setting has another value meanwhile the caller gets
    `ConcurrentChange`, which names the subject.
    """
    op: Op = DeleteSetting(key) if text is None else PutSetting(key, text)
    return MetadataChange(
        lambda: [op],
        (SettingIs(key, before),),
        lambda: apply(key, text),
        on_conflict=ConcurrentChange(f"{subject} was changed meanwhile"),
    )
