"""One request of TubeMQ's web API: its parameters, parsed strictly, and the shapes of responses.

Every response has the status 200, as with a real 2.4.0; the result is in its JSON:

    {"result":true,"errCode":0,"errMsg":"OK","data":[...],"count":n}     the master's methods
    {"result":true,"errCode":0,"errMsg":"Success!","dataSet":[...],"totalCnt":n}  the broker's
    {"result":false,"errCode":400,"errMsg":"..."}                        an error of all of it
    {"brokerId":1,"topicName":"t","success":false,"errCode":402,"errInfo":"..."}  of one item

A parameter has a long and a short name; the long one takes precedence. Several items come as lists
with commas, or as a JSON array of objects with the same names.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.errors import BrokerError, InvalidName
from trilogue.broker.names import TopicName, is_tubemq_name, parse_tubemq
from trilogue.broker.topics.topic import Topic
from trilogue.broker.tubemq.group_rules import ChangeStamp, GroupRules, check_group
from trilogue.gateway.http.administration import AuthorizedRequest
from trilogue.gateway.steps import next_step
from trilogue.gateway.tubemq.broker_map import BROKER_ID
from trilogue.gateway.tubemq.gateway import TubeGateway

NOT_FOUND, EXISTS, UNCHANGED, NOT_NOW, BAD_VALUE = 401, 402, 403, 406, 407  # of one of several
REFUSED = 400
NAMES_MAX = 1_000  # in one list
RECORDS_MAX = 1_000  # in one JSON array
PAIRS_MAX = 10_000  # of topics, groups and brokers in one request
VALUE_SIZE_MAX = 512 << 10
USER = re.compile(r"[a-zA-Z]\w{1,63}", re.ASCII)
DIGITS_MAX = 19
NO_USER = "-"
UNDEFINED = -2  # in place of a missing number, as real servers write it

# The short names of parameters (WebFieldDef of a real server).
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


class WebApiError(Exception):
    """An error of the whole request: 400 and a sentence."""


class ItemError(Exception):
    """An error of one item of a request: a code and a sentence."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class WebApiRequest(AuthorizedRequest, msgspec.Struct, frozen=True):
    """One request, or one of the records in it."""

    gateway: TubeGateway
    params: Mapping[str, str]
    access: ClientAccess
    operation: Operation
    outer: Mapping[str, str] = msgspec.field(
        default_factory=dict
    )  # of the request that it is a part of
    web_port: int = UNDEFINED  # of the listener

    @property
    def rules(self) -> GroupRules:
        """Return the administrators' records."""
        return self.gateway.broker.rules

    # -- parameters

    def has(self, name: str) -> bool:
        """Return whether a parameter is given, in either spelling, and not blank."""
        return bool(self._raw(name))

    def text(self, name: str, default: str | None = None, *, most: int = 1_024) -> str:
        """Return a text; raises WebApiError if it is missing and has no default."""
        value = self._raw(name)
        if not value:
            if default is None:
                raise WebApiError(f"Parameter {name} is missing or value is blank!")
            return default
        if len(value) > most:
            raise WebApiError(f"the max length of {name} parameter is over {most} characters")
        return value

    def number(
        self, name: str, default: int | None = None, *, low: int = 0, high: int = (1 << 31) - 1
    ) -> int:
        """Return a number; raises WebApiError if it is malformed or out of range."""
        value = self._raw(name)
        if not value:
            if default is None:
                raise WebApiError(f"Parameter {name} is missing or value is blank!")
            return default
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX):
            raise WebApiError(f"illegal value for {name}, value must only contain numbers")
        found = int(value)
        if found < low:
            raise WebApiError(f"Parameter {name} value must >= {low}")
        if found > high:
            raise WebApiError(f"Parameter {name} value must <= {high}")
        return found

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """Return a boolean: `true`, `false`, `1` or `0`."""
        value = self._raw(name).lower()
        if not value:
            if default is None:
                raise WebApiError(f"Parameter {name} is missing or value is blank!")
            return default
        if value not in {"true", "false", "1", "0"}:
            raise WebApiError(f"illegal value for {name}, value must be true or false")
        return value in {"true", "1"}

    def names(self, name: str, *, needed: bool = False) -> list[str]:
        """Return a list with commas, each item once."""
        value = self._raw(name)
        if not value and needed:
            raise WebApiError(f"Parameter {name} is missing or value is blank!")
        found = list(dict.fromkeys(each.strip() for each in value.split(",") if each.strip()))
        if len(found) > NAMES_MAX:
            raise WebApiError(f"{name} has at most {NAMES_MAX} items")
        return found

    def records(self, name: str) -> list[WebApiRequest]:
        """Return a JSON array of objects, each as a request of its own."""
        try:
            found = msgspec.json.decode(
                self.text(name, most=VALUE_SIZE_MAX), type=list[dict[str, Any]]
            )
        except (msgspec.DecodeError, RecursionError) as error:
            raise WebApiError(f"Parameter {name} value parse failure, error is {error}!") from error
        if not found or len(found) > RECORDS_MAX:
            raise WebApiError(f"{name} has 1 to {RECORDS_MAX} items")
        return [
            self.of({key: _format_value(value) for key, value in each.items()}) for each in found
        ]

    def of(self, params: Mapping[str, str]) -> WebApiRequest:
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
        """Return the named brokers; raises WebApiError for malformed ids."""
        return [self.of({"brokerId": each}).number("brokerId") for each in self.names("brokerId")]

    @property
    def names_this_broker(self) -> bool:
        """Return whether the request names this broker, or none."""
        ids = self.broker_ids
        return not ids or BROKER_ID in ids

    @property
    def topics(self) -> list[TopicName]:
        """Return the named topics."""
        return [parse_topic_name(each) for each in self.names("topicName")]

    @property
    def needed_topics(self) -> list[TopicName]:
        """Return the named topics; raises WebApiError if there is none."""
        self.names("topicName", needed=True)
        return self.topics

    @property
    def groups(self) -> list[str]:
        """Return the named groups."""
        names = self.names("groupName") or self.names("consumeGroup")
        return [check_group(each) for each in names]

    @property
    def needed_groups(self) -> list[str]:
        """Return the named groups; raises WebApiError if there is none."""
        self.names("groupName", needed=True)
        return self.groups

    @property
    def pairs(self) -> int:
        """Return how many items a request has: each topic for each group at each broker."""
        groups = self.names("groupName") or self.names("consumeGroup")
        counts = (len(self.names("brokerId")), len(self.names("topicName")), len(groups))
        return math.prod(max(1, count) for count in counts)

    def found_topics(self) -> list[Topic]:
        """Return the named topics, or all that TubeMQ's clients can spell, sorted."""
        wanted = set(self.topics)
        return sorted(
            (
                topic
                for topic in self.broker.cluster
                if is_tubemq_name(topic.name) and (not wanted or topic.name in wanted)
            ),
            key=lambda topic: topic.name,
        )

    def shows_topic(self, name: object) -> bool:
        """Return whether what is listed about groups may name this topic."""
        return self.access.can_see(Operation.DESCRIBE, ResourceKind.TOPIC, str(name))

    # -- the user

    @property
    def user(self) -> str:
        """Return the user name that a change states; raises WebApiError without one."""
        return self._user("modifyUser") or self._user("createUser", needed=True)

    def stamp(self, before: ChangeStamp | None = None) -> ChangeStamp:
        """Return the stamp of a change: who and when."""
        now_ms, user = self.gateway.now_ms(), self.user
        if before is None or not before.made_ms:
            return ChangeStamp(self._user("createUser") or user, now_ms, user, now_ms)
        return ChangeStamp(before.made_by, before.made_ms, user, now_ms)

    def _user(self, name: str, *, needed: bool = False) -> str:
        short = SHORT[name]
        value = self._raw(name) or self.outer.get(name, self.outer.get(short, "")).strip()
        if not value and needed:
            raise WebApiError(f"Parameter {name} is missing or value is blank!")
        if value and not USER.fullmatch(value):
            raise WebApiError(
                f"illegal value for {name}, value must begin with a letter, can only contain "
                "English letters, numbers, and underscores, 2 to 64 of them"
            )
        return value


