"""A result that is available later, without an event loop.

A gateway turns a promise into a response; a test reads it. It is settled exactly once. Callbacks
run at once, in the order they were added, inside the call that settles; a callback that is added
to a settled promise runs at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_WAITING, _RESULT, _ERROR = range(3)


class Promise(Generic[T]):
    """Waiting, then settled with either a result or an error."""

    __slots__ = ("_callbacks", "_state", "_value")

    def __init__(self) -> None:
        self._state = _WAITING
        self._value: T | BaseException | None = None
        self._callbacks: list[Callable[[Promise[T]], None]] = []

    @classmethod
    def resolved(cls, result: T) -> Promise[T]:
        """Return a promise that has this result already."""
        promise = cls()
        promise.set_result(result)
        return promise

    @classmethod
    def rejected(cls, error: BaseException) -> Promise[T]:
        """Return a promise that has failed already."""
        promise = cls()
        promise.set_error(error)
        return promise

    @property
    def done(self) -> bool:
        """Whether it is settled, either way."""
        return self._state != _WAITING

    @property
    def error(self) -> BaseException | None:
        """The error, or None while waiting or with a result."""
        return self._value if self._state == _ERROR else None  # type: ignore[return-value]

    def result(self) -> T:
        """Return the result or raise the error; the promise must be settled."""
        assert self._state != _WAITING, "not settled yet"
        if self._state == _ERROR:
            raise self._value  # type: ignore[misc]
        return self._value  # type: ignore[return-value]

    def set_result(self, result: T) -> None:
        """Settle the promise with a result."""
        self._settle(_RESULT, result)

    def set_error(self, error: BaseException) -> None:
        """Settle the promise with an error."""
        self._settle(_ERROR, error)

    def then(self, callback: Callable[[Promise[T]], None]) -> None:
        """Call back with this promise when it is settled."""
        if self._state == _WAITING:
            self._callbacks.append(callback)
        else:
            callback(self)

    def _settle(self, state: int, value: T | BaseException) -> None:
        assert self._state == _WAITING, "settled twice"
        self._state = state
        self._value = value
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)
