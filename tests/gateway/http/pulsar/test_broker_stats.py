"""What one broker reports of itself, and the groups of requests that are not served."""

from __future__ import annotations

import pytest

from tests.gateway.http.admin_client import Admin


def test_broker_stats_have_the_topics_and_counters_of_the_node(admin: Admin):
    name = admin.namespace("reporting")
    admin.do("PUT", f"persistent/{name}/one")
    admin.do("PUT", f"persistent/{name}/two/partitions", 2)

    topics = admin.get("broker-stats/topics")[name]["0x00000000_0xffffffff"]["persistent"]
    report = admin.get("broker-stats/load-report")
    (metrics,) = admin.get("broker-stats/metrics")

    parts = [f"persistent://{name}/two-partition-{index}" for index in (0, 1)]
    assert sorted(topics) == [f"persistent://{name}/one", *parts]
    assert topics[parts[0]]["msgInCounter"] == 0
    assert report["numTopics"] >= 3
    assert report["pulsarServiceUrl"].startswith("pulsar://")
    assert metrics["metrics"]["brk_in_messages_total"] >= 0


def test_groups_of_which_a_broker_has_none_are_empty(admin: Admin):
    assert admin.get("bookies/all") == {"bookies": []}
    assert admin.get("bookies/racks-info") == {}
    assert admin.get("resourcegroups") == []
    assert admin.get("clusters/standalone/failureDomains") == {}
    assert admin("GET", "clusters/standalone/peers") == (200, None)
    assert admin("GET", "clusters/other/peers")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/admin/v3/functions/public/default", 409),
        ("GET", "/admin/v3/sources/builtinsources", 409),
        ("POST", "/admin/v3/sinks/public/default/s", 409),
        ("GET", "/admin/v3/packages/function/public/default", 503),
        ("GET", "worker/cluster", 409),
        ("GET", "worker-stats/metrics", 409),
        ("GET", "proxy-stats/connections", 404),
        ("GET", "broker-stats/mbeans", 404),
        ("GET", "resource-quotas", 405),
        ("PUT", "resourcegroups/g", 405),
        ("GET", "resourcegroups/g", 404),
        ("GET", "clusters/standalone/namespaceIsolationPolicies", 404),
        ("POST", "clusters/standalone/namespaceIsolationPolicies/p", 412),
        ("POST", "bookies/racks-info/b", 405),
    ],
)
def test_groups_that_are_not_served_name_the_reason(
    admin: Admin, method: str, path: str, status: int
):
    found, response = admin(method, path)

    assert found == status
    assert "nothing at this path" not in response["reason"]


def test_defaults_of_policies_change_at_run_time(admin: Admin):
    name = admin.namespace("defaults")
    admin.do("PUT", f"persistent/{name}/t")
    at = f"persistent/{name}/t/maxProducers?applied=true"
    assert "maxProducersPerTopic" in admin.get("brokers/configuration")

    admin.do("POST", "brokers/configuration/maxProducersPerTopic/7")

    assert admin.get("brokers/configuration/values") == {"maxProducersPerTopic": "7"}
    assert admin.get("brokers/configuration/runtime")["maxProducersPerTopic"] == "7"
    assert admin.get(at) == 7
    admin.do("DELETE", "brokers/configuration/maxProducersPerTopic")
    assert admin.get(at) == 0
    assert admin.get("brokers/configuration/values") == {}


@pytest.mark.parametrize(
    "path", ["maxProducersPerTopic/many", "maxProducersPerTopic/-1", "brokerServicePort/1"]
)
def test_defaults_that_cannot_be_are_refused(admin: Admin, path: str):
    assert admin("POST", f"brokers/configuration/{path}")[0] == 412
