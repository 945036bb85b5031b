"""Compare two answers to one call; what differs between any two runs is left out."""

from __future__ import annotations

import json
import re
from typing import Any

Answer = dict[str, Any]

MASKS = [
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?"), "TIME"),
    (re.compile(r"\b1[78]\d{11}\b"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+|localhost:\d+"), "ADDRESS"),
    (re.compile(r"(?<![\d.])-?\d+:-?\d+(:-?\d+)?\b"), "ID"),
    (re.compile(r"\"ledgerId\": \d+"), '"ledgerId": N'),
    (re.compile(r"\"partitionIndex\": -?\d+"), '"partitionIndex": N'),
    (re.compile(r"/tmp/[\w/.]+"), "FOLDER"),
    (re.compile(r"^\d+$"), "NUMBER"),
]
SHAPES = (
    "Stats",
    "Info",
    "LoadReport",
    "Metrics",
    "MBeans",
    "RuntimeConf",
    "backlog",
    "getCluster",
)
"""Of answers of methods with such a name the names of fields count, not the values."""


def mask(text: str) -> str:
    """Return the text without times, addresses, ids of messages and sizes."""
    for pattern, word in MASKS:
        text = pattern.sub(word, text)
    return text


def shape(value: Any) -> Any:
    """Return the value with each number and text replaced by its type."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return "null" if value is None else type(value).__name__


def normal(value: Any) -> Any:
    """Return the value with sorted names, and lists of texts sorted."""
    if isinstance(value, dict):
        return {key: normal(each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        values = [normal(each) for each in value]
        return sorted(values) if all(isinstance(each, str) for each in values) else values
    return value


def show(answer: Answer) -> str:
    """Return the answer as one line of text: a status and its reason, or a value."""
    if "status" in answer:
        reason = " ".join(str(answer["reason"]).split())
        if found := re.match(r"--- An unexpected error occurred in the server --- (.*)", reason):
            reason = re.sub(r"Stacktrace:.*", "", found[1])
        return f"{answer['status']} {reason}"
    if "unknown" in answer:
        return "not a method"
    value = answer["value"]
    return "done" if value is None else json.dumps(normal(value))


def compare(call: str, real: Answer, ours: Answer) -> str:
    """Return how the answers differ: nothing where they are the same."""
    if "status" in real or "status" in ours:
        statuses = [each.get("status", "done") for each in (real, ours)]
        return "" if statuses[0] == statuses[1] else "{}, {}".format(*statuses)
    values = [normal(each.get("value")) for each in (real, ours)]
    if any(word in call for word in SHAPES):
        values = [shape(each) for each in values]
    there, here = (mask(json.dumps(each)) for each in values)
    return "" if there == here else "another value"
