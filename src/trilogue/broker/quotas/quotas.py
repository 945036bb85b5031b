"""Client quotas: how much an entity may use in a second. Stored in meta, enforced by token buckets.

The entity of a quota (`QuotaEntity`) has up to three parts: a user, a client id, an address. A part
is a name, or the default, which holds for every name without a quota of its own; an address stands
alone. For a user with a client id the first of these that has a quota holds, for each kind of quota
on its own (KIP-13, KIP-55, KIP-257):

    user and client id · user and default client id · user · default user and client id ·
    default user and default client id · default user · client id · default client id

The bucket belongs to the entity that is named or, by default, would be: a quota of a user is shared
by all client ids of the user, one of a client id by all users, one of both is theirs alone.

Meta has one setting for each entity, where "" is the default and null an absent part:
`kafka/quotas/["user","client",null]` = `{"produced": 1048576}`. Changes are decided here and
returned as a `MetadataChange`; they hold for everything used after it. A bucket whose rate changed
begins full.

For the hot path, `active` is whether there is any quota at all, and `generation` moves when
quotas change, so that callers can cache their buckets.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from ipaddress import ip_address
from typing import NamedTuple

import msgspec

from trilogue.broker.errors import ConcurrentChange, InUse, InvalidRequest
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.quotas.token_bucket import TokenBucket
from trilogue.log.errors import CorruptLog
from trilogue.meta.operations import DeleteSetting, Op, PutSetting, SettingIs

PREFIX = "kafka/quotas/"
DEFAULT = ""  # for every name without a quota of its own
QUOTAS_MAX = 10_000
NAME_SIZE_MAX = 1_024  # characters of a user's name or a client id
BUCKETS_MAX = 20_000  # of the entities used last
WHOLE_MAX = float(2**63)


class QuotaKind(Enum):
    """What is limited; the values are stored in meta."""

    PRODUCED = "produced"  # bytes a second
    FETCHED = "fetched"  # bytes a second
    WORK = "work"  # seconds of the server's loop a second, in hundredths
    CHANGES = "changes"  # partitions that are made or deleted a second
    CONNECTIONS = "connections"  # new ones a second


CLIENT_QUOTAS = (QuotaKind.PRODUCED, QuotaKind.FETCHED, QuotaKind.WORK, QuotaKind.CHANGES)
WHOLE = {QuotaKind.PRODUCED, QuotaKind.FETCHED, QuotaKind.CONNECTIONS}  # no fractions


class QuotaEntity(NamedTuple):
    """The entity of a quota: names, "" for the default, None for an absent part."""

    user: str | None = None
    client: str | None = None
    address: str | None = None


class ClientBuckets(NamedTuple):
    """The buckets of one user with one client id; None: no quota."""

    produced: TokenBucket | None = None
    fetched: TokenBucket | None = None
    work: TokenBucket | None = None
    changes: TokenBucket | None = None


NO_BUCKETS = ClientBuckets()
Rates = dict[QuotaKind, float]


class Quotas:
    """All quotas of a node and their buckets."""

    def __init__(self, settings: Mapping[str, str], *, burst_s: float = 1.0) -> None:
        self.burst_s = burst_s
        self.generation = 0
        self.active = False
        self.waits: Counter[QuotaKind] = Counter()  # how often a client was throttled
        self.waited_s: dict[QuotaKind, float] = dict.fromkeys(QuotaKind, 0.0)
        self._texts: dict[str, str] = {}
        self._rates: dict[QuotaEntity, Rates] = {}
        self._known: OrderedDict[tuple[str, str], ClientBuckets] = OrderedDict()
        self._buckets: OrderedDict[tuple[QuotaKind, QuotaEntity], TokenBucket] = OrderedDict()
        for key, text in settings.items():
            if key.startswith(PREFIX):
                self._load(key, text)

    # -- quotas

    def __iter__(self) -> Iterator[tuple[QuotaEntity, Rates]]:
        """Iterate over the entities that have quotas, with their rates."""
        return iter(list(self._rates.items()))

    def __len__(self) -> int:
        return len(self._rates)

    def change_burst(self, burst_s: float) -> None:
        """Set what a quota allows at once after a pause; buckets begin full."""
        self.burst_s = burst_s
        self._known.clear()
        self._buckets.clear()
        self.generation += 1

    # -- buckets

    def buckets(self, user: str, client: str) -> ClientBuckets:
        """Return the buckets of a user with a client id."""
        if not self.active:
            return NO_BUCKETS
        known = self._known.get((user, client))
        if known is None:
            known = ClientBuckets(*(self._find(bound, user, client) for bound in CLIENT_QUOTAS))
            self._known[user, client] = known
            if len(self._known) > BUCKETS_MAX:
                self._known.popitem(last=False)
        return known

    def connection_wait_s(self, address: str, now_s: float) -> float:
        """Return by how many seconds a connection from an address is too early.

        A connection that is not too early is counted.
        """
        if not self.active:
            return 0.0
        address = address.removeprefix("::ffff:")  # IPv4, seen by a socket of both kinds
        for entity in (QuotaEntity(address=address), QuotaEntity(address=DEFAULT)):
            rate = self._rates.get(entity, {}).get(QuotaKind.CONNECTIONS)
            if rate is not None:
                bucket = self._bucket(QuotaKind.CONNECTIONS, QuotaEntity(address=address), rate)
                wait_s = bucket.wait_s(now_s)
                if not wait_s:
                    bucket.take_tokens(1.0, now_s)
                return wait_s
        return 0.0

    def record_wait(self, kind: QuotaKind, wait_s: float) -> None:
        """Count that a client has to wait for its quota, for the metrics."""
        self.waits[kind] += 1
        self.waited_s[kind] += wait_s

    def _find(self, bound: QuotaKind, user: str, client: str) -> TokenBucket | None:
        both, users, clients = (
            QuotaEntity(user, client),
            QuotaEntity(user),
            QuotaEntity(None, client),
        )
        for entity, counted in (
            (both, both),
            (QuotaEntity(user, DEFAULT), both),
            (users, users),
            (QuotaEntity(DEFAULT, client), both),
            (QuotaEntity(DEFAULT, DEFAULT), both),
            (QuotaEntity(DEFAULT), users),
            (clients, clients),
            (QuotaEntity(None, DEFAULT), clients),
        ):
            rate = self._rates.get(entity, {}).get(bound)
            if rate is not None:
                return self._bucket(bound, counted, rate)
        return None

    def _bucket(self, bound: QuotaKind, entity: QuotaEntity, rate: float) -> TokenBucket:
        if bound is QuotaKind.WORK:
            rate /= 100
        bucket = self._buckets.get((bound, entity))
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[bound, entity] = TokenBucket(rate, self.burst_s)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end((bound, entity))
        return bucket

    # -- changes

    def plan_alter(
        self, changes: Sequence[tuple[QuotaEntity, Mapping[QuotaKind, float | None]]]
    ) -> MetadataChange[None]:
        """Return the change that sets quotas, or removes those that are None.

        Each entity and rate was checked, and no entity comes twice.
        """
        rows = {_key(entity): self._text(entity, change) for entity, change in changes}
        more = sum(bool(text) for key, text in rows.items() if key not in self._texts)
        if len(self._rates) + more > QUOTAS_MAX:
            raise InUse(f"there may be {QUOTAS_MAX} quotas")

        def ops() -> list[Op]:
            return [
                PutSetting(key, text) if text else DeleteSetting(key) for key, text in rows.items()
            ]

        def apply() -> None:
            for key, text in rows.items():
                self._load(key, text)

        return MetadataChange(
            ops,
            tuple(SettingIs(key, self._texts.get(key)) for key in rows),
            apply,
            on_conflict=ConcurrentChange("a quota was changed meanwhile"),
        )

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply a setting that another node wrote; None: it was deleted."""
        self._load(key, text or "")

    def _text(self, entity: QuotaEntity, change: Mapping[QuotaKind, float | None]) -> str:
        rates = {**self._rates.get(entity, {}), **change}
        kept = {bound.value: rate for bound, rate in rates.items() if rate is not None}
        return msgspec.json.encode(kept).decode() if kept else ""

    def _load(self, key: str, text: str) -> None:
        try:
            entity = QuotaEntity(*msgspec.json.decode(key.removeprefix(PREFIX), type=_ENTITY))
            rates = msgspec.json.decode(text or "{}", type=dict[QuotaKind, float])
        except msgspec.DecodeError as error:
            raise CorruptLog(f"what meta keeps of {key} cannot be read") from error
        if rates:
            self._texts[key] = text
            self._rates[entity] = rates
        else:
            self._texts.pop(key, None)
            self._rates.pop(entity, None)
        self._known.clear()
        self.active = bool(self._rates)
        self.generation += 1


