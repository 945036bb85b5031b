"""Quotas: how much of a thing somebody may use in a second. Kept in meta, counted in meters.

For whom a quota is (`Who`) has up to three parts: a user, a client id, an address. A part is a
name, or the default, which holds for every name that has no quota of its own; an address stands
alone. What holds for a user with a client id is what the first of these says, for each thing apart
(KIP-13, KIP-55, KIP-257):

    user and client id · user and default client id · user · default user and client id ·
    default user and default client id · default user · client id · default client id

The meter that counts belongs to who is named or, by default, would be: a quota of a user is shared
by all client ids of the user, one of a client id by all users, one of both is theirs alone.

In meta one setting for each `Who`: `kafka/quotas/["user","client",null]` = `{"produced": 1048576}`,
where "" is the default and null no part. Changes are decided here and returned as a `Commit`. They
hold for everything that is used after it; a meter whose rate changed begins full.

Of the hot path: `active` says whether there is any quota at all, `generation` whether what somebody
remembers is still so.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from ipaddress import ip_address
from typing import NamedTuple

import msgspec

from trilogue.broker.commit import Commit
from trilogue.broker.errors import InUse, InvalidRequest, Outrun
from trilogue.broker.meter import Meter
from trilogue.log.errors import CorruptLog
from trilogue.meta.port import DeleteSetting, Op, PutSetting, SettingIs

PREFIX = "kafka/quotas/"
DEFAULT = ""  # for everybody who has none of their own
QUOTAS_MAX = 10_000
NAME_SIZE_MAX = 1_024  # characters of a user's name or a client id
METERS_MAX = 20_000  # of those who were seen last
WHOLE_MAX = float(2**63)


class Bound(Enum):
    """What is bounded; the values stand in meta."""

    PRODUCED = "produced"  # bytes a second
    FETCHED = "fetched"  # bytes a second
    WORK = "work"  # seconds of the server's loop a second, in hundredths
    CHANGES = "changes"  # partitions that are made or deleted a second
    CONNECTIONS = "connections"  # new ones a second


OF_CLIENTS = (Bound.PRODUCED, Bound.FETCHED, Bound.WORK, Bound.CHANGES)
WHOLE = {Bound.PRODUCED, Bound.FETCHED, Bound.CONNECTIONS}  # no fractions


class Who(NamedTuple):
    """For whom a quota is: names, "" for the default, None for what makes no difference."""

    user: str | None = None
    client: str | None = None
    address: str | None = None


class Meters(NamedTuple):
    """What counts for one user with one client id; None: no quota."""

    produced: Meter | None = None
    fetched: Meter | None = None
    work: Meter | None = None
    changes: Meter | None = None


NO_METERS = Meters()
Rates = dict[Bound, float]


class Quotas:
    """All quotas of a node and the meters that count."""

    def __init__(self, settings: Mapping[str, str], *, burst_s: float = 1.0) -> None:
        self.burst_s = burst_s
        self.generation = 0
        self.active = False
        self.waits: Counter[Bound] = Counter()  # how often somebody was made to wait
        self.waited_s: dict[Bound, float] = dict.fromkeys(Bound, 0.0)
        self._texts: dict[str, str] = {}
        self._rates: dict[Who, Rates] = {}
        self._known: OrderedDict[tuple[str, str], Meters] = OrderedDict()
        self._meters: OrderedDict[tuple[Bound, Who], Meter] = OrderedDict()
        for key, text in settings.items():
            if key.startswith(PREFIX):
                self._take(key, text)

    # -- what there is

    def __iter__(self) -> Iterator[tuple[Who, Rates]]:
        """For whom there are quotas, and which."""
        return iter(list(self._rates.items()))

    def __len__(self) -> int:
        return len(self._rates)

    # -- what counts

    def meters(self, user: str, client: str) -> Meters:
        """Return what counts for a user with a client id."""
        if not self.active:
            return NO_METERS
        known = self._known.get((user, client))
        if known is None:
            known = Meters(*(self._find(bound, user, client) for bound in OF_CLIENTS))
            self._known[user, client] = known
            if len(self._known) > METERS_MAX:
                self._known.popitem(last=False)
        return known

    def connection_wait_s(self, address: str, now_s: float) -> float:
        """Return how much too early a connection from an address comes; one in time is counted."""
        if not self.active:
            return 0.0
        address = address.removeprefix("::ffff:")  # IPv4, seen by a socket of both kinds
        for who in (Who(address=address), Who(address=DEFAULT)):
            rate = self._rates.get(who, {}).get(Bound.CONNECTIONS)
            if rate is not None:
                meter = self._meter(Bound.CONNECTIONS, Who(address=address), rate)
                wait_s = meter.wait_s(now_s)
                if not wait_s:
                    meter.take(1.0, now_s)
                return wait_s
        return 0.0

    def _find(self, bound: Bound, user: str, client: str) -> Meter | None:
        both, users, clients = Who(user, client), Who(user), Who(None, client)
        for who, counted in (
            (both, both),
            (Who(user, DEFAULT), both),
            (users, users),
            (Who(DEFAULT, client), both),
            (Who(DEFAULT, DEFAULT), both),
            (Who(DEFAULT), users),
            (clients, clients),
            (Who(None, DEFAULT), clients),
        ):
            rate = self._rates.get(who, {}).get(bound)
            if rate is not None:
                return self._meter(bound, counted, rate)
        return None

    def _meter(self, bound: Bound, who: Who, rate: float) -> Meter:
        if bound is Bound.WORK:
            rate /= 100
        meter = self._meters.get((bound, who))
        if meter is None or meter.rate != rate:
            meter = self._meters[bound, who] = Meter(rate, self.burst_s)
            if len(self._meters) > METERS_MAX:
                self._meters.popitem(last=False)
        else:
            self._meters.move_to_end((bound, who))
        return meter

    # -- changes

    def plan_alter(
        self, changes: Sequence[tuple[Who, Mapping[Bound, float | None]]]
    ) -> Commit[None]:
        """Decide to set quotas, or to remove those that are None.

        Each `Who` and rate was checked, and no `Who` comes twice.
        """
        rows = {_key(who): self._text(who, change) for who, change in changes}
        more = sum(bool(text) for key, text in rows.items() if key not in self._texts)
        if len(self._rates) + more > QUOTAS_MAX:
            raise InUse(f"there may be {QUOTAS_MAX} quotas")

        def ops() -> list[Op]:
            return [
                PutSetting(key, text) if text else DeleteSetting(key) for key, text in rows.items()
            ]

        def apply() -> None:
            for key, text in rows.items():
                self._take(key, text)

        return Commit(
            ops,
            tuple(SettingIs(key, self._texts.get(key)) for key in rows),
            apply,
            outrun=Outrun("a quota was changed meanwhile"),
        )

    def _text(self, who: Who, change: Mapping[Bound, float | None]) -> str:
        rates = {**self._rates.get(who, {}), **change}
        kept = {bound.value: rate for bound, rate in rates.items() if rate is not None}
        return msgspec.json.encode(kept).decode() if kept else ""

    def _take(self, key: str, text: str) -> None:
        try:
            who = Who(*msgspec.json.decode(key.removeprefix(PREFIX), type=_WHO))
            rates = msgspec.json.decode(text or "{}", type=dict[Bound, float])
        except msgspec.DecodeError as error:
            raise CorruptLog(f"what meta keeps of {key} cannot be read") from error
        if rates:
            self._texts[key] = text
            self._rates[who] = rates
        else:
            self._texts.pop(key, None)
            self._rates.pop(who, None)
        self._known.clear()
        self.active = bool(self._rates)
        self.generation += 1


_WHO = tuple[str | None, str | None, str | None]


def _key(who: Who) -> str:
    return PREFIX + msgspec.json.encode(tuple(who)).decode()


def check_who(who: Who) -> Who:
    """Return for whom a quota may be, its address spelled in the one way, or say why not."""
    if who == Who():
        raise InvalidRequest("a quota is for somebody")
    if who.address is not None:
        if (who.user, who.client) != (None, None):
            raise InvalidRequest("a quota of an address is for no user and no client id")
        if who.address != DEFAULT:
            return Who(address=read_address(who.address))
    for name in (who.user, who.client):
        if name is not None and len(name) > NAME_SIZE_MAX:
            raise InvalidRequest(f"a name has at most {NAME_SIZE_MAX} characters")
    return who


def read_address(text: str) -> str:
    """Return an address in the one way in which it is compared; names of hosts are none."""
    try:
        return str(ip_address(text))
    except ValueError as error:
        raise InvalidRequest(f"{text} is no address") from error


def check_rate(who: Who, bound: Bound, rate: float) -> float:
    """Return a rate that this may have, or say why it may not."""
    if (bound is Bound.CONNECTIONS) != (who.address is not None):
        raise InvalidRequest("connections are bounded by address, and everything else is not")
    if not 0 < rate < WHOLE_MAX:
        raise InvalidRequest("a quota is a positive number below 2^63")
    if bound in WHOLE and rate != int(rate):
        raise InvalidRequest("a quota of bytes or connections is a whole number")
    return rate
