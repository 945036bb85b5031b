"""The schema of a topic in Pulsar's registry, over HTTP."""

from __future__ import annotations

import ssl

from trilogue.client.pulsar.topic_names import full_name, http_path
from trilogue.spark.errors import OptionError
from trilogue.spark.payload.registered_schema import RegisteredSchema
from trilogue.spark.payload.registry_http import NOT_FOUND, OK, fetch_json


def fetch_schemas(
    url: str, topic: str, token: str | None, tls: ssl.SSLContext | None
) -> list[RegisteredSchema]:
    """Return the versions of a topic's schema, newest first, typed as Pulsar does; OptionError."""
    if not url.startswith(("http://", "https://")):
        raise OptionError(f"option 'admin.url' takes http://host:port, not {url!r}")
    _, _, path = http_path(full_name(topic)).partition("/")
    try:
        status, body = fetch_json(
            f"{url.rstrip('/')}/admin/v2/schemas/{path}/schemas",
            authorization="" if token is None else f"Bearer {token}",
            tls=tls,
        )
        found = body["getSchemaResponses"] if status == OK else []
        if found:
            found.sort(key=lambda one: -int(one["version"]))
            return [RegisteredSchema(str(one["type"]), str(one["data"])) for one in found]
    except (AttributeError, OSError, ValueError, KeyError, TypeError) as problem:
        raise OptionError(
            f"no schema registry answered at {url} ({problem}): check option 'admin.url', or give "
            "option 'payloadSchema'"
        ) from problem
    reason = "has no schema there" if status in {OK, NOT_FOUND} else f"HTTP {status}"
    raise OptionError(f"topic {topic}: {reason} ({url}); give option 'payloadSchema'")
