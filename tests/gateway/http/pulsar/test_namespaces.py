"""Namespaces over HTTP; every policy that is served, and every one that is rejected."""

from __future__ import annotations

from typing import Any

import pulsar
import pytest

from tests.gateway.http.admin_client import Admin
from trilogue.broker.topics.policies import OFFLOAD_CREDENTIAL, POLICIES, PolicyLevel
from trilogue.gateway.http.pulsar.policies import (
    ALLOWED_CLUSTERS,
    NAMESPACE_PATHS,
    REPLICATION,
    TOPIC_PATHS,
    UNSET,
    PolicyPath,
)

BUNDLE = "0x00000000_0xffffffff"
DISPATCH_RATE = {
    "dispatchThrottlingRateInMsg": 5,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
VALUES: dict[str, Any] = {
    "publishRate": {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": 100},
    "dispatchRate": DISPATCH_RATE,
    "subscriptionDispatchRate": DISPATCH_RATE,
    "subscriptionAuthMode": "Prefix",
    "deduplication": True,
    "retention": {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5},
    "messageTTL": 60,
    "schemaCompatibilityStrategy": "BACKWARD",
    "schemaValidationEnforced": True,
    "isAllowAutoUpdateSchema": False,
    "autoTopicCreation": {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 4,
    },
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": False},
    "subscriptionTypesEnabled": ["Shared"],
    "encryptionRequired": True,
    "delayedDelivery": {"active": False, "tickTime": 1000, "maxDeliveryDelayInMillis": 0},
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 30},
    "replicatorDispatchRate": DISPATCH_RATE,
    "bookieAffinityGroup": {"bookkeeperAffinityGroupPrimary": "p"},
    "dispatcherPauseOnAckStatePersistent": True,
    "replicationClusters": ["standalone"],
    "allowedClusters": ["standalone"],
    "inactiveTopicPolicies": {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 600,
        "deleteWhileInactive": True,
    },
    "offloadPolicies": {
        "managedLedgerOffloadDriver": "aws-s3",
        "managedLedgerOffloadBucket": "shared",
        "managedLedgerOffloadThresholdInBytes": 0,
    },
    "persistence": {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 0.0,
    },
}
QUOTA = {"limit": 9, "limitSize": 9, "limitTime": -1, "policy": "producer_exception"}


def value_of(policy: str) -> Any:
    return VALUES.get(policy, 7)


def served(paths):
    return [
        pytest.param(each, id=each.segment)
        for each in paths
        if not POLICIES[each.policy].refused and each.policy != "backlogQuota"
    ]


def refused(paths):
    return [pytest.param(each, id=each.segment) for each in paths if POLICIES[each.policy].refused]


@pytest.fixture(scope="module")
def home(admin: Admin) -> str:
    name = admin.namespace("policies")
    admin.do("PUT", f"persistent/{name}/t")
    return name


def test_namespaces_are_made_listed_and_deleted(admin: Admin):
    name = admin.namespace("made")

    assert admin("PUT", f"namespaces/{name}") == (409, {"reason": "Namespace already exists"})
    assert name in admin.get("namespaces/acme")
    assert admin.get(f"namespaces/{name}")["bundles"]["numBundles"] == 1
    assert admin("PUT", "namespaces/nobody/ns") == (404, {"reason": "Tenant does not exist"})
    admin.do("PUT", f"persistent/{name}/t")
    assert admin("DELETE", f"namespaces/{name}") == (
        409,
        {"reason": "Cannot delete non empty namespace"},
    )
    assert admin("DELETE", f"namespaces/{name}/{BUNDLE}")[0] == 409
    assert admin("DELETE", f"namespaces/{name}?force=true") == (204, None)
    assert admin("GET", f"namespaces/{name}") == (404, {"reason": "Namespace does not exist"})
    assert admin("GET", f"persistent/{name}/t/stats")[0] == 404


def test_bundles_are_one_as_namespaces_are_deleted_by_them(admin: Admin):
    name = admin.namespace("bundles")

    assert admin.get(f"namespaces/{name}/bundles")["boundaries"] == BUNDLE.split("_")
    assert admin("DELETE", f"namespaces/{name}/{BUNDLE}") == (204, None)
    assert admin("PUT", f"namespaces/{name}/{BUNDLE}/unload") == (204, None)
    assert admin("DELETE", f"namespaces/{name}/0x00000000_0x40000000")[0] == 412
    assert admin("DELETE", f"namespaces/{name}") == (204, None)


GO_BODY: dict[str, Any] = {  # what pulsarctl 4.0 sends for `namespaces create`
    "bundles": None, "persistence": None, "retention_policies": None,
    "schema_validation_enforced": False, "deduplicationEnabled": None, "deleted": False,
    "encryption_required": False, "message_ttl_in_seconds": None, "offload_threshold": -1,
    "antiAffinityGroup": "", "replication_clusters": [], "latency_stats_sample_rate": {},
    "backlog_quota_map": {}, "topicDispatchRate": {}, "autoTopicCreationOverride": None,
    "schema_auto_update_compatibility_strategy": "Full",
    "schema_compatibility_strategy": "UNDEFINED",
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "subscription_auth_mode": "None", "is_allow_auto_update_schema": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("older", "newer", "kept"),
    [
        ("Full", "UNDEFINED", "UNDEFINED"),
        ("BackwardTransitive", "UNDEFINED", "BACKWARD_TRANSITIVE"),
        ("AutoUpdateDisabled", "FORWARD", "FORWARD"),
    ],
)
def test_the_older_field_of_schema_compatibility_holds_where_the_newer_is_not_set(
    admin: Admin, older: str, newer: str, kept: str
):
    admin.do("PUT", "tenants/pulsarctl", {"allowedClusters": ["standalone"]})
    name = f"pulsarctl/{older.lower()}"
    fields = {
        "schema_auto_update_compatibility_strategy": older,
        "schema_compatibility_strategy": newer,
    }

    admin.do("PUT", f"namespaces/{name}", GO_BODY | fields)

    assert admin.get(f"namespaces/{name}")["schema_compatibility_strategy"] == kept
    assert admin("PUT", f"namespaces/{name}2", {next(iter(fields)): "Nearly"})[0] == 412
    admin.do("DELETE", f"namespaces/{name}")
    admin.do("DELETE", "tenants/pulsarctl")


def test_namespace_is_created_with_its_policies(admin: Admin):
    admin.namespace("tenant-is-there")
    response = {
        "message_ttl_in_seconds": 5,
        "retention_policies": VALUES["retention"],
        "replication_clusters": ["standalone"],
        "bundles": {"numBundles": 4},
        "auth_policies": {"namespace_auth": {"r": ["consume"]}},
        "schema_compatibility_strategy": "UNDEFINED",
        "max_producers_per_topic": None,
        "topicDispatchRate": {"standalone": DISPATCH_RATE},
        "offload_threshold": -1,
        "deleted": False,
    }

    admin.do("PUT", "namespaces/acme/said", response)

    result = admin.get("namespaces/acme/said")
    assert result["message_ttl_in_seconds"] == 5
    assert result["retention_policies"] == VALUES["retention"]
    assert result["auth_policies"]["namespace_auth"] == {"r": ["consume"]}
    assert admin.get("namespaces/acme/said/messageTTL") == 5
    assert result["topicDispatchRate"] == {"standalone": DISPATCH_RATE}
    assert admin.get("namespaces/acme/said/dispatchRate") == DISPATCH_RATE
    elsewhere = {"replication_clusters": ["elsewhere"]}
    assert admin("PUT", "namespaces/acme/not-response", elsewhere)[0] == 403
    for field, value in [
        ("offload_threshold", 5),
        ("topicDispatchRate", {"elsewhere": DISPATCH_RATE}),
        ("replicatorDispatchRate", {"standalone": DISPATCH_RATE}),
        ("unheard_of", 5),
        ("message_ttl_in_seconds", -5),
    ]:
        assert admin("PUT", "namespaces/acme/not-response", {field: value})[0] == 412, field
    assert admin("GET", "namespaces/acme/not-response")[0] == 404


def reply_of_unset(path: PolicyPath) -> tuple[int, object]:
    if path.unset is UNSET:
        return 200, None
    return (204, None) if path.unset is None else (200, path.unset)


@pytest.mark.parametrize("path", served(NAMESPACE_PATHS))
def test_namespace_policy_is_set_returned_and_removed(admin: Admin, home: str, path):
    at, value = f"namespaces/{home}/{path.segment}", value_of(path.policy)
    before = admin("GET", at)

    assert before == reply_of_unset(path)
    assert admin("POST", at, value) == (204, None)
    assert admin("GET", at) == (200, value)
    assert admin("DELETE", at) == (204, None)
    assert admin("GET", at) == before
    assert admin("POST", at, {"no": "such value"} if path.policy != "persistence" else 5)[0] in {
        400,
        412,
        204,
    }
    admin("DELETE", at)


@pytest.mark.parametrize("path", refused(NAMESPACE_PATHS))
def test_a_policy_that_is_not_obeyed_is_refused_for_a_namespace(admin: Admin, home: str, path):
    status, response = admin("POST", f"namespaces/{home}/{path.segment}", 5)

    assert (status, response["reason"]) == (412, f"{path.policy}: {POLICIES[path.policy].refused}")


@pytest.mark.parametrize("path", served(TOPIC_PATHS))
def test_topic_policy_is_set_returned_and_removed(admin: Admin, home: str, path):
    at, value = f"persistent/{home}/t/{path.segment}", value_of(path.policy)

    assert admin("GET", at) == reply_of_unset(path)
    assert admin("POST", at, value) == (204, None)
    assert admin("GET", at) == (200, value)
    assert admin("GET", f"{at}?applied=true") == (200, value)
    assert admin("DELETE", at) == (204, None)
    assert admin("GET", at) == reply_of_unset(path)


@pytest.mark.parametrize("path", refused(TOPIC_PATHS))
def test_a_policy_that_is_not_obeyed_is_refused_for_a_topic(admin: Admin, home: str, path):
    status, response = admin("POST", f"persistent/{home}/t/{path.segment}", 5)

    assert (status, response["reason"]) == (412, f"{path.policy}: {POLICIES[path.policy].refused}")


@pytest.mark.parametrize("at", ["namespaces/acme/policies", "persistent/acme/policies/t"])
def test_the_two_kinds_of_backlog_quota_are_set_apart(admin: Admin, home: str, at: str):
    age = {**QUOTA, "limit": -1, "limitSize": -1, "limitTime": 5}

    assert admin("POST", f"{at}/backlogQuota", {"limit": 9, "policy": QUOTA["policy"]})[0] == 204
    assert admin("POST", f"{at}/backlogQuota?backlogQuotaType=message_age", age)[0] == 204
    assert admin.get(f"{at}/backlogQuotaMap") == {
        "destination_storage": QUOTA,
        "message_age": age,
    }
    assert admin("DELETE", f"{at}/backlogQuota")[0] == 204
    assert admin.get(f"{at}/backlogQuotaMap") == {"message_age": age}
    assert admin("DELETE", f"{at}/backlogQuota?backlogQuotaType=message_age")[0] == 204
    assert admin.get(f"{at}/backlogQuotaMap") == {}
    assert admin("POST", f"{at}/backlogQuota?backlogQuotaType=strange", QUOTA)[0] == 400


def test_effective_topic_policy_is_returned_with_applied(admin: Admin):
    name = admin.namespace("applied")
    admin.do("PUT", f"persistent/{name}/t")
    admin.do("POST", f"namespaces/{name}/messageTTL", 60)

    assert admin("GET", f"persistent/{name}/t/messageTTL") == (200, None)
    assert admin.get(f"persistent/{name}/t/messageTTL?applied=true") == 60
    assert admin.get(f"persistent/{name}/t/maxUnackedMessagesOnConsumer?applied=true") == 50_000
    admin.do("POST", f"persistent/{name}/t/messageTTL?messageTTL=5")
    assert admin.get(f"persistent/{name}/t/messageTTL?applied=true") == 5


def test_values_of_the_broker_are_applied(admin: Admin):
    """As Pulsar 4.0.7 answers, but for retention, which is that of the topic's settings here."""
    name = admin.namespace("of-the-broker")
    admin.do("PUT", f"persistent/{name}/t")

    def applied(policy: str) -> object:
        return admin.get(f"persistent/{name}/t/{policy}?applied=true")

    of_broker = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
    quotas = {"destination_storage": of_broker, "message_age": of_broker}
    assert applied("backlogQuotaMap") == quotas
    assert admin.get(f"namespaces/{name}/backlogQuotaMap") == {}
    assert applied("autoSubscriptionCreation") == {"allowAutoSubscriptionCreation": True}
    assert applied("subscribeRate")["ratePeriodInSecond"] == 30
    assert applied("persistence")["bookkeeperEnsemble"] == 1
    assert applied("delayedDelivery")["active"] is True
    assert applied("inactiveTopicPolicies")["deleteWhileInactive"] is False
    assert applied("subscriptionTypesEnabled") == []
    assert applied("entryFilters") == {"entryFilterNames": ""}
    assert applied("retention") == {"retentionTimeInMinutes": 7 * 24 * 60, "retentionSizeInMB": -1}
    half = {**of_broker, "limitTime": 5}
    admin.do("POST", f"namespaces/{name}/backlogQuota?backlogQuotaType=message_age", half)
    assert applied("backlogQuotaMap") == {**quotas, "message_age": half}


def test_policies_of_no_namespace_are_refused_in_pulsars_words(admin: Admin):
    for policy in ("retention", "backlogQuotaMap", "publishRate"):
        assert admin("GET", f"namespaces/public/nope/{policy}") == (
            404,
            {"reason": "Namespace does not exist"},
        )


def test_permissions_and_properties_are_kept_and_reported(admin: Admin):
    name = admin.namespace("permissions")
    admin.do("PUT", f"persistent/{name}/t")
    admin.do("POST", f"namespaces/{name}/permissions/r", ["produce"])
    admin.do("POST", f"namespaces/{name}/permissions/r", ["consume"])
    admin.do("POST", f"persistent/{name}/t/permissions/s", ["consume"])
    admin.do("PUT", f"namespaces/{name}/properties", {"a": "b"})
    admin.do("PUT", f"persistent/{name}/t/properties", {"c": "d"})

    assert admin.get(f"namespaces/{name}/permissions") == {"r": ["consume", "produce"]}
    assert admin.get(f"persistent/{name}/t/permissions") == {
        "r": ["consume", "produce"],
        "s": ["consume"],
    }
    assert admin.get(f"namespaces/{name}/properties") == {"a": "b"}
    assert admin.get(f"persistent/{name}/t/properties") == {"c": "d"}
    assert admin("POST", f"namespaces/{name}/permissions/r", ["dance"])[0] == 412
    admin.do("DELETE", f"namespaces/{name}/permissions/r")
    admin.do("DELETE", f"persistent/{name}/t/permissions/s")
    admin.do("DELETE", f"persistent/{name}/t/properties?key=c")
    assert admin.get(f"persistent/{name}/t/permissions") == {}
    assert admin.get(f"persistent/{name}/t/properties") == {}
    assert admin("DELETE", f"persistent/{name}/t/permissions/s")[0] == 204


def test_one_property_is_its_text_without_quotes(admin: Admin):
    name = admin.namespace("one-property")
    admin.do("PUT", f"namespaces/{name}/property/a/b")

    assert admin.request("GET", f"namespaces/{name}/property/a").text == "b"
    assert admin.request("DELETE", f"namespaces/{name}/property/a").text == "b"
    assert admin("GET", f"namespaces/{name}/property/a") == (204, None)


def test_permissions_on_several_topics_are_granted_at_once(admin: Admin):
    name = admin.namespace("many-topics")
    topics = [f"{name}/a", f"{name}/b"]
    for each in topics:
        admin.do("PUT", f"persistent/{each}")
    grants = [
        {"topic": f"persistent://{each}", "role": "r", "actions": ["consume"]} for each in topics
    ]

    admin.do("POST", "namespaces/grantPermissionsOnTopics", grants)
    assert [admin.get(f"persistent/{each}/permissions") for each in topics] == [
        {"r": ["consume"]},
        {"r": ["consume"]},
    ]
    admin.do("POST", "namespaces/revokePermissionsOnTopics", grants[:1])
    assert admin.get(f"persistent/{topics[0]}/permissions") == {}
    assert admin.get(f"persistent/{topics[1]}/permissions") == {"r": ["consume"]}
    missing = [{"topic": f"persistent://{name}/none", "role": "r", "actions": ["consume"]}]
    assert admin("POST", "namespaces/grantPermissionsOnTopics", missing)[0] == 404


def test_all_policies_of_a_topic_are_removed_at_once(admin: Admin):
    name = admin.namespace("no-policies")
    at = f"persistent/{name}/t"
    admin.do("PUT", at)
    admin.do("PUT", f"{at}/properties", {"a": "b"})
    admin.do("POST", f"{at}/messageTTL?messageTTL=5")
    admin.do("POST", f"{at}/maxProducers", 5)

    admin.do("DELETE", f"{at}/policies")

    assert [admin("GET", f"{at}/{each}") for each in ("messageTTL", "maxProducers")] == [
        (200, None),
        (200, None),
    ]
    assert admin.get(f"{at}/properties") == {"a": "b"}


def test_snapshots_of_deduplication_are_unset_without_a_body(admin: Admin):
    """As Java's client removes the policy."""
    at = f"namespaces/{admin.namespace('snapshots')}/deduplicationSnapshotInterval"
    admin.do("POST", at, 7)

    admin.do("POST", at)

    assert admin("GET", at) == (200, None)


def test_replication_is_to_the_one_cluster(admin: Admin):
    name = admin.namespace("replication")

    assert admin.get(f"namespaces/{name}/replication") == ["standalone"]
    assert admin("POST", f"namespaces/{name}/replication", ["standalone"]) == (204, None)
    assert admin("POST", f"namespaces/{name}/replication", ["standalone", "other"])[0] == 412


def test_old_names_have_their_own_paths(admin: Admin):
    admin.namespace("old-names")
    assert admin("PUT", "/admin/namespaces/acme/eu/shop") == (204, None)
    assert admin("PUT", "/admin/persistent/acme/eu/shop/t/partitions", 2) == (204, None)
    assert admin("GET", "/admin/persistent/acme/eu/shop/t/partitions") == (
        200,
        {"partitions": 2, "deleted": False},
    )
    assert admin("GET", "/admin/namespaces/acme/eu/shop/topics")[1] == [
        "persistent://acme/eu/shop/t-partition-0",
        "persistent://acme/eu/shop/t-partition-1",
    ]
    assert admin("GET", "/admin/namespaces/acme/eu") == (200, ["acme/eu/shop"])
    assert admin("GET", "/admin/namespaces/acme/us") == (200, [])
    assert {"acme/eu/shop", "acme/old-names"} <= set(admin("GET", "/admin/namespaces/acme")[1])
    assert admin("GET", "/admin/namespaces/nobody/eu")[0] == 404
    assert "acme" in admin("GET", "/admin/properties")[1]
    assert admin("GET", "/admin/properties/acme") == admin("GET", "/admin/v2/tenants/acme")
    assert admin("GET", "/admin/tenants")[0] == 404
    for path in ("clusters", "clusters/standalone", "brokers/standalone"):
        assert admin("GET", f"/admin/{path}") == admin("GET", f"/admin/v2/{path}")


def test_roles_of_a_subscription_are_set_reported_and_removed(admin: Admin):
    name = admin.namespace("roles")
    root = f"namespaces/{name}/permissions"
    assert admin.get(f"{root}/subscription") == {}

    admin.do("POST", f"{root}/subscription/billing", ["r", "q", "r"])
    admin.do("POST", f"{root}/subscription/other", ["s"])
    admin.do("DELETE", f"{root}/other/s")
    admin.do("DELETE", f"{root}/billing/q")

    assert admin.get(f"{root}/subscription") == {"billing": ["r"]}
    shown = admin.get(f"namespaces/{name}")["auth_policies"]["subscription_auth_roles"]
    assert shown == {"billing": ["r"]}
    assert admin("POST", f"{root}/subscription/billing", {"r": 1})[0] == 400
    assert admin("GET", "namespaces/acme/none-such/permissions/subscription")[0] == 404


@pytest.mark.parametrize("policy", [name for name, row in POLICIES.items() if row.no_effect])
def test_a_policy_without_effect_is_kept_and_its_reply_has_a_warning(
    admin: Admin, home: str, policy: str
):
    row = POLICIES[policy]
    is_of_namespace = PolicyLevel.NAMESPACE in row.levels
    paths = (*NAMESPACE_PATHS, ALLOWED_CLUSTERS) if is_of_namespace else (REPLICATION,)
    place = f"namespaces/{home}" if is_of_namespace else f"persistent/{home}/t"
    at = f"{place}/{next(each.segment for each in paths if each.policy == policy)}"

    reply = admin.request("POST", at, value_of(policy))

    assert reply.status_code == 204
    assert reply.headers["warning"] == f'299 - "{policy}: {row.no_effect}"'
    assert admin.get(at) == value_of(policy)
    admin.do("DELETE", at)


def test_a_dispatcher_pause_is_set_without_a_body(admin: Admin, home: str):
    at = f"namespaces/{home}/dispatcherPauseOnAckStatePersistent"

    assert admin.get(at) is False
    admin.do("POST", at)
    assert admin.get(at) is True
    admin.do("DELETE", at)


def test_a_policy_of_a_namespace_that_does_not_exist_is_not_found(admin: Admin):
    place = "schemaCompatibilityStrategy"

    assert admin("PUT", f"namespaces/public/none/{place}", "FULL") == (
        404,
        {"reason": "Namespace does not exist"},
    )
    assert admin("PUT", f"namespaces/none/none/{place}", "FULL") == (
        404,
        {"reason": "Tenant does not exist"},
    )


@pytest.mark.parametrize("bundle", ["", f"/{BUNDLE}"])
def test_backlogs_of_a_namespace_are_cleared(admin: Admin, bundle: str):
    name = admin.namespace("clearing" + bundle.strip("/"))
    admin.do("PUT", f"persistent/{name}/t")
    client = pulsar.Client(f"pulsar://{admin.server.doors['pulsar']}")
    for each in ("a", "b"):
        admin.do("PUT", f"persistent/{name}/t/subscription/{each}")
    client.create_producer(f"persistent://{name}/t").send(b"m")
    client.close()

    def backlogs() -> list[int]:
        return [admin.backlog(f"persistent://{name}/t", each) for each in ("a", "b")]

    assert backlogs() == [1, 1]
    admin.do("POST", f"namespaces/{name}{bundle}/clearBacklog/a")
    assert backlogs() == [0, 1]
    admin.do("POST", f"namespaces/{name}{bundle}/clearBacklog")
    assert backlogs() == [0, 0]
    admin.do("POST", f"namespaces/{name}{bundle}/unsubscribe/a")
    assert admin.get(f"persistent/{name}/t/subscriptions") == ["b"]


def test_offload_policies_are_removed_set_or_not(admin: Admin, home: str):
    at = f"namespaces/{home}/offloadPolicies"
    for value in (VALUES["offloadPolicies"], None):
        if value is not None:
            admin.do("POST", at, value)
        admin.do("DELETE", f"namespaces/{home}/removeOffloadPolicies")
        assert admin.get(at) is None
    assert admin("DELETE", "namespaces/acme/none/removeOffloadPolicies")[0] == 404


@pytest.mark.parametrize(
    ("policy", "value", "reason"),
    [
        ("offloadPolicies", {"managedLedgerOffloadDriver": "tape"}, "driver is not supported"),
        ("offloadPolicies", {**VALUES["offloadPolicies"], OFFLOAD_CREDENTIAL: "s"}, "is not kept"),
        ("offloadThresholdInSeconds", -60, "Invalid value for offloadThresholdInSecond"),
        ("offloadDeletionLagMs", -1, "offloadDeletionLagMs"),
    ],
)
def test_offload_policies_that_are_none_are_refused(
    admin: Admin, home: str, policy: str, value: Any, reason: str
):
    code, answer = admin("POST", f"namespaces/{home}/{policy}", value)
    assert code == 412
    assert reason in answer["reason"]


def test_offload_thresholds_are_among_the_policies_of_a_namespace(admin: Admin):
    name = admin.namespace("offloaded")
    admin.do("PUT", f"namespaces/{name}/offloadThreshold", 5)
    admin.do("PUT", f"namespaces/{name}/offloadThresholdInSeconds", 60)

    found = admin.get(f"namespaces/{name}")

    assert (found["offload_threshold"], found["offload_threshold_in_seconds"]) == (5, 60)


def test_a_topic_has_the_offload_policies_of_its_namespace_until_it_has_its_own(
    admin: Admin, home: str
):
    own = {**VALUES["offloadPolicies"], "managedLedgerOffloadBucket": "own"}
    namespace, topic = (
        f"{each}/offloadPolicies" for each in (f"namespaces/{home}", f"persistent/{home}/t")
    )

    admin.do("POST", namespace, VALUES["offloadPolicies"])
    assert admin.get(topic) is None
    assert admin.get(f"{topic}?applied=true") == VALUES["offloadPolicies"]
    admin.do("POST", topic, own)
    assert admin.get(topic) == admin.get(f"{topic}?applied=true") == own
    admin.do("DELETE", topic)
    assert admin.get(f"{topic}?applied=true") == VALUES["offloadPolicies"]
    admin.do("DELETE", namespace.replace("offloadPolicies", "removeOffloadPolicies"))
    assert admin.get(topic) is None


def test_a_topic_is_in_the_one_cluster(admin: Admin, home: str):
    at = f"persistent/{home}/t/replication"

    admin.do("POST", at, ["standalone"])
    assert admin.get(at) == ["standalone"]
    assert admin("POST", at, ["other"])[0] == 412
    admin.do("DELETE", at)