Answer = dict[str, Any]
Handler = Callable[[WebApiRequest], Answer | Awaitable[Answer]]
One = Callable[[WebApiRequest], Awaitable[list[Answer]]]


def parse_topic_name(text: str) -> TopicName:
    """Return a topic by the name that TubeMQ's clients use; raises WebApiError."""
    try:
        return parse_tubemq(text)
    except InvalidName as error:
        raise WebApiError(f"illegal value for topicName, {error}") from error


def master_response(data: list[Any], **more: Any) -> Answer:
    """Return a master's response."""
    answer = {"result": True, "errCode": 0, "errMsg": "OK", "data": data, "count": len(data)}
    return {**answer, **more}


def broker_response(data: list[Any], count: str = "totalCnt") -> Answer:
    """Return a broker's response."""
    answer = {"result": True, "errCode": 0, "errMsg": "Success!", "dataSet": data}
    return {**answer, count: len(data)}


def change_response() -> Answer:
    """Return a broker's response to a change."""
    return {"result": True, "errCode": 0, "errMsg": "OK"}


def error_response(text: str, code: int = REFUSED) -> Answer:
    """Return an error of the whole request."""
    return {"result": False, "errCode": code, "errMsg": text}


async def run_item(work: Awaitable[object], **named: Any) -> Answer:
    """Run the work of one item and return its result."""
    code, text = 200, "Ok!"
    await next_step()
    try:
        await work
    except ItemError as problem:
        code, text = problem.code, str(problem)
    except BrokerError as problem:
        code, text = BAD_VALUE, str(problem)
    return {**named, "success": code == 200, "errCode": code, "errInfo": text}


