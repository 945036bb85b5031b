"""Options of the Spark sink, checked before any request."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from trilogue.client.kafka.connection import IN_CLEAR
from trilogue.client.kafka.model import READ_COMMITTED
from trilogue.client.kafka.security import Security
from trilogue.spark.errors import OptionError
from trilogue.spark.options import (
    CONNECTION_OPTIONS,
    check_names,
    parse_integer,
    parse_seconds,
    parse_security,
    parse_servers,
)

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
APPLICATION_BYTES_MAX = 900
"""A transactional id, which is an application's id and two numbers, has at most 1,024 bytes."""
WRITE_OPTIONS = {
    **CONNECTION_OPTIONS,
    "topic": "where rows without a topic column go",
    "path": "same as topic (what save() was given)",
    "compression": "none, gzip, snappy, lz4 or zstd (default lz4)",
    "batchBytes": "size at which a batch is sent (default 512 KiB)",
    "deliveryGuarantee": "at-least-once (default) or exactly-once, which needs a Trilogue server",
    "txnAppId": "exactly-once: the writer whose batches are counted (default of a stream: its "
    "query id)",
    "txnVersion": "batch only, with txnAppId: the number of this batch; one that is committed "
    "already is not written again",
    "transactionTimeout": "exactly-once: the longest time from the first row of a task to the "
    "commit of all tasks (default 15m)",
}

ALIASES = {"kafka.compression.type": "compression"}


class DeliveryGuarantee(enum.Enum):
    """What a reader of committed messages finds after failures."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The checked options of a writer."""

    servers: str
    security: Security = IN_CLEAR
    topic: str | None = None
    codec: int = CODECS["lz4"]
    batch_bytes: int = 512 << 10
    guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE
    application_id: str | None = None
    version: int | None = None
    transaction_timeout_s: float = 900.0

    @property
    def isolation(self) -> int:
        """The isolation of offsets that the sink requests: none."""
        return READ_COMMITTED

    @property
    def is_exactly_once(self) -> bool:
        """Whether rows are written in transactions."""
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        """Check the options of a writer; OptionError if one is invalid."""
        options = check_names(given, WRITE_OPTIONS, ALIASES)
        compression = options.get("compression", "lz4").strip().lower()
        if compression not in CODECS:
            raise OptionError(f"compression takes one of {', '.join(CODECS)}, not {compression!r}")
        made = cls(
            servers=parse_servers(options),
            security=parse_security(options),
            topic=options.get("topic", options.get("path")),
            codec=CODECS[compression],
            batch_bytes=parse_integer(options, "batchBytes") or 512 << 10,
            guarantee=_guarantee(options),
            application_id=options.get("txnAppId"),
            version=_version(options.get("txnVersion")),
            transaction_timeout_s=parse_seconds(options, "transactionTimeout", 900.0),
        )
        made._check_transactions(options)
        return made

    def _check_transactions(self, options: Mapping[str, str]) -> None:
        of_transactions = [
            name for name in ("txnAppId", "txnVersion", "transactionTimeout") if name in options
        ]
        if of_transactions and not self.is_exactly_once:
            raise OptionError(f"option {of_transactions[0]!r} needs deliveryGuarantee=exactly-once")
        name = self.application_id
        if name is not None and not 0 < len(name.encode()) <= APPLICATION_BYTES_MAX:
            raise OptionError(f"option 'txnAppId' takes 1 to {APPLICATION_BYTES_MAX} bytes")

    def for_batch(self) -> WriteOptions:
        """Return self; OptionError where a batch has no number to be known by."""
        if (self.application_id is None) != (self.version is None):
            raise OptionError("txnAppId and txnVersion of a batch are given together")
        return self

    def for_stream(self) -> WriteOptions:
        """Return self; OptionError for an option of batches only."""
        if self.version is not None:
            raise OptionError("txnVersion is for batches only: a stream counts its micro-batches")
        return self


def _guarantee(options: Mapping[str, str]) -> DeliveryGuarantee:
    text = options.get("deliveryGuarantee", "at-least-once").strip().lower()
    try:
        return DeliveryGuarantee(text)
    except ValueError:
        raise OptionError(
            f"option 'deliveryGuarantee' takes at-least-once or exactly-once, not {text!r}"
        ) from None


def _version(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) >= 2**63:
        raise OptionError(f"option 'txnVersion' takes a whole number from 0 on, not {text!r}")
    return int(text)
