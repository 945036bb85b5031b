"""The schema of a topic in Pulsar's registry, over HTTP."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any, NamedTuple

from trilogue.client.pulsar.topic_names import full_name, http_path
from trilogue.spark.errors import OptionError

TIMEOUT_S = 20.0
ANSWER_MAX = 8 << 20
NOT_FOUND = 404


class RegisteredSchema(NamedTuple):
    """The latest schema of a topic: the type as Pulsar names it, the definition."""

    kind: str
    definition: str


def fetch_schema(
    url: str, topics: Iterable[str], token: str | None, tls: ssl.SSLContext | None
) -> RegisteredSchema:
    """Return the schema that all topics have; OptionError where there is none, or several."""
    if not url.startswith(("http://", "https://")):
        raise OptionError(f"option 'admin.url' takes http://host:port, not {url!r}")
    found: dict[RegisteredSchema, str] = {}
    for topic in topics:
        schema = _fetch_one(url.rstrip("/"), topic, token, tls)
        found.setdefault(schema, topic)
        if len(found) > 1:
            first, second = found.values()
            raise OptionError(
                f"topics {first} and {second} have two schemas: read them one by one, or give "
                "option 'payloadSchema'"
            )
    if not found:
        raise OptionError("payload: no topic to take the schema of; give option 'payloadSchema'")
    return next(iter(found))


def _fetch_one(
    url: str, topic: str, token: str | None, tls: ssl.SSLContext | None
) -> RegisteredSchema:
    _, _, path = http_path(full_name(topic)).partition("/")
    request = urllib.request.Request(f"{url}/admin/v2/schemas/{path}/schema")  # noqa: S310
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=tls) as answer:  # noqa: S310
            body: Any = json.loads(answer.read(ANSWER_MAX))
        return RegisteredSchema(str(body["type"]), str(body["data"]))
    except urllib.error.HTTPError as refused:
        refused.close()
        reason = "has no schema there" if refused.code == NOT_FOUND else f"HTTP {refused.code}"
        raise OptionError(
            f"topic {topic}: {reason} ({url}); give option 'payloadSchema'"
        ) from refused
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise OptionError(
            f"no schema registry answered at {url} ({problem}): check option 'admin.url', or give "
            "option 'payloadSchema'"
        ) from problem
