"""DescribeClientQuotas: filters, and the shape of the response.

The results are those of Kafka 3.9.1 and 4.3.1 with the same quotas.
"""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.quotas.quotas import DEFAULT, QuotaEntity, QuotaKind
from trilogue.wire.kafka.quotas.client_quotas import ComponentData, DescribeClientQuotasRequest

ADDRESS, DEFAULT_ADDRESS = (("ip", "1.2.3.4"),), (("ip", None),)
C1, BOTH = (("client-id", "c1"),), (("client-id", "x"), ("user", "u"))
ANY_CLIENT, ANY_BOTH = (("client-id", None),), (("client-id", None), ("user", None))
USER = (("user", "u"),)
EVERY = {ADDRESS, DEFAULT_ADDRESS, C1, BOTH, ANY_CLIENT, ANY_BOTH, USER}


def prepare(rig: Rig) -> None:
    for entity, rates in {
        QuotaEntity(address="1.2.3.4"): {QuotaKind.CONNECTIONS: 5.0},
        QuotaEntity(address=DEFAULT): {QuotaKind.CONNECTIONS: 6.0},
        QuotaEntity(None, "c1"): {
            QuotaKind.PRODUCED: 11.0,
            QuotaKind.FETCHED: 2.5e9,
            QuotaKind.WORK: 12.5,
        },
        QuotaEntity("u", "x"): {QuotaKind.CHANGES: 0.5},
        QuotaEntity(None, DEFAULT): {QuotaKind.PRODUCED: 5.0},
        QuotaEntity(DEFAULT, DEFAULT): {QuotaKind.PRODUCED: 6.0},
        QuotaEntity("u"): {QuotaKind.PRODUCED: 7.0},
    }.items():
        rig.broker.quotas.plan_alter([(entity, rates)]).apply()


def build_request(
    *parts: tuple[str, int, str | None], strict: bool = False
) -> DescribeClientQuotasRequest:
    components = [ComponentData(entity_type=k, match_type=t, match=m) for k, t, m in parts]
    return DescribeClientQuotasRequest(components=components, strict=strict)


def reported(response) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in response.entries
    }


@pytest.mark.parametrize("version", versions(48))
@on_loop
async def test_every_version_describes_entities_and_rates(version):
    async with Rig() as rig:
        prepare(rig)

        response = await rig.peer().request(build_request(), version)

        assert (response.error_code, response.error_message) == (0, "")
        assert reported(response) == {
            ADDRESS: {"connection_creation_rate": 5.0},
            DEFAULT_ADDRESS: {"connection_creation_rate": 6.0},
            C1: {
                "producer_byte_rate": 11.0,
                "consumer_byte_rate": 2.5e9,
                "request_percentage": 12.5,
            },
            BOTH: {"controller_mutation_rate": 0.5},
            ANY_CLIENT: {"producer_byte_rate": 5.0},
            ANY_BOTH: {"producer_byte_rate": 6.0},
            USER: {"producer_byte_rate": 7.0},
        }


@on_loop
async def test_quota_keys_are_returned_in_the_order_of_kafka():
    async with Rig() as rig:
        prepare(rig)

        response = await rig.peer().request(build_request(("client-id", 0, "c1")), 1)

        (only,) = response.entries
        keys = [each.key for each in only.values]
        assert keys == ["consumer_byte_rate", "request_percentage", "producer_byte_rate"]


FILTERS = {
    "nothing else than nothing": (build_request(strict=True), set()),
    "a name": (build_request(("client-id", 0, "c1")), {C1}),
    "a name nobody has": (build_request(("client-id", 0, "none")), set()),
    "the default": (build_request(("client-id", 1, None)), {ANY_CLIENT, ANY_BOTH}),
    "the default alone": (build_request(("client-id", 1, None), strict=True), {ANY_CLIENT}),
    "any client": (build_request(("client-id", 2, None)), {C1, BOTH, ANY_CLIENT, ANY_BOTH}),
    "any client alone": (build_request(("client-id", 2, None), strict=True), {C1, ANY_CLIENT}),
    "a user with any client": (build_request(("user", 0, "u"), ("client-id", 2, None)), {BOTH}),
    "any user alone": (build_request(("user", 2, None), strict=True), {USER}),
    "any address": (build_request(("ip", 2, None)), {ADDRESS, DEFAULT_ADDRESS}),
    "no address": (build_request(("ip", 0, "not an ip")), set()),
}


@pytest.mark.parametrize("kind", FILTERS)
@on_loop
async def test_filters(kind):
    requested, found = FILTERS[kind]
    async with Rig() as rig:
        prepare(rig)

        assert reported(await rig.peer().request(requested, 1)).keys() == found


@pytest.mark.parametrize(
    ("requested", "code"),
    [
        (build_request(("client-id", 1, "x")), 42),
        (build_request(("client-id", 2, "x")), 42),
        (build_request(("client-id", 0, None)), 42),
        (build_request(("client-id", 3, None)), 42),
        (build_request(("", 2, None)), 42),
        (build_request(("nope", 2, None)), 35),
        (build_request(("client-id", 0, "c1"), ("client-id", 0, "c1")), 42),
        (build_request(("ip", 2, None), ("client-id", 2, None)), 42),
    ],
)
@on_loop
async def test_a_filter_that_means_nothing_is_refused(requested, code):
    async with Rig() as rig:
        response = await rig.peer().request(requested, 1)

        assert (response.error_code, response.entries) == (code, None)
        assert response.error_message


@on_loop
async def test_describe_quotas_without_permission_is_denied():
    async with Rig() as rig:
        prepare(rig)
        rig.rules.deny(Operation.DESCRIBE_SETTINGS, ResourceKind.CLUSTER, "cluster")

        response = await rig.peer().request(build_request(), 1)

        assert (response.error_code, response.entries) == (31, None)
