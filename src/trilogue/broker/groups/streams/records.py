"""The rows of a streams group and of its members, as they are stored (groups/membership.py).

group   u8 kind 3 | u8 version 1 | u32 epoch | JSON of its topology (topology.py)
member  u8 version 1 | JSON of `MemberRow`
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeVar

import msgspec

from trilogue.broker.facts import VERSION, ByteReader
from trilogue.broker.groups.reconciliation import STATES
from trilogue.broker.groups.streams.members import Endpoint, StreamsGroupMember
from trilogue.broker.groups.streams.tasks import TaskRole, Tasks
from trilogue.broker.groups.streams.topology import Topology

STREAMS_ROW: Final = 3  # the first byte of the group's row

NO_TOPOLOGY: Final = b"null"

_GROUP: Final = Struct(">BBI")
_MEMBER: Final = Struct(">B")

T = TypeVar("T")
TaskRows = list[tuple[TaskRole, str, list[int]]]


class MemberRow(msgspec.Struct, omit_defaults=True):
    """A member as it is stored."""

    epoch: int
    previous_epoch: int
    state: int  # of STATES
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    client_id: str
    client_host: str
    rack: str | None = None
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] = ()
    revoking: TaskRows = []
    owned: list[tuple[int, TaskRows]] = []  # since which epoch


def is_streams_group(row: bytes) -> bool:
    """Whether the row of a group is one of these."""
    return row[:1] == bytes([STREAMS_ROW])


def encode_group(epoch: int, topology: Topology | None) -> bytes:
    """Encode the row of a group."""
    return _GROUP.pack(STREAMS_ROW, VERSION, epoch) + (
        topology.encoded if topology else NO_TOPOLOGY
    )


def decode_group(data: bytes) -> tuple[int, Topology | None]:
    """Return the epoch and the topology in the row of a group; CorruptLog."""
    with ByteReader("streams group", data) as reader:
        _, version, epoch = reader.read_struct(_GROUP)
        reader.check_version(version)
        text = reader.read_bytes(len(data) - _GROUP.size)
        return epoch, None if text == NO_TOPOLOGY else _decode_json(text, Topology)


def encode_member(member: StreamsGroupMember) -> bytes:
    """Encode the row of a member."""
    row = MemberRow(
        epoch=member.epoch,
        previous_epoch=member.previous_epoch,
        state=STATES.index(member.state),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rack=member.rack,
        endpoint=member.endpoint,
        tags=member.tags,
        revoking=_task_rows(member.revoking),
        owned=[(epoch, _task_rows(tasks)) for epoch, tasks in member.assignment_epochs],
    )
    return _MEMBER.pack(VERSION) + msgspec.json.encode(row)


def decode_member(member_id: str, data: bytes) -> StreamsGroupMember:
    """Decode the row of a member; CorruptLog."""
    with ByteReader("streams group member", data) as reader:
        (version,) = reader.read_struct(_MEMBER)
        reader.check_version(version)
        row = _decode_json(reader.read_bytes(len(data) - _MEMBER.size), MemberRow)
        if not 0 <= row.state < len(STATES):
            raise ValueError(f"a member in state {row.state}")
        member = StreamsGroupMember(
            member_id,
            rack=row.rack,
            process_id=row.process_id,
            topology_epoch=row.topology_epoch,
            endpoint=row.endpoint,
            tags=row.tags,
            client_id=row.client_id,
            client_host=row.client_host,
            rebalance_timeout_ms=row.rebalance_timeout_ms,
            epoch=row.epoch,
            previous_epoch=row.previous_epoch,
            state=STATES[row.state],
            revoking=_tasks(row.revoking),
            assignment_epochs=[(epoch, _tasks(tasks)) for epoch, tasks in row.owned],
        )
        member.restore_assigned()
        return member


def _task_rows(tasks: Tasks) -> TaskRows:
    return [(role, name, sorted(numbers)) for (role, name), numbers in tasks.items()]


def _tasks(rows: TaskRows) -> Tasks:
    return {(role, name): frozenset(numbers) for role, name, numbers in rows}


def _decode_json(text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
