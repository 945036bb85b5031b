"""Why answers differ: the first pattern that a call matches names the reason."""

from __future__ import annotations

import re

ONE_CLUSTER = "one cluster, whose name is a setting; others are refused"
REASONS: list[tuple[str, str]] = [
    (r"getClusters|getCluster |Cluster other|PeerCluster", ONE_CLUSTER),
    (r"Migration", "one cluster: nothing is moved to another"),
    (r"FailureDomain|IsolationPolic", "one broker: topics are not placed by policies"),
    (r"getRuntimeConfigurations", "settings of Trilogue that Pulsar knows"),
    (r"getDynamicConfigurationNames", "settings that are dynamic in Trilogue"),
    (r"getInternalConfigurationData", "no metadata store"),
    (r"getLoadReport", "this Pulsar runs without a load manager"),
    (r"MBeans|Allocator", "no Java virtual machine"),
    (r"[bB]ookie|BookieAffinity", "no bookies"),
    (r"tenants.getTenants", "no tenant for functions and events"),
    (r"delete(Tenant|Namespace).* true", "forced deletion is a setting of Pulsar, off by default"),
    (r"getPolicies|getBundles|[bB]undle|TopicHash", "a namespace has one bundle"),
    (r"acme/standalone/", "names with a cluster belong to namespaces of that name, which exist"),
    (r"AntiAffinity", "one broker"),
    (r"EntryFilters", "no foreign code runs in Trilogue"),
    (r"ResourceGroup", "no resource groups"),
    (r"[oO]ffload", "segments are moved by the node's own settings; policies are kept"),
    (r"eplicat", "one cluster: nothing is replicated"),
    (r"[sS]hadow", "no shadow topics"),
    (r"^topics.get\w*InternalStats", "cursors and schemas have no ledgers"),
    (r"compactionStatus", "Pulsar still compacts"),
    (r"clearNamespaceBacklogForSubscription", "Pulsar fails where one topic has no such name"),
    (r"expireMessages .*latest", "Pulsar takes no id behind the last message"),
    (r"non_persistent", "partitions are listed before their first use"),
    (r"non-persistent", "Pulsar fails inside"),
    (r"terminateTopic", "the id of the partition"),
    (r"SchemaMetadata", "schemas have no ledgers"),
    (r"testCompatibility", "Pulsar fails with an error of its own instead of the answer"),
    (r"deleteSchema", "there is no schema to delete"),
    (r"^transactions.scale", "as many coordinators as slots"),
    (r"^transactions.*Internal", "transactions have no logs of their own"),
    (
        r"^transactions.*BufferStats .*found|PendingAckStats .*first true",
        "no snapshots",
    ),
    (r"^transactions.*(InBuffer|InPendingAck)Stats", "Trilogue knows that there is no transaction"),
    (r"^transactions.*PendingAckStats .*missing", "Pulsar fails inside"),
    (r"^transactions", "this Pulsar loads a coordinator for its first client; Trilogue has them"),
    (r"^resourceQuotas", "no load balancer that quotas would be for"),
    (r"getTopics$", "topics of Pulsar's own"),
]


def reason(call: str) -> str:
    """Return why the answers to a call differ; nothing where no pattern matches."""
    return next((text for pattern, text in REASONS if re.search(pattern, call)), "")
