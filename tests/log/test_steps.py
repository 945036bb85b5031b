"""Long work in steps."""

from __future__ import annotations

from trilogue.log.steps import Steps, to_the_end


def test_work_may_be_done_to_its_end():
    def counted() -> Steps[int]:
        yield
        return 7

    assert to_the_end(counted()) == 7
