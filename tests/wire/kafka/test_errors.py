"""Error codes: no number is missing, and unknown ones are UNKNOWN_SERVER_ERROR."""

from __future__ import annotations

import pytest

from trilogue.wire.kafka.errors import RETRIABLE, ErrorCode


def test_codes_have_no_gaps():
    assert sorted(ErrorCode) == list(range(-1, 134))


def test_error_codes_are_retriable_or_not():
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.SHARE_SESSION_LIMIT_REACHED in RETRIABLE
    assert not ErrorCode.NONE.retriable
    assert not ErrorCode.OFFSET_OUT_OF_RANGE.retriable


@pytest.mark.parametrize("code", [-2, 134, 32767])
def test_a_code_from_the_future_is_an_unknown_error(code: int):
    assert ErrorCode.of(code) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(22) is ErrorCode.ILLEGAL_GENERATION
