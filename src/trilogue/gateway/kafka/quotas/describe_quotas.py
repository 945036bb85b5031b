"""DescribeClientQuotas v0-v1: quotas that match a filter (KIP-546, KIP-612).

v1 flexible. A filter has components: an entity type, and an exact name (0), the default (1) or any
(2). A matching entity has a part for every component, and with `strict` no other. A contradictory
filter is 42, an unknown entity type 35, as in Kafka.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import CLUSTER
from trilogue.broker.errors import InvalidRequest
from trilogue.broker.quotas.quotas import DEFAULT, QuotaEntity, QuotaKind, Rates, read_address
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import CLUSTER_DENIED
from trilogue.gateway.kafka.quotas.quota_entities import IP, KEYS, PARTS, describe_entity
from trilogue.gateway.steps import next_step
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.quotas.client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeQuotasEntry,
    EntityData,
    ValueData,
)

EXACT, DEFAULT_ENTITY, ANY = 0, 1, 2
ORDER = (
    QuotaKind.FETCHED,
    QuotaKind.CHANGES,
    QuotaKind.WORK,
    QuotaKind.PRODUCED,
    QuotaKind.CONNECTIONS,
)
"""Kafka's order for quotas that were set together, which @platformatic/kafka's suite compares."""
YIELD_EVERY = 1_000  # quotas per loop iteration


class InvalidFilter(Exception):
    """An invalid filter: its error code and why."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.code = code


async def handle_describe_client_quotas(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return all quotas that match the filter."""
    try:
        if not context.is_allowed(CLUSTER.name):
            raise InvalidFilter(CLUSTER_DENIED.text, CLUSTER_DENIED.code)
        names = _read_filter(request.components)
    except InvalidFilter as problem:
        return DescribeClientQuotasResponse(
            error_code=problem.code, error_message=str(problem), entries=None
        )
    entries = []
    for number, (entity, rates) in enumerate(context.gateway.quotas, 1):
        if number % YIELD_EVERY == 0:
            await next_step()
        if _matches(entity, names, strict=request.strict):
            entries.append(_describe_quotas(entity, rates))
    return DescribeClientQuotasResponse(entries=entries)


def _describe_quotas(entity: QuotaEntity, rates: Rates) -> DescribeQuotasEntry:
    return DescribeQuotasEntry(
        entity=[
            EntityData(entity_type=kind, entity_name=name) for kind, name in describe_entity(entity)
        ],
        values=[ValueData(key=KEYS[each], value=rates[each]) for each in ORDER if each in rates],
    )


def _read_filter(components: list[ComponentData]) -> dict[str, str | None]:
    """Return the name by entity type; None for any."""
    names: dict[str, str | None] = {}
    for each in components:
        if not each.entity_type:
            raise InvalidFilter("a component has no kind")
        if each.entity_type not in PARTS:
            raise InvalidFilter(
                f"there is no kind {each.entity_type}", ErrorCode.UNSUPPORTED_VERSION
            )
        if each.entity_type in names:
            raise InvalidFilter(f"there are two components of the kind {each.entity_type}")
        names[each.entity_type] = _match_name(each)
    if IP in names and len(names) > 1:
        raise InvalidFilter("an address is for no user and no client id")
    return names


def _match_name(requested: ComponentData) -> str | None:
    match = requested.match
    if requested.match_type not in {EXACT, DEFAULT_ENTITY, ANY}:
        raise InvalidFilter(f"there is no way to match of number {requested.match_type}")
    if (requested.match_type == EXACT) != (match is not None):
        raise InvalidFilter("a name goes with the way to match that is exact, and with no other")
    if match is None:
        return DEFAULT if requested.match_type == DEFAULT_ENTITY else None
    return _normalize_address(match) if requested.entity_type == IP else match


def _normalize_address(address: str) -> str:
    try:
        return read_address(address)
    except InvalidRequest:
        return address  # no quota matches it


def _matches(entity: QuotaEntity, names: dict[str, str | None], *, strict: bool) -> bool:
    parts = {kind: name for kind, name in zip(PARTS, entity, strict=True) if name is not None}
    if strict and parts.keys() != names.keys():
        return False
    return all(
        kind in parts and (name is None or parts[kind] == name) for kind, name in names.items()
    )
