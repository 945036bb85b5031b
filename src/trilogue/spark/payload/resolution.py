"""Finds the schema of a payload: in the options, or in the registry of the topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.spark.read_options import ReadOptions

if TYPE_CHECKING:
    from trilogue.spark.payload.payload import Payload


def resolve_payload(options: ReadOptions) -> Payload | None:
    """Return the payload with its schema; the registry gives it where the options do not."""
    wanted = options.payload
    if wanted is None:
        return None
    from trilogue.spark.payload.payload import make_payload

    registered = None
    if wanted.schema_text is None and wanted.descriptor is None:
        from trilogue.spark.payload.registry import fetch_schema
        from trilogue.spark.topic_lookup import find_lookup

        assert wanted.admin_url is not None
        topics = sorted({topic for topic, _ in find_lookup(options).partitions(options)})
        tls = options.security.make_context()
        registered = fetch_schema(wanted.admin_url, topics, wanted.admin_token, tls)
    return make_payload(wanted, registered)
