"""One request of TubeMQ's web API: its parameters, read strictly, and the shapes of answers.

Every answer has the status 200 (wire fact of a real 2.4.0); whether it went well is in its JSON:

    {"result":true,"errCode":0,"errMsg":"OK","data":[...],"count":n}     the master's methods
    {"result":true,"errCode":0,"errMsg":"Success!","dataSet":[...],"totalCnt":n}  the broker's
    {"result":false,"errCode":400,"errMsg":"..."}                        refused as a whole
    {"brokerId":1,"topicName":"t","success":false,"errCode":402,"errInfo":"..."}  one of several

A parameter has a long and a short name; the long one goes first. What administrators say of several
things comes as lists with commas, or as a JSON array of objects with the same names.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from trilogue.broker.access import Operation, Principal, ResourceKind
from trilogue.broker.broker import Broker
from trilogue.broker.errors import BrokerError, InvalidName
from trilogue.broker.group_rules import GroupRules, Stamp, check_group
from trilogue.broker.names import TopicName, parse_tubemq, tubemq_can_spell
from trilogue.broker.topic import Topic
from trilogue.gateway.http.permitted import Permitted
from trilogue.gateway.tubemq.door import BROKER_ID, TubeDoor

NOT_FOUND, EXISTS, UNCHANGED, NOT_NOW, BAD_VALUE = 401, 402, 403, 406, 407  # of one of several
REFUSED = 400
NAMES_MAX = 1_000  # in one list
RECORDS_MAX = 1_000  # in one JSON array
PAIRS_MAX = 10_000  # of topics, groups and brokers in one request: each is a piece of work
VALUE_SIZE_MAX = 512 << 10
USER = re.compile(r"[a-zA-Z]\w{1,63}", re.ASCII)
DIGITS_MAX = 19
NOBODY = "-"
UNDEFINED = -2  # in place of a number that there is none of (wire fact)

# The other names of parameters (wire fact: WebFieldDef of a real server).
SHORT: Final[Mapping[str, str]] = {
    "topicName": "topic",
    "groupName": "group",
    "consumeGroup": "group",
    "partitionId": "pid",
    "createUser": "cur",
    "modifyUser": "mur",
    "manualOffset": "offset",
    "msgCount": "cnt",
    "filterConds": "flts",
    "requireRealOffset": "dko",
    "withIp": "ip",
    "divide": "div",
    "sourceGroupName": "srcGroup",
    "targetGroupName": "tgtGroup",
    "manualSet": "manSet",
    "offsetJsonInfo": "offsetInfo",
    "onlyMemory": "onlyMem",
    "confModAuthToken": "authToken",
    "numTopicStores": "numStore",
    "numPartitions": "numPart",
    "unflushThreshold": "unfDskMsgCnt",
    "unflushInterval": "unfDskInt",
    "unflushDataHold": "unfDskDataSize",
    "memCacheMsgSizeInMB": "cacheSizeInMB",
    "memCacheMsgCntInK": "unfMemMsgCnt",
    "memCacheFlushIntvl": "unfMemInt",
    "acceptPublish": "accPub",
    "acceptSubscribe": "accSub",
    "deletePolicy": "delPolicy",
    "topicJsonSet": "topicSet",
    "qryPriorityId": "qryPriId",
    "flowCtrlInfo": "flowCtrlSet",
    "filterCondJsonSet": "filterJsonSet",
    "dataStoreType": "dStType",
    "dataPath": "dPath",
    "attributes": "attrs",
    "flowCtrlEnable": "fCtrlEn",
    "resCheckEnable": "resChkEn",
    "alwdBrokerClientRate": "abcr",
    "allowedBClientRate": "abcr",
    "disableCsmRsn": "dsCsmRsn",
    "filterEnable": "fltEn",
    "topicStatusId": "tStsId",
    "enableAuthControl": "acEn",
    "consumeEnable": "csmEn",
    "groupCsmJsonSet": "csmJsonSet",
    "withTopic": "wTopic",
    "withGroupAuthInfo": "wGAI",
    "withDeployInfo": "wDI",
    "topicCtrlJsonSet": "tCtrlSet",
    "groupResCtrlJsonSet": "gResCtrlSet",
    "groupNameJsonSet": "gJsonSet",
    "consumerId": "csmId",
    "onlyAbnormal": "oAbn",
    "withDetail": "wDtl",
    "recordTime": "rt",
}


class Wrong(Exception):
    """A request that is refused as a whole: 400 and a sentence."""


class Failed(Exception):
    """One of several things cannot be done: a code of its own and a sentence."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Asked(Permitted):
    """One request, or one of the records that it brings."""

    door: TubeDoor
    params: Mapping[str, str]
    principal: Principal
    operation: Operation
    outer: Mapping[str, str] = field(default_factory=dict)  # of the request that brought it
    web_port: int = UNDEFINED  # where it came in

    @property
    def broker(self) -> Broker:
        """The broker behind the doors."""
        return self.door.broker

    @property
    def rules(self) -> GroupRules:
        """What administrators said so far."""
        return self.door.broker.rules

    # -- parameters

    def has(self, name: str) -> bool:
        """Whether there is a parameter, in either spelling, that is not blank."""
        return bool(self._raw(name))

    def text(self, name: str, default: str | None = None, *, most: int = 1_024) -> str:
        """A text; Wrong if it is missing and has no default."""
        value = self._raw(name)
        if not value:
            if default is None:
                raise Wrong(f"Parameter {name} is missing or value is blank!")
            return default
        if len(value) > most:
            raise Wrong(f"the max length of {name} parameter is over {most} characters")
        return value

    def number(
        self, name: str, default: int | None = None, *, low: int = 0, high: int = (1 << 31) - 1
    ) -> int:
        """A number; Wrong if it is none, or too small or too large."""
        value = self._raw(name)
        if not value:
            if default is None:
                raise Wrong(f"Parameter {name} is missing or value is blank!")
            return default
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX):
            raise Wrong(f"illegal value for {name}, value must only contain numbers")
        found = int(value)
        if found < low:
            raise Wrong(f"Parameter {name} value must >= {low}")
        if found > high:
            raise Wrong(f"Parameter {name} value must <= {high}")
        return found

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """A truth value, as `true`, `false`, `1` or `0`."""
        value = self._raw(name).lower()
        if not value:
            if default is None:
                raise Wrong(f"Parameter {name} is missing or value is blank!")
            return default
        if value not in {"true", "false", "1", "0"}:
            raise Wrong(f"illegal value for {name}, value must be true or false")
        return value in {"true", "1"}

    def names(self, name: str, *, needed: bool = False) -> list[str]:
        """A list with commas, each once."""
        value = self._raw(name)
        if not value and needed:
            raise Wrong(f"Parameter {name} is missing or value is blank!")
        found = list(dict.fromkeys(each.strip() for each in value.split(",") if each.strip()))
        if len(found) > NAMES_MAX:
            raise Wrong(f"{name} has at most {NAMES_MAX} items")
        return found

    def records(self, name: str) -> list[Asked]:
        """A JSON array of objects, each like a request of its own."""
        try:
            found = msgspec.json.decode(
                self.text(name, most=VALUE_SIZE_MAX), type=list[dict[str, Any]]
            )
        except (msgspec.DecodeError, RecursionError) as error:
            raise Wrong(f"Parameter {name} value parse failure, error is {error}!") from error
        if not found or len(found) > RECORDS_MAX:
            raise Wrong(f"{name} has 1 to {RECORDS_MAX} items")
        return [self.of({key: _spelled(value) for key, value in each.items()}) for each in found]

    def of(self, params: Mapping[str, str]) -> Asked:
        """The same request about something else."""
        return replace(self, params=params, outer=self.params)

    def _raw(self, name: str) -> str:
        value = self.params.get(name)
        if value is None:
            value = self.params.get(SHORT.get(name, name), "")
        return value.strip()

    # -- what it names

    @property
    def broker_ids(self) -> list[int]:
        """The brokers that are named; Wrong for what is no number."""
        return [self.of({"brokerId": each}).number("brokerId") for each in self.names("brokerId")]

    @property
    def is_about_us(self) -> bool:
        """Whether it names this broker, or none in particular."""
        ids = self.broker_ids
        return not ids or BROKER_ID in ids

    @property
    def topics(self) -> list[TopicName]:
        """The topics that are named; none means all of them where that is asked."""
        return [topic_name(each) for each in self.names("topicName")]

    @property
    def needed_topics(self) -> list[TopicName]:
        """The same; Wrong if there is none."""
        self.names("topicName", needed=True)
        return self.topics

    @property
    def groups(self) -> list[str]:
        """The groups that are named."""
        names = self.names("groupName") or self.names("consumeGroup")
        return [check_group(each) for each in names]

    @property
    def needed_groups(self) -> list[str]:
        """The same; Wrong if there is none."""
        self.names("groupName", needed=True)
        return self.groups

    @property
    def pairs(self) -> int:
        """How many things a request is about: each topic for each group at each broker."""
        groups = self.names("groupName") or self.names("consumeGroup")
        counts = (len(self.names("brokerId")), len(self.names("topicName")), len(groups))
        return math.prod(max(1, count) for count in counts)

    def found_topics(self) -> list[Topic]:
        """The topics that TubeMQ clients can spell, those that are named if any are, in order."""
        wanted = set(self.topics)
        return sorted(
            (
                topic
                for topic in self.broker.cluster
                if tubemq_can_spell(topic.name) and (not wanted or topic.name in wanted)
            ),
            key=lambda topic: topic.name,
        )

    # -- who says it

    @property
    def user(self) -> str:
        """Who asks for a change, as it says; Wrong if nobody says so."""
        return self._user("modifyUser") or self._user("createUser", needed=True)

    def stamp(self, before: Stamp | None = None) -> Stamp:
        """Who makes or changes something, and when."""
        now_ms, user = self.door.now_ms(), self.user
        if before is None or not before.made_ms:
            return Stamp(self._user("createUser") or user, now_ms, user, now_ms)
        return Stamp(before.made_by, before.made_ms, user, now_ms)

    def _user(self, name: str, *, needed: bool = False) -> str:
        short = SHORT[name]
        value = self._raw(name) or self.outer.get(name, self.outer.get(short, "")).strip()
        if not value and needed:
            raise Wrong(f"Parameter {name} is missing or value is blank!")
        if value and not USER.fullmatch(value):
            raise Wrong(
                f"illegal value for {name}, value must begin with a letter, can only contain "
                "English letters, numbers, and underscores, 2 to 64 of them"
            )
        return value


