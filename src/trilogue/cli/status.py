"""`trilogue status`: one node at a glance, from its HTTP listener: health, load, and who lags."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import typer

from trilogue.cli.access.connection import DEFAULT_HTTP, HttpConfigOption, ServerHttpOption
from trilogue.cli.cluster import (
    DEFAULT_TIMEOUT,
    FAILED,
    UNREACHABLE,
    CommandError,
    JsonOption,
    TimeoutOption,
)
from trilogue.cli.options import exit_with_error

SERVING: Final = "serving"
STATUS_OK, STATUS_UNAVAILABLE = 200, 503
LAGGING_SHOWN: Final = 10
SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)")
LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
ESCAPE: Final = re.compile(r"\\(.)")
FIGURES: Final = {
    "topics": "trilogue_topics",
    "partitions": "trilogue_partitions",
    "groups": "trilogue_groups",
    "messages": "trilogue_messages_total",
    "commits": "trilogue_journal_commits_total",
    "tail_bytes": "trilogue_tail_bytes",
    "flush_waiting_files": "trilogue_flush_waiting_files",
    "flush_failures": "trilogue_flush_failures_total",
    "producers_wait": "trilogue_under_pressure",
}
Samples = list[tuple[str, dict[str, str], float]]


def status(
    *,
    as_json: JsonOption = False,
    http: ServerHttpOption = "",
    http_config: HttpConfigOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Show whether a node serves, its figures, and the readers with the largest lag."""
    from trilogue.cli.tables import print_json

    try:
        found = read_status(http, http_config, timeout)
    except CommandError as error:
        exit_with_error(str(error), error.code)
    if as_json:
        print_json(found)
    else:
        _print(found)
    if found["state"] != SERVING:
        raise typer.Exit(FAILED)


def read_status(http: str, config: Path | None, timeout_s: float) -> dict[str, Any]:
    """Return the state of a node, and its figures where the user may see them; CommandError."""
    from trilogue.cli.http_client import HttpConnection, HttpError, read_http_config

    options = {} if config is None else read_http_config(config)
    with HttpConnection(http, DEFAULT_HTTP, timeout_s, options) as connection:
        try:
            code, health = connection.get("/healthz")
            if not isinstance(health, dict) or code not in {STATUS_OK, STATUS_UNAVAILABLE}:
                raise CommandError(f"{connection.where} is not Trilogue's", FAILED)
            found: dict[str, Any] = {"address": connection.where, **health}
            code, page = connection.get("/metrics")
        except HttpError as error:
            raise CommandError(
                f"no node responds at {error}; --http names its HTTP listener", UNREACHABLE
            ) from error
    if code != STATUS_OK or not isinstance(page, str):
        found["figures"] = None
        found["refused"] = page.get("reason", "") if isinstance(page, dict) else str(code)
        return found
    samples = parse_samples(page)
    found["figures"] = _read_figures(samples)
    found["connections"] = {
        labels["door"]: int(value)
        for name, labels, value in samples
        if name == "trilogue_connections"
    }
    found["lagging"] = _find_lagging(samples)
    return found


def parse_samples(page: str) -> Samples:
    """Return the samples of a page of Prometheus' text format."""
    found: Samples = []
    for line in page.splitlines():
        match = None if line.startswith("#") else SAMPLE.fullmatch(line)
        if match is not None:
            name, text, value = match.groups()
            labels = {
                key: ESCAPE.sub(lambda escaped: {"n": "\n"}.get(escaped[1], escaped[1]), quoted)
                for key, quoted in LABEL.findall(text or "")
            }
            found.append((name, labels, float(value)))
    return found


def _read_figures(samples: Samples) -> dict[str, Any]:
    values = {name: value for name, labels, value in samples if not labels}
    figures: dict[str, Any] = {key: int(values.get(name, 0)) for key, name in FIGURES.items()}
    figures["tail_limit_bytes"] = int(values.get("trilogue_tail_limit_bytes", 0))
    figures["producers_wait"] = bool(figures["producers_wait"])
    figures["loop_lag_s"] = next(
        (
            value
            for name, labels, value in samples
            if name == "trilogue_loop_lag_seconds" and labels.get("quantile") == "0.99"
        ),
        0.0,
    )
    return figures


def _find_lagging(samples: Samples) -> list[dict[str, Any]]:
    """Return the readers of all protocols with the largest lag."""
    lags: dict[tuple[str, str, str], int] = {}
    for name, labels, value in samples:
        if name == "kafka_consumergroup_lag":
            key = "kafka", labels["consumergroup"], labels["topic"]
        elif name == "trilogue_tubemq_group_lag":
            key = "tubemq", labels["group"], labels["topic"]
        elif name == "pulsar_subscription_back_log":
            topic = re.sub(r"-partition-\d+\Z", "", labels["topic"])
            key = "pulsar", labels["subscription"], topic
        else:
            continue
        lags[key] = lags.get(key, 0) + int(value)
    largest = sorted(lags.items(), key=lambda item: (-item[1], item[0]))[:LAGGING_SHOWN]
    return [
        {"protocol": protocol, "reader": reader, "topic": topic, "lag": lag}
        for (protocol, reader, topic), lag in largest
        if lag
    ]


def _print(found: dict[str, Any]) -> None:
    from trilogue.cli.tables import print_table, printable, spell_count, spell_size

    typer.echo(
        f"node {found['node_id']} at {found['address']}: {found['state']}, "
        f"version {found['version']}, up {found['uptime_s']:.0f} s"
    )
    if found["missing_segments"]:
        typer.echo(f"missing segments: {printable(', '.join(found['missing_segments']))}")
    figures = found["figures"]
    if figures is None:
        typer.echo(f"figures: {printable(found['refused'])}")
        return
    typer.echo(
        f"{spell_count(figures['topics'], 'topic')}, "
        f"{spell_count(figures['partitions'], 'partition')}, "
        f"{spell_count(figures['groups'], 'Kafka group')}; "
        f"{spell_count(figures['messages'], 'message')} since the start"
    )
    connections = ", ".join(f"{name} {count}" for name, count in found["connections"].items())
    typer.echo(f"connections: {connections}")
    typer.echo(
        f"tail {spell_size(figures['tail_bytes'])} of {spell_size(figures['tail_limit_bytes'])}, "
        f"files that wait for a flush: {figures['flush_waiting_files']}, "
        f"failed flushes: {figures['flush_failures']}; "
        f"event loop at most {figures['loop_lag_s'] * 1000:.0f} ms late in 99 of 100"
    )
    if figures["producers_wait"]:
        typer.echo("producers wait: the disk takes less than they send")
    if found["lagging"]:
        print_table(found["lagging"], ("reader", "protocol", "topic", "lag"))