_ENTITY = tuple[str | None, str | None, str | None]


def _key(entity: QuotaEntity) -> str:
    return PREFIX + msgspec.json.encode(tuple(entity)).decode()


def check_entity(entity: QuotaEntity) -> QuotaEntity:
    """Return a valid entity, its address in canonical form; InvalidRequest."""
    if entity == QuotaEntity():
        raise InvalidRequest("a quota needs a user, a client id or an address")
    if entity.address is not None:
        if (entity.user, entity.client) != (None, None):
            raise InvalidRequest("a quota of an address is for no user and no client id")
        if entity.address != DEFAULT:
            return QuotaEntity(address=read_address(entity.address))
    for name in (entity.user, entity.client):
        if name is not None and len(name) > NAME_SIZE_MAX:
            raise InvalidRequest(f"a name has at most {NAME_SIZE_MAX} characters")
    return entity


def read_address(text: str) -> str:
    """Return an address in canonical form; InvalidRequest for a host name."""
    try:
        return str(ip_address(text))
    except ValueError as error:
        raise InvalidRequest(f"{text} is no address") from error


def check_rate(entity: QuotaEntity, bound: QuotaKind, rate: float) -> float:
    """Return a valid rate for an entity; InvalidRequest."""
    if (bound is QuotaKind.CONNECTIONS) != (entity.address is not None):
        raise InvalidRequest("connections are bounded by address, and everything else is not")
    if not 0 < rate < WHOLE_MAX:
        raise InvalidRequest("a quota is a positive number below 2^63")
    if bound in WHOLE and rate != int(rate):
        raise InvalidRequest("a quota of bytes or connections is a whole number")
    return rate
