"""Reads settings from the data directory, the config file, the environment and the command line.

The first is the weakest: `secure.toml`, which `trilogue serve --secure` writes.

An unknown key is refused, with the nearest known one. The exception are variables that a Kubernetes
service called `trilogue` puts into the environment of every pod (TRILOGUE_SERVICE_HOST,
TRILOGUE_PORT_9092_TCP, ...).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from trilogue.broker.settings.setting import Setting, list_values
from trilogue.broker.settings.values import InvalidValue, Kind
from trilogue.node.addresses import AddressError, parse_address
from trilogue.node.settings.access import check_access
from trilogue.node.settings.cluster import check_cluster
from trilogue.node.settings.objects import check_objects
from trilogue.node.settings.table import (
    ALL_LISTENERS,
    BY_ENVIRONMENT,
    BY_KEY,
    TABLE,
    Settings,
    SettingsError,
    SettingValue,
)

CONFIG_VARIABLE = "TRILOGUE_CONFIG"
CONFIG_SIZE_LIMIT = 1 << 20
SECURE_FILE = "secure.toml"  # of a secured data directory; a start there obeys it

_NOT_SETTINGS = {
    CONFIG_VARIABLE,
    "TRILOGUE_BOOTSTRAP",  # where the command line finds a server
    "TRILOGUE_HTTP",  # and its HTTP listener
    "TRILOGUE_CLIENT_CONFIG",  # how it logs in there
    "TRILOGUE_REQUIRE",  # tests: skip nothing
    "TRILOGUE_NO_EXTENSIONS",  # build: compile nothing
}
_SERVICE_LINK = re.compile(r"TRILOGUE_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)")


def load_settings(
    *,
    environment: Mapping[str, str],
    config_file: Path | None = None,
    assignments: Iterable[str] = (),
    flags: Iterable[tuple[str, str, str]] = (),
    is_complete: bool = True,
) -> Settings:
    """Join all sources; `flags` are (key, value, origin). SettingsError for an invalid one.

    Values are not checked together if they are not complete: `--secure` adds `secure.toml`.
    """
    defaults = {row.key: _default(row, environment) for row in TABLE}
    file: dict[str, SettingValue] = {}
    variables: dict[str, SettingValue] = {}
    assigned: dict[str, SettingValue] = {}
    flagged: dict[str, SettingValue] = {}
    if config_file is None and environment.get(CONFIG_VARIABLE):
        config_file = Path(environment[CONFIG_VARIABLE])
    if config_file is not None:
        for key, text in read_config_file(config_file):
            _give(file, key, text, f"file {config_file}")
    for name, text in _settings_variables(environment):
        if name not in BY_ENVIRONMENT:
            raise SettingsError(_unknown("environment variable", name, BY_ENVIRONMENT))
        _give(variables, BY_ENVIRONMENT[name].key, text, f"environment {name}")
    for assignment in assignments:
        key, text = parse_assignment(assignment)
        _give(assigned, key, text, f"--set {key}")
    for key, text, origin in flags:
        _give(flagged, key, text, origin)
    stronger = (("flag", flagged), ("--set", assigned), ("environment", variables), ("file", file))
    data = list_values("data", (*stronger, ("default", defaults)))[0][1]
    directory = _directory_settings(Path(str(data.value)))
    layers = (*stronger, ("directory", directory), ("default", defaults))
    values = {row.key: list_values(row.key, layers)[0][1] for row in TABLE}
    settings = Settings(values, str(config_file or ""))
    if is_complete:
        check_together(settings)
    return settings


def parse_assignment(assignment: str) -> tuple[str, str]:
    """Return key and value of a KEY=VALUE; raises SettingsError."""
    key, equals, text = assignment.partition("=")
    if not equals:
        raise SettingsError(f"--set {assignment}: expected KEY=VALUE")
    return key.strip(), text


def _directory_settings(data: Path) -> dict[str, SettingValue]:
    """Return the settings of a secured data directory; its relative paths are within it."""
    file = data / SECURE_FILE
    given: dict[str, SettingValue] = {}
    if os.path.lexists(file):
        for key, text in read_config_file(file):
            is_path = key in BY_KEY and BY_KEY[key].kind is Kind.PATH
            _give(given, key, str(data / text) if is_path else text, f"file {file}")
    return given


def read_config_file(path: Path) -> list[tuple[str, str]]:
    """Return keys and values of a TOML file; `auto-create` of `[topics]` is topics.auto-create."""
    import tomllib  # only with a file: its import would slow down each start

    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_SIZE_LIMIT + 1)
    except OSError as error:
        raise SettingsError(f"config file {path}: {error.strerror}") from error
    if len(content) > CONFIG_SIZE_LIMIT:
        raise SettingsError(f"config file {path}: larger than {CONFIG_SIZE_LIMIT} bytes")
    try:
        parsed = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"config file {path}: {error}") from error
    return list(_flatten(parsed, "", path))


def listener_flag(flag: str, text: str) -> tuple[str, str, str]:
    """Read one `--listen LISTENER=HOST:PORT` (or --advertise) into (key, value, origin)."""
    name, equals, address = text.partition("=")
    if not equals:
        raise SettingsError(f"--{flag} {text}: expected LISTENER=HOST:PORT")
    key = f"{flag}.{name}"
    if key not in BY_KEY:
        raise SettingsError(f"--{flag} {text}: {_unknown_listener(flag, name)}")
    return key, address, f"--{flag} {name}"


def check_together(settings: Settings) -> None:
    """Raise SettingsError for values that are valid alone and cannot work together."""
    if settings.number("tail.limit") < 2 * settings.number("journal.file-size"):
        raise SettingsError(
            f"tail.limit ({settings.origin('tail.limit')}) must be at least twice "
            f"journal.file-size ({settings.origin('journal.file-size')}): what a journal file "
            "holds stays in memory until it is in a segment"
        )
    if settings.number("frames.limit") < settings.number("topics.max-entry"):
        raise SettingsError(
            f"frames.limit ({settings.origin('frames.limit')}) must not be below "
            f"topics.max-entry ({settings.origin('topics.max-entry')})"
        )
    if settings.number("groups.session-timeout-max") < settings.number(
        "groups.session-timeout-min"
    ):
        raise SettingsError("groups.session-timeout-max is below groups.session-timeout-min")
    if settings.number("groups.share-record-lock") < settings.number(
        "groups.share-record-lock-min"
    ):
        raise SettingsError("groups.share-record-lock is below groups.share-record-lock-min")
    if settings.number("groups.consumer-session-timeout") <= settings.number(
        "groups.consumer-heartbeat"
    ):
        raise SettingsError(
            "groups.consumer-session-timeout must be above groups.consumer-heartbeat"
        )
    check_objects(settings)
    check_cluster(settings)
    check_access(settings)
    closed = {name for name in ALL_LISTENERS if settings.text(f"listen.{name}") == "off"}
    if closed == set(ALL_LISTENERS):
        raise SettingsError("every listener is off: no client could reach the server")
    for end in ("", "-ssl"):
        master_alone = f"tubemq-broker{end}" in closed and f"tubemq-master{end}" not in closed
        if master_alone and not settings.switch("tubemq.standby"):
            raise SettingsError(
                f"listen.tubemq-broker{end} is off: the master sends its clients there, so "
                f"listen.tubemq-master{end} must be off too"
            )


def _default(row: Setting, environment: Mapping[str, str]) -> SettingValue:
    if row.key == "data":
        home = environment.get("XDG_DATA_HOME", "")
        if home.startswith("/"):  # a relative one is ignored, as the XDG rules require
            return SettingValue(f"{home.rstrip('/')}/trilogue", "default (XDG_DATA_HOME)")
        return SettingValue(str(Path(row.default).expanduser()), "default")
    return SettingValue(row.parse(row.default), "default")


def _give(given: dict[str, SettingValue], key: str, text: str, origin: str) -> None:
    row = BY_KEY.get(key)
    if row is None:
        family, _, name = key.partition(".")
        if family in {"listen", "advertise"} and name:
            raise SettingsError(f"{origin}: {_unknown_listener(family, name)}")
        raise SettingsError(f"{origin}: {_unknown('setting', key, BY_KEY)}")
    try:
        value = row.parse(text)
        if row.kind is Kind.ADDRESS and isinstance(value, str) and not _is_off(row, value):
            value = str(parse_address(value))
    except (InvalidValue, AddressError) as error:
        raise SettingsError(f"{key} = {text!r} ({origin}): {error}") from error
    if row.kind is Kind.PATH and isinstance(value, str):
        value = str(Path(value).expanduser())
    given[key] = SettingValue(value, origin)


def _is_off(row: Setting, value: str) -> bool:
    return row.key.startswith("listen.") and value == "off"


def _settings_variables(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    return [
        (name, text)
        for name, text in sorted(environment.items())
        if name.startswith("TRILOGUE_")
        and name not in _NOT_SETTINGS
        and not _SERVICE_LINK.fullmatch(name)
    ]


def _flatten(table: Mapping[str, object], prefix: str, path: Path) -> Iterable[tuple[str, str]]:
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _flatten(value, f"{key}.", path)
        elif isinstance(value, bool):
            yield key, "true" if value else "false"
        elif isinstance(value, str | int):
            yield key, str(value)
        else:
            raise SettingsError(f"config file {path}: {key}: expected a text, number or boolean")


def _unknown_listener(family: str, name: str) -> str:
    known = [name for name in ALL_LISTENERS if f"{family}.{name}" in BY_KEY]
    if name in ALL_LISTENERS:
        return f"the {name} listener is not advertised; only {', '.join(known)}"
    return f"unknown listener {name!r}{_nearest(name, known)}; listeners: {', '.join(known)}"


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    return f"unknown {what} {name!r}{_nearest(name, known)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib  # only for a misspelt key

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""
