"""What does the authorizer cost a request, with access control off and on?

    python -m benchmarks.authorizer [--acls 10000]

CPU time of this process, as the machine may be shared: the smallest of some rounds, with the median
beside it. A connection caches its decisions; a change of any ACL drops them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from benchmarks.entry_walk import seconds_per_call
from trilogue.broker.access.acl_authorizer import AclAuthorizer
from trilogue.broker.access.acls import ANY_HOST, Acl, AclStore, Pattern
from trilogue.broker.access.authorizer import USER, AllowAll, Operation, Principal, ResourceKind
from trilogue.broker.access.client_access import ClientAccess

ALICE = Principal(USER, "alice")
TOPIC, TOPICS = "public/default/orders", 100
WRITE, KIND = Operation.WRITE, ResourceKind.TOPIC


def make_authorizer(count: int) -> AclAuthorizer:
    """Return an authorizer with so many ACLs of other users, and one of a prefix for this one."""
    store = AclStore({})
    acls = [
        Acl(KIND, Pattern.LITERAL, f"public/default/other-{number}", Principal(USER, f"u{number}"),
            ANY_HOST, WRITE, True)
        for number in range(count - 1)
    ]  # fmt: skip
    acls.append(Acl(KIND, Pattern.PREFIXED, TOPIC, ALICE, ANY_HOST, WRITE, True))
    store.plan_create(acls).apply()
    return AclAuthorizer(store)


def loads(count: int) -> dict[str, tuple[Callable[[], object], int]]:
    """Return the calls by name, each with the decisions that it takes."""
    off = ClientAccess(AllowAll(), principal=ALICE)
    authorizer = make_authorizer(count)
    on = ClientAccess(authorizer, principal=ALICE)
    names = [f"{TOPIC}-{number}" for number in range(TOPICS)]

    def many() -> None:
        for name in names:
            on.is_allowed(WRITE, KIND, name)

    def changed() -> None:
        authorizer.move()
        on.is_allowed(WRITE, KIND, TOPIC)

    return {
        "access control off": (lambda: off.is_allowed(WRITE, KIND, TOPIC), 1),
        "one topic, cached": (lambda: on.is_allowed(WRITE, KIND, TOPIC), 1),
        f"each of {TOPICS} topics, cached": (many, TOPICS),
        f"one topic, after a change of {count:,} ACLs": (changed, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time of the authorizer")
    parser.add_argument("--acls", type=int, default=10_000)
    chosen = parser.parse_args()
    for name, (call, decisions) in loads(chosen.acls).items():
        least, median = (1e9 * seconds / decisions for seconds in seconds_per_call(call))
        print(f"{name:48} {least:8.0f} ns  (median {median:.0f})")


if __name__ == "__main__":
    main()
