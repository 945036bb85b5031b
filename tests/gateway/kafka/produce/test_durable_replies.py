"""Replies that wait for a commit, and their replacement when it fails."""

from __future__ import annotations

import pytest

from tests.pure import load_pure
from trilogue.gateway.kafka.produce import durable_replies

PURE = load_pure("trilogue.gateway.kafka.produce.durable_replies")


@pytest.mark.parametrize("module", [durable_replies, PURE], ids=["installed", "pure"])
def test_replies_of_a_failed_commit_are_taken_back_one_by_one(module):
    slot = module.CommitSlot()
    refuse = lambda correlation_id, context, _: b"%d%s" % (correlation_id, context)  # noqa: E731
    slot.replies = [(b"yes", refuse, 7, b"no")] * 2
    assert slot.render() == [b"yesyes"]

    slot.problem = RuntimeError()

    assert slot.render() == [b"7no7no"]
