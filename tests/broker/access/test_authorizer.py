from __future__ import annotations

from trilogue.broker.access.authorizer import ANONYMOUS, CLUSTER, AllowAll, Operation


def test_without_rules_everyone_may_do_everything():
    assert all(AllowAll().allowed(ANONYMOUS, operation, CLUSTER) for operation in Operation)
