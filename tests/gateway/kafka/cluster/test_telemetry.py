"""Telemetry: not in ApiVersions, and a client that uses it gets no metrics to collect."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig
from tests.gateway.loop import on_loop
from trilogue.gateway.kafka import apis
from trilogue.gateway.kafka.cluster.telemetry import METRICS_BYTES_MAX
from trilogue.wire.kafka.cluster.telemetry import (
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
)

NO_CLIENT, SOME_CLIENT = bytes(16), bytes(range(16))


def test_telemetry_apis_are_not_advertised():
    """KIP-714: without a receiver a broker leaves both out of ApiVersions."""
    assert not {71, 72} & {each.api_key for each in apis.advertised_versions()}


@on_loop
async def test_no_metric_is_wanted():
    async with Rig() as rig:
        peer = rig.peer()

        first = await peer.request(
            GetTelemetrySubscriptionsRequest(client_instance_id=NO_CLIENT), 0
        )
        known = await peer.request(
            GetTelemetrySubscriptionsRequest(client_instance_id=SOME_CLIENT), 0
        )

        assert first.client_instance_id != NO_CLIENT
        assert known.client_instance_id == SOME_CLIENT
        for each in (first, known):
            assert (each.error_code, each.requested_metrics) == (0, [])
            assert each.accepted_compression_types == [4, 3, 1, 2]
            assert (each.push_interval_ms, each.telemetry_max_bytes) == (300_000, 1 << 20)
            assert each.delta_temporality


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, 0),
        ({"client_instance_id": NO_CLIENT}, 42),
        ({"subscription_id": 1}, 117),
        ({"compression_type": 9}, 76),
        ({"metrics": bytes(METRICS_BYTES_MAX + 1)}, 118),
    ],
)
@on_loop
async def test_pushed_telemetry_is_checked_and_dropped(change, code):
    async with Rig() as rig:
        peer = rig.peer()
        reported = await peer.request(
            GetTelemetrySubscriptionsRequest(client_instance_id=SOME_CLIENT), 0
        )
        push = {
            "client_instance_id": SOME_CLIENT,
            "subscription_id": reported.subscription_id,
            "terminating": True,
            "compression_type": 0,
            "metrics": b"abc",
        }

        response = await peer.request(PushTelemetryRequest(**{**push, **change}), 0)

        assert response.error_code == code
