"""Rules for faults as tests write them, checked: a name that nothing has would never apply."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from trilogue.testing import kafka_requests, pulsar_requests, tubemq_requests
from trilogue.testing.faults import Action, Fault

PROTOCOLS = {
    module.PROTOCOL: module for module in (kafka_requests, pulsar_requests, tubemq_requests)
}
RULE_FIELDS = ("protocol", "request", "topic", "count", "skip", "error", "seconds")


def make_fault(action: Action | str, fields: Mapping[str, Any]) -> Fault:
    """Return the rule; ValueError with what is wrong with it.

    The protocol is that of the request or the error where the rule does not name it.
    """
    actions = {each.value: each for each in Action}
    chosen = action if isinstance(action, Action) else actions.get(str(action))
    if chosen is None:
        raise ValueError(f"the action {action!r} does not exist{_suggest(str(action), actions)}")
    for name in fields:
        if name not in RULE_FIELDS:
            raise ValueError(f"a rule has no field {name!r}{_suggest(name, RULE_FIELDS)}")
    try:
        fault = msgspec.convert({"action": chosen.value, **fields}, Fault)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    _check_numbers(fault)
    if fault.protocol is not None and fault.protocol not in PROTOCOLS:
        hint = _suggest(fault.protocol, PROTOCOLS)
        raise ValueError(f"the protocol {fault.protocol!r} does not exist{hint}")
    if fault.request is not None:
        _find_protocol(fault, "request", fault.request)
    if (fault.action is Action.ERROR) != bool(fault.error):
        raise ValueError("the action `error`, and no other one, has the name of an error")
    if fault.error:
        _find_protocol(fault, "error", fault.error)
    return fault


def _check_numbers(fault: Fault) -> None:
    if fault.count is not None and fault.count < 1:
        raise ValueError("count is 1 or more, or none for all requests")
    if fault.skip < 0:
        raise ValueError("skip is 0 or more")
    if not (math.isfinite(fault.seconds) and fault.seconds >= 0):
        raise ValueError("seconds is 0 or more")


def _find_protocol(fault: Fault, kind: str, name: str) -> None:
    """Set the protocol that has this request or error; ValueError where none has."""
    considered = PROTOCOLS if fault.protocol is None else {fault.protocol: None}
    known = {each: getattr(PROTOCOLS[each], f"list_{kind}s")() for each in considered}
    for protocol, names in known.items():
        if name in names:
            fault.protocol = protocol
            return
    where = "of " + (fault.protocol or "any protocol")
    everything = [each for names in known.values() for each in names]
    raise ValueError(f"the {kind} {name!r} is not one {where}{_suggest(name, everything)}")


def _suggest(name: str, names: Iterable[str]) -> str:
    """Return names that are like this one, or all of a few."""
    known = list(names)
    close = difflib.get_close_matches(name, known, 3, 0.5) or (known if len(known) < 12 else [])
    return f"; there is {', '.join(close)}" if close else ""
