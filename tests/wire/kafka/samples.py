"""Messages with what the real ones lack: every type, in every form of declaration."""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    batches,
    blob,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    since,
    string,
    uint16,
    uint32,
    uuid,
)

FLEXIBLE = 3
LAST = 5


@message(frozen=True)
class Point:
    x: int32 = since(0, default=-1)
    y: float64 = since(0)


@message()
class Named:
    name: string = since(0)
    note: string | None = since(4, null=4, tag=0, default=None)
    point: Point = since(1)


@message()
class Optional:
    point: Point | None = since(0, null=0, default=None)


@message(versions=(0, LAST), flexible=FLEXIBLE)
class Everything:
    small: int8 = since(0)
    short: int16 = since(0)
    unsigned: uint16 = since(0)
    unsigned_long: uint32 = since(0)
    old: int32 = since(0, until=1, default=9)
    long: int64 = since(0)
    real: float64 = since(0)
    flag: boolean = since(0, default=True)
    identity: uuid = since(0)
    text: string = since(0)
    maybe_text: string | None = since(0, null=2, default="none yet")
    data: blob = since(0)
    maybe_data: blob | None = since(1, null=1)
    raw: batches | None = since(0, null=0)
    numbers: list[int32] = since(0)
    shorts: list[int16] | None = since(0, null=1)
    identities: list[uuid] = since(0)
    texts: list[string] = since(0)
    blobs: list[blob] = since(2, until=4)
    named: list[Named] = since(0)
    maybe_named: list[Named] | None = since(2, null=3, default=None)
    point: Point = since(0)
    optional: list[Optional] = since(0)
    maybe: Named | None = since(1, null=1, default=None)
    tagged_number: int64 = since(3, tag=0, default=-1)
    tagged_list: list[Named] = since(3, tag=2)
    tagged_point: Point = since(3, tag=1)
    tagged_text: string | None = since(3, null=3, tag=7, tagged=4, default=None)
    tagged_maybe: Named | None = since(3, null=3, tag=300, default=None)
    tagged_numbers: list[int32] | None = since(3, null=4, tag=301)


@message(versions=(0, 1), flexible=0)
class Tagged:
    number: int32 = since(0, tag=5, tagged=1, default=3)
    name: string = since(1, tag=2)


@message(versions=(0, 0))
class Tail:
    records: batches | None = since(0, null=0)
