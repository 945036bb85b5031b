"""DescribeClientQuotas v0-v1: which bounds are set for whom (KIP-546, KIP-612).

v1 flexible. A filter has components, each a kind and which of it: this name (0), the default (1),
any at all (2). What is told has a part for every component, and with `strict` no other. Filters
that contradict themselves are 42, an unknown kind is 35, as a real one answers.
"""

from __future__ import annotations

import asyncio

from trilogue.broker.access import CLUSTER
from trilogue.broker.errors import InvalidRequest
from trilogue.broker.quotas import DEFAULT, Bound, Rates, Who, read_address
from trilogue.gateway.kafka.errors import NOT_ALLOWED
from trilogue.gateway.kafka.quota_names import IP, KEYS, PARTS, entity
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.describe_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from trilogue.wire.kafka.errors import ErrorCode

EXACT, THE_DEFAULT, ANY = 0, 1, 2
ORDER = (Bound.FETCHED, Bound.CHANGES, Bound.WORK, Bound.PRODUCED, Bound.CONNECTIONS)
"""As a real one tells those that were set together, which @platformatic/kafka's suite counts on."""
YIELD_EVERY = 1_000  # quotas looked at in one go, before others may use the loop


class Refused(Exception):
    """The filter means nothing: a code and why."""

    def __init__(self, what: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(what)
        self.code = code


async def handle(call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """Tell of all quotas that the filter lets through."""
    try:
        if not call.allowed(CLUSTER.name):
            raise Refused(NOT_ALLOWED.text, NOT_ALLOWED.code)
        wanted = _wanted(request.components)
    except Refused as problem:
        return DescribeClientQuotasResponse(
            error_code=problem.code, error_message=str(problem), entries=None
        )
    entries = []
    for number, (who, rates) in enumerate(call.door.quotas, 1):
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        if _fits(who, wanted, strict=request.strict):
            entries.append(_entry(who, rates))
    return DescribeClientQuotasResponse(entries=entries)


def _entry(who: Who, rates: Rates) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity(who)],
        values=[ValueData(key=KEYS[each], value=rates[each]) for each in ORDER if each in rates],
    )


def _wanted(components: list[ComponentData]) -> dict[str, str | None]:
    """Which of each kind; None for any."""
    wanted: dict[str, str | None] = {}
    for each in components:
        if not each.entity_type:
            raise Refused("a component has no kind")
        if each.entity_type not in PARTS:
            raise Refused(f"there is no kind {each.entity_type}", ErrorCode.UNSUPPORTED_VERSION)
        if each.entity_type in wanted:
            raise Refused(f"there are two components of the kind {each.entity_type}")
        wanted[each.entity_type] = _name(each)
    if IP in wanted and len(wanted) > 1:
        raise Refused("an address is for no user and no client id")
    return wanted


def _name(asked: ComponentData) -> str | None:
    match = asked.match
    if asked.match_type not in {EXACT, THE_DEFAULT, ANY}:
        raise Refused(f"there is no way to match of number {asked.match_type}")
    if (asked.match_type == EXACT) != (match is not None):
        raise Refused("a name goes with the way to match that is exact, and with no other")
    if match is None:
        return DEFAULT if asked.match_type == THE_DEFAULT else None
    return _spelled(match) if asked.entity_type == IP else match


def _spelled(address: str) -> str:
    try:
        return read_address(address)
    except InvalidRequest:
        return address  # which no quota is for


def _fits(who: Who, wanted: dict[str, str | None], *, strict: bool) -> bool:
    parts = {kind: name for kind, name in zip(PARTS, who, strict=True) if name is not None}
    if strict and parts.keys() != wanted.keys():
        return False
    return all(
        kind in parts and (name is None or parts[kind] == name) for kind, name in wanted.items()
    )
