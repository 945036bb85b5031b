"""Where the leader of a partition is: structures of Produce v10+ and Fetch v12+ (KIP-951)."""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int32, message, since, string


@message(frozen=True)
class LeaderIdAndEpoch:
    """The leader of a partition and its epoch; -1 is unknown."""

    leader_id: int32 = since(0, default=-1)
    leader_epoch: int32 = since(0, default=-1)


@message()
class NodeEndpoint:
    """The address of a leader that the response names."""

    node_id: int32 = since(0)
    host: string = since(0)
    port: int32 = since(0)
    rack: string | None = since(0, null=0, default=None)
