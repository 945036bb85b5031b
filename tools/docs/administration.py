"""What Pulsar's administration serves: policies and paths, from the tables in the code."""

from __future__ import annotations

from collections.abc import Iterator

from tools.docs.blocks import table
from trilogue.broker.topics.policies import POLICIES, Policy
from trilogue.gateway.http.kafka_rest.routes import all_routes as kafka_rest_rows
from trilogue.gateway.http.pulsar.policies import NAMESPACE_PATHS, TOPIC_PATHS
from trilogue.gateway.http.pulsar.routes import OLD_PLACE, all_routes
from trilogue.gateway.http.registry import routes as registry
from trilogue.gateway.http.registry.registry_request import Scope


def policies() -> str:
    """One row for each policy that is served."""
    served = (row for row in POLICIES.values() if not row.refused and not row.no_effect)
    rows = (_served(row) for row in served)
    return table(("policy", "of", "at a namespace", "at a topic", "held by"), rows)


def _served(row: Policy) -> tuple[object, ...]:
    levels = " and ".join(sorted(each.value for each in row.levels))
    at = [
        ", ".join(f"`{path.segment}`" for path in paths if path.policy == row.name)
        for paths in (NAMESPACE_PATHS, TOPIC_PATHS)
    ]
    return f"`{row.name}`", levels, *at, f"`{row.test}`"


def without_effect() -> str:
    """One row for each policy that is kept without effect."""
    rows = ((f"`{row.name}`", row.no_effect) for row in POLICIES.values() if row.no_effect)
    return table(("policy", "why"), rows)


def refused() -> str:
    """One row for each policy that is not."""
    rows = ((f"`{row.name}`", row.refused) for row in POLICIES.values() if row.refused)
    return table(("policy", "why"), rows)


def paths() -> str:
    """One row for each path but those of policies."""
    return table(("methods", "path", "access"), _paths())


def _paths() -> Iterator[tuple[object, ...]]:
    policies = {f"/{path.segment}" for path in (*NAMESPACE_PATHS, *TOPIC_PATHS)}
    policies |= {"/backlogQuota"}
    found: dict[tuple[str, str], list[str]] = {}
    for row in all_routes():
        end = row.path[row.path.rfind("/") :]
        is_policy = end in policies and row.operation.value.endswith("settings")
        if OLD_PLACE in row.path and not row.path.startswith("/lookup"):
            continue  # the same with a cluster
        if not is_policy:
            access = f"{row.operation.value} on {row.resource.value}"
            if row.is_public:
                access = "none"
            found.setdefault((row.path, access), []).append(row.methods)
    for (path, access), methods in found.items():
        yield " ".join(methods), f"`{path}`", access


def kafka_rest_routes() -> str:
    """One row for each path of the REST proxy."""
    found: dict[str, list[str]] = {}
    for row in kafka_rest_rows():
        found.setdefault(row.path, []).append(row.method)
    return table(("methods", "path"), ((" ".join(found[path]), f"`{path}`") for path in found))


def registry_routes() -> str:
    """One row for each path of the schema registry."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in registry.all_routes():
        access = {
            Scope.SUBJECT: f"{row.operation.value} on the topic of the subject",
            Scope.CLUSTER: f"{row.operation.value} on cluster",
            Scope.LISTED: f"{row.operation.value} on the topic of each subject in the reply",
            Scope.NOTHING: "none",
        }[row.scope]
        found.setdefault((row.path, access), []).append(row.method)
    rows = ((" ".join(methods), f"`{path}`", access) for (path, access), methods in found.items())
    return table(("methods", "path", "access"), rows)