Answer = dict[str, Any]
Handler = Callable[[Asked], Answer | Awaitable[Answer]]
One = Callable[[Asked], Awaitable[list[Answer]]]


def topic_name(text: str) -> TopicName:
    """A topic by the name that TubeMQ clients use; Wrong."""
    try:
        return parse_tubemq(text)
    except InvalidName as error:
        raise Wrong(f"illegal value for topicName, {error}") from error


def ok(data: list[Any], **more: Any) -> Answer:
    """What a master answers."""
    answer = {"result": True, "errCode": 0, "errMsg": "OK", "data": data, "count": len(data)}
    return {**answer, **more}


def success(data: list[Any], count: str = "totalCnt") -> Answer:
    """What a broker answers."""
    answer = {"result": True, "errCode": 0, "errMsg": "Success!", "dataSet": data}
    return {**answer, count: len(data)}


def done() -> Answer:
    """What a broker answers to a change."""
    return {"result": True, "errCode": 0, "errMsg": "OK"}


def refused(text: str, code: int = REFUSED) -> Answer:
    """What is answered when it cannot be."""
    return {"result": False, "errCode": code, "errMsg": text}


async def each(work: Awaitable[object], **named: Any) -> Answer:
    """Do one of several things and say how it went."""
    code, text = 200, "Ok!"
    await asyncio.sleep(0)  # others have their turn
    try:
        await work
    except Failed as problem:
        code, text = problem.code, str(problem)
    except BrokerError as problem:
        code, text = BAD_VALUE, str(problem)
    return {**named, "success": code == 200, "errCode": code, "errInfo": text}


