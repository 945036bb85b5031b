"""How fast a TubeMQ group may read: the rules that administrators write as JSON, and who waits.

The text is an array of `{"type": t, "rule": [...]}`; clients get the same text and hold back by
themselves, the broker makes it true for all of them (docs/reference/wire/tubemq.md):

    type 0  start, end ("HH:mm"), dltInM, limitInM, freqInMs    between these times, once more than
                                                                dltInM MiB are unread: at most
                                                                limitInM MiB a minute, then a pause
    type 1  zeroCnt, freqInMs                                   a pause after so many empty reads
    type 3  normFreqInMs, filterFreqInMs,                       a pause after each read: of all, of
            minDataFilterFreqInMs                               those with filters, of those of them
                                                                that bring little

Times of day are those of UTC+8, wherever the broker stands: that is what clients reckon with. What
a group reads is counted over periods of a minute that begin when the limit is looked up, and a
twelfth of it over 5 seconds, so that no reader takes a minute's share at once.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from trilogue.broker.errors import InvalidSetting

TEXT_SIZE_MAX: Final = 64 << 10
RULES_MAX: Final = 100  # of one type
MIB: Final = 1 << 20
ZONE_MS: Final = 8 * 3_600_000
MINUTE_MS: Final = 60_000
SAMPLE_MS: Final = 5_000
SAMPLES: Final = MINUTE_MS // SAMPLE_MS
PAUSE_MAX_MS: Final = 300_000  # of type 3
VOLUME_PAUSE_MIN_MS: Final = 200  # of type 0
LAG_MIN_MIB: Final = 20  # of type 0: it has to be more
NUMBER_MAX: Final = (1 << 31) - 1  # clients read them into Java's int
EARLY_MS: Final = 20  # clients take waits of up to 10 ms for none; their clocks tick


class VolumeRule(NamedTuple):
    """Type 0. Minutes are those of a day, both included."""

    start_minute: int
    end_minute: int
    lag_bytes: int
    bytes_a_minute: int
    pause_ms: int


class EmptyReadRule(NamedTuple):
    """Type 1."""

    reads: int
    pause_ms: int


class PaceRule(NamedTuple):
    """Type 3; -1 where a field is missing."""

    normal_ms: int
    filtered_ms: int
    little_ms: int


class FlowRules(msgspec.Struct, frozen=True):
    """The rules of one text."""

    volumes: tuple[VolumeRule, ...] = ()  # by the time they start
    empties: tuple[EmptyReadRule, ...] = ()  # the most reads first
    pace: PaceRule | None = None

    def volume(self, lag_bytes: int, minute: int) -> VolumeRule | None:
        """The limit that holds for so much unread at this minute of the day."""
        for each in self.volumes:
            if lag_bytes > each.lag_bytes and each.start_minute <= minute <= each.end_minute:
                return each
        return None

    def empty_pause_ms(self, reads: int) -> int:
        """How long to wait after so many empty reads in a row; 0 = not at all."""
        return next((each.pause_ms for each in self.empties if reads >= each.reads), 0)

    def wait_ms(self, meter: ReadMeter, now_ms: int) -> int:
        """How long this reader still has to wait before it reads again; 0 = not at all."""
        return max(self._volume_wait_ms(meter, now_ms), self._pause_wait_ms(meter, now_ms))

    def _volume_wait_ms(self, meter: ReadMeter, now_ms: int) -> int:
        if not self.volumes:
            return 0
        if now_ms >= meter.minute_end_ms:
            minute = (now_ms + ZONE_MS) // MINUTE_MS % (24 * 60)
            meter.limit = self.volume(meter.lag_bytes, minute)
            meter.minute_bytes = meter.sample_bytes = 0
            meter.minute_end_ms, meter.sample_end_ms = now_ms + MINUTE_MS, now_ms + SAMPLE_MS
        elif now_ms >= meter.sample_end_ms:
            meter.sample_bytes, meter.sample_end_ms = 0, now_ms + SAMPLE_MS
        limit = meter.limit
        if limit is None:
            return 0
        most = limit.bytes_a_minute
        if meter.minute_bytes < most and meter.sample_bytes < most // SAMPLES:
            return 0
        return limit.pause_ms

    def _pause_wait_ms(self, meter: ReadMeter, now_ms: int) -> int:
        pause_ms = 0
        if meter.empty_reads:
            pause_ms = self.empty_pause_ms(meter.empty_reads)
        elif self.pace is not None:
            normal_ms, filtered_ms, little_ms = self.pace
            slow_ms = little_ms if meter.little else filtered_ms
            pause_ms = slow_ms if meter.filtered else normal_ms
        rest_ms = meter.answered_ms + pause_ms - now_ms
        return rest_ms if pause_ms > 0 and rest_ms > EARLY_MS else 0


NO_RULES: Final = FlowRules()


class ReadMeter(msgspec.Struct):
    """The reads of one registration, as far as rules need them."""

    filtered: bool = False
    lag_bytes: int = 0
    little: bool = False  # whether the last read with filters brought little
    empty_reads: int = 0  # in a row
    answered_ms: int = 0
    minute_bytes: int = 0
    sample_bytes: int = 0
    minute_end_ms: int = 0
    sample_end_ms: int = 0
    limit: VolumeRule | None = None

    def read(self, size: int, lag_bytes: int, now_ms: int, *, little: bool = False) -> None:
        """A read was answered with so many bytes; so many are left."""
        self.minute_bytes += size
        self.sample_bytes += size
        self.lag_bytes = lag_bytes
        self.answered_ms = now_ms
        self.empty_reads = 0
        self.little = little

    def found_nothing(self, now_ms: int) -> None:
        """A read was answered with the end of data."""
        self.empty_reads += 1
        self.answered_ms = now_ms
        self.lag_bytes = 0


def parse_rules(text: str) -> FlowRules:
    """Parse flow control rules; a blank text or an empty array means no rules.

    Raises InvalidSetting for what a client could not read either, with its own bounds, and for
    what the broker would not enforce.
    """
    if not text.strip():
        return NO_RULES
    if len(text) > TEXT_SIZE_MAX:
        raise InvalidSetting(f"flow control rules may have {TEXT_SIZE_MAX} characters")
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidSetting(f"flow control rules must be JSON: {problem}") from problem
    if not isinstance(found, list):
        raise InvalidSetting("flow control rules are an array")
    by_type: dict[int, list[dict[str, Any]]] = {}
    for record in found:
        kind, rules = _record(record)
        by_type.setdefault(kind, []).extend(rules)
    if any(len(rules) > RULES_MAX for rules in by_type.values()):
        raise InvalidSetting(f"there may be {RULES_MAX} flow control rules of one type")
    volumes = sorted(map(_volume, by_type.get(0, ())), key=lambda each: each.start_minute)
    empties = sorted(map(_empty, by_type.get(1, ())), reverse=True)
    paces = [_pace(rule) for rule in by_type.get(3, ())]
    if len(paces) > 1:
        raise InvalidSetting("there may be one flow control rule of type 3")
    return FlowRules(tuple(volumes), tuple(empties), paces[0] if paces else None)


def _record(record: object) -> tuple[int, list[dict[str, Any]]]:
    if not isinstance(record, dict):
        raise InvalidSetting("a flow control record is an object")
    kind, rules = record.get("type"), record.get("rule")
    if kind not in (0, 1, 3) or isinstance(kind, bool) or not isinstance(kind, int):
        raise InvalidSetting(f"flow control has the types 0, 1 and 3, not {kind!r:.20}")
    if not isinstance(rules, list) or not rules:
        raise InvalidSetting(f"a flow control record of type {kind} needs an array of rules")
    if not all(isinstance(rule, dict) for rule in rules):
        raise InvalidSetting("a flow control rule is an object")
    return kind, rules


def _number(rule: dict[str, Any], name: str, least: int, most: int = NUMBER_MAX) -> int:
    value = rule.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidSetting(f"{name} of a flow control rule must be a number")
    if not least <= value <= most:
        raise InvalidSetting(f"{name} of a flow control rule must be in {least}..{most}")
    return value


def _minute(rule: dict[str, Any], name: str) -> int:
    value = rule.get(name)
    hour, colon, minute = value.partition(":") if isinstance(value, str) else ("", "", "")
    digits = hour + minute
    if not (colon and hour and minute and digits.isascii() and digits.isdecimal()):
        raise InvalidSetting(f"{name} of a flow control rule must be HH:mm")
    found = int(hour[-9:]) * 60 + int(minute[-9:])
    if len(digits) > len("HHmm") or int(minute) > 59 or found > 24 * 60:
        raise InvalidSetting(f"{name} of a flow control rule must be HH:mm")
    return found


def _volume(rule: dict[str, Any]) -> VolumeRule:
    start, end = _minute(rule, "start"), _minute(rule, "end")
    if start >= end:
        raise InvalidSetting("start of a flow control rule must be before its end")
    return VolumeRule(
        start,
        end,
        _number(rule, "dltInM", LAG_MIN_MIB + 1) * MIB,
        _number(rule, "limitInM", 0) * MIB,
        _number(rule, "freqInMs", VOLUME_PAUSE_MIN_MS),
    )


def _empty(rule: dict[str, Any]) -> EmptyReadRule:
    return EmptyReadRule(_number(rule, "zeroCnt", 1), _number(rule, "freqInMs", 0))


def _pace(rule: dict[str, Any]) -> PaceRule:
    def pause_ms(name: str) -> int:
        return _number(rule, name, 0, PAUSE_MAX_MS)

    normal = pause_ms("normFreqInMs") if "normFreqInMs" in rule else -1
    if "filterFreqInMs" not in rule and "minDataFilterFreqInMs" not in rule:
        if normal < 0:
            raise InvalidSetting("a flow control rule of type 3 has no limit")
        return PaceRule(normal, -1, -1)
    filtered, little = pause_ms("filterFreqInMs"), pause_ms("minDataFilterFreqInMs")
    if little < filtered:
        raise InvalidSetting("minDataFilterFreqInMs must not be below filterFreqInMs")
    return PaceRule(normal, filtered, little)


def merge_rules(default: FlowRules, group: FlowRules) -> FlowRules:
    """The rules of a group, and of each type that it has none of the default ones, as in clients.

    Without any rules the result is NO_RULES itself, which callers test for.
    """
    if group is NO_RULES:
        return default
    return FlowRules(
        group.volumes or default.volumes,
        group.empties or default.empties,
        group.pace or default.pace,
    )