def for_records(name: str, one: One) -> Handler:
    """Return a handler that runs `one` for each object of a JSON array."""

    async def handler(request: WebApiRequest) -> Answer:
        data: list[Answer] = []
        records = request.records(name)
        _check_pairs(sum(record.pairs for record in records))
        for record in records:
            data += await one(record)
        return master_response(data)

    return handler


def for_request(one: One) -> Handler:
    """Return a handler that runs `one` for the request itself."""

    async def handler(request: WebApiRequest) -> Answer:
        _check_pairs(request.pairs)
        return master_response(await one(request))

    return handler


def _check_pairs(count: int) -> None:
    if count > PAIRS_MAX:
        raise WebApiError(
            f"{count} brokers, topics and groups are meant, each with each: at most {PAIRS_MAX}"
        )


def format_date(ms: int) -> str:
    """Return a time as a real server writes it, in UTC: `yyyyMMddHHmmss`."""
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(ms / 1000))


def describe_stamp(stamp: ChangeStamp, *, serial: bool = True) -> Answer:
    """Return the fields of a stamp, which end a record."""
    fields: Answer = {"dataVersionId": UNDEFINED}
    if serial:
        fields["serialId"] = stamp.changed_ms
    return {
        **fields,
        "createUser": stamp.made_by or NO_USER,
        "createDate": format_date(stamp.made_ms),
        "modifyUser": stamp.changed_by or NO_USER,
        "modifyDate": format_date(stamp.changed_ms),
    }


def _format_value(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return msgspec.json.encode(value).decode()


class WebApiMethod(msgspec.Struct, frozen=True):
    """One method: its handler, the access it needs, and whether it changes anything."""

    name: str
    handler: Handler
    resource: ResourceKind
    operation: Operation
    changes: bool = False
    of_broker: bool = False  # served by a real broker, not by its master
