from __future__ import annotations

import pytest

from trilogue.broker.errors import UnknownTopic
from trilogue.broker.promise import Promise


def test_a_promise_waits_then_holds_its_result():
    promise: Promise[int] = Promise()
    waited = promise.done

    promise.set_result(3)

    assert (waited, promise.done, promise.result(), promise.error) == (False, True, 3, None)


def test_a_broken_promise_raises_its_error():
    error = UnknownTopic("gone")

    promise = Promise.rejected(error)

    assert promise.error is error
    with pytest.raises(UnknownTopic):
        promise.result()


def test_callbacks_run_once_in_order_and_at_once_when_settled():
    promise: Promise[str] = Promise()
    outcomes: list[tuple[int, str]] = []
    promise.then(lambda each: outcomes.append((1, each.result())))
    promise.then(lambda each: outcomes.append((2, each.result())))

    promise.set_result("yes")
    promise.then(lambda each: outcomes.append((3, each.result())))

    assert outcomes == [(1, "yes"), (2, "yes"), (3, "yes")]


def test_a_promise_is_settled_only_once():
    promise = Promise.resolved(1)

    with pytest.raises(AssertionError):
        promise.set_result(2)


def test_a_waiting_promise_has_no_result():
    promise: Promise[int] = Promise()

    with pytest.raises(AssertionError):
        promise.result()


def test_a_callback_that_adds_another_is_not_called_twice():
    promise: Promise[int] = Promise()
    outcomes: list[str] = []

    def first(each: Promise[int]) -> None:
        outcomes.append("first")
        each.then(lambda _: outcomes.append("second"))

    promise.then(first)
    promise.set_result(1)

    assert outcomes == ["first", "second"]
