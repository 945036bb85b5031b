"""Oracle: kio, generated from Kafka's definitions, reads and writes the same bytes."""

from __future__ import annotations

import importlib
import io
import re
from pathlib import Path

import kio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from tests.wire.kafka.instances import SPOKEN, Spoken, messages, newest
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.schema import Field
from trilogue.wire.kafka.errors import ErrorCode

KIO = Path(kio.__file__).parents[1]
few = settings(
    max_examples=10, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)


def narrowed(field: Field) -> st.SearchStrategy[object] | None:
    """kio maps codes to an enum and milliseconds to times: only values that these can hold."""
    if field.name.endswith("error_code"):
        return st.sampled_from([int(code) for code in KioErrorCode])
    if re.match("(issue|expiry|max)_timestamp", field.name):  # of delegation tokens
        return st.integers(0, 0x7FFFFFFF)
    if re.search("_ms$|timestamp$", field.name):
        return st.integers(-1, 0x7FFFFFFF)
    return None


def kio_module(spoken: Spoken) -> str:
    """The name of kio's module for a message and version, whether there is one or not."""
    *words, kind = re.findall("[A-Z][a-z]*", spoken.cls.__name__)
    return f"kio.schema.{'_'.join(words).lower()}.v{spoken.version}.{kind.lower()}"


def has_module(name: str) -> bool:
    """Without an import: kio has hundreds of modules, and each process collects this file."""
    return (KIO / (name.replace(".", "/") + ".py")).exists()


BOTH = [spoken for spoken in SPOKEN if has_module(kio_module(spoken))]


def test_kio_has_what_this_oracle_needs():
    missing = {str(spoken) for spoken in SPOKEN} - {str(spoken) for spoken in BOTH}

    assert missing == {
        f"{name}{kind}-v{version}"
        for name, first in [
            ("Produce", 3), ("Fetch", 4), ("ListOffsets", 1), ("OffsetCommit", 2),
            ("OffsetFetch", 1), ("CreateTopics", 2), ("DeleteTopics", 1), ("DescribeConfigs", 1),
            ("OffsetForLeaderEpoch", 2), ("AlterReplicaLogDirs", 1), ("DescribeLogDirs", 1),
            ("DescribeAcls", 1), ("CreateAcls", 1), ("DeleteAcls", 1), ("WriteTxnMarkers", 1),
            ("CreateDelegationToken", 1), ("RenewDelegationToken", 1),
            ("ExpireDelegationToken", 1), ("DescribeDelegationToken", 1),
            ("LeaderAndIsr", 8), ("StopReplica", 5), ("UpdateMetadata", 9),
            ("ControlledShutdown", 4),
            ("CommitTransactions", 1), ("DescribeCommittedBatch", 1),  # ours alone
        ]
        for kind in ("Request", "Response")
        for version in range(first)
    }  # fmt: skip


@pytest.mark.parametrize("spoken", [newest(each, pytest.mark.long) for each in BOTH])
@few
@given(data=st.data())
def test_kio_reads_ours_and_writes_the_same_bytes(spoken, data):
    cls, version = spoken
    theirs = getattr(importlib.import_module(kio_module(spoken)), cls.__name__)
    message = data.draw(messages(cls, version, narrowed))
    ours = bytearray()
    encoder(cls, version)(message, ours)

    parsed, size = entity_reader(theirs)(bytes(ours), 0)
    again = io.BytesIO()
    entity_writer(theirs)(again, parsed)
    back, end = decoder(cls, version)(again.getvalue())

    assert size == len(ours)
    assert again.getvalue() == bytes(ours)
    assert end == size
    assert back == message


def test_error_codes_are_those_of_kio():
    ours = {code.value: (code.name, code.retriable) for code in ErrorCode}
    theirs = {code.value: (code.name.upper(), code.retriable) for code in KioErrorCode}

    assert {code: pair for code, pair in ours.items() if code in theirs} == theirs
    assert ours.keys() - theirs.keys() <= set(range(128, 134))
