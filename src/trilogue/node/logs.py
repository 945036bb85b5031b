"""Formats log records, as text or JSON.

Modules log an event and its fields: `log.info("segment.written", extra={"segment": 7})`. That
becomes one line of text

    2026-11-21T13:44:00.123Z INFO    segment.written segment=7 size_bytes=65536

or, with `log.format=json`, one JSON object. Values with other than plain characters are quoted, so
that no client can write a second line by a client id or a topic name. Fields with a secret's name
(password, token, ...) are left out.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TextIO

FIELD_LIMIT = 1_000

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN = re.compile(r"[A-Za-z0-9._:/@+,\[\]()#-]+")
_SECRET = re.compile(
    r"password|passwd|secret|token|credential|authorization|private_key", re.IGNORECASE
)


def start_logging(*, level: str, form: str, stream: TextIO | None = None) -> None:
    """Log everything of `level` and above to one stream (stderr), as text or JSON."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.raiseExceptions = False  # a full disk or closed pipe of stderr does not stop a broker
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    for name in ("asyncio", "uvicorn"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class TextLines(logging.Formatter):
    """A line `time level event key=value ...`; a traceback follows on further lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of one record."""
        words = [_time(record), f"{record.levelname:7}", _one_line(record.getMessage())]
        words += [f"{key}={_spell(value)}" for key, value in _fields(record)]
        line = " ".join(words)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonLines(logging.Formatter):
    """A JSON object per line: time, level, event, logger, the fields, and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of one record."""
        content: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        for key, value in _fields(record):
            content.setdefault(key, _json_value(value))
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content)


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    for key, value in vars(record).items():
        if key not in _STANDARD:
            yield key, "***" if _SECRET.search(key) else value


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"


def _spell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)[:FIELD_LIMIT]
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _json_value(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:FIELD_LIMIT]


def _one_line(event: str) -> str:
    return event if event.isprintable() else json.dumps(event)