def batch(name: str, one: One) -> Handler:
    """A method that does with each object of a JSON array what another does with a request."""

    async def handler(asked: Asked) -> Answer:
        data: list[Answer] = []
        records = asked.records(name)
        _check_pairs(sum(record.pairs for record in records))
        for record in records:
            data += await one(record)
        return ok(data)

    return handler


def single(one: One) -> Handler:
    """A method that does it with the request itself."""

    async def handler(asked: Asked) -> Answer:
        _check_pairs(asked.pairs)
        return ok(await one(asked))

    return handler


def _check_pairs(count: int) -> None:
    if count > PAIRS_MAX:
        raise Wrong(
            f"{count} brokers, topics and groups are meant, each with each: at most {PAIRS_MAX}"
        )


def date(ms: int) -> str:
    """A time as a real server writes it, in UTC: `yyyyMMddHHmmss`."""
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(ms / 1000))


def stamped(stamp: Stamp, *, serial: bool = True) -> Answer:
    """Who said something, and when, at the end of what was said."""
    told: Answer = {"dataVersionId": UNDEFINED}
    if serial:
        told["serialId"] = stamp.changed_ms
    return {
        **told,
        "createUser": stamp.made_by or NOBODY,
        "createDate": date(stamp.made_ms),
        "modifyUser": stamp.changed_by or NOBODY,
        "modifyDate": date(stamp.changed_ms),
    }


def _spelled(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return msgspec.json.encode(value).decode()


@dataclass(frozen=True, slots=True)
class Row:
    """One method: who answers, what access it needs, and whether it changes anything."""

    name: str
    handler: Handler
    resource: ResourceKind
    operation: Operation
    changes: bool = False
    of_broker: bool = False  # a real broker answers it, not its master
