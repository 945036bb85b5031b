"""What the pages name is there: files, tests, functions, settings, options, metrics."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.docs.page import CODE, PAGES, ROOT, blocks, inline, links, name, prose
from tests.server import run_trilogue, start_server
from trilogue.broker.settings.broker_table import BROKER, GROUPS
from trilogue.broker.settings.topic_table import TABLE as TOPIC_SETTINGS
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import BY_KEY

SOURCES = ROOT / "src" / "trilogue"
KAFKA_SETTINGS = {**BROKER, **GROUPS}
# With `ack=shared` only, which needs PostgreSQL: tests/node/cluster reads them.
OF_SHARED_JOURNALS = {"trilogue_lease_seconds", "trilogue_shared_journal_unavailable_seconds"}
TEST_NAME = re.compile(r"(?:def |^)(test_\w+)(?:\(| = )", re.MULTILINE)
DEFINED = re.compile(r"(?:def|class) (\w+)")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.(?:py|pxd|md|hex|sh)")
CALL = re.compile(r"(?:(\w+)\.)?(\w+)\(\)")
DOTTED = re.compile(r"[a-z]+(?:\.[a-z]+)(?:[.-][a-z]+)*")
FAMILIES = {key.partition(".")[0] for key in (*BY_KEY, *TOPIC_SETTINGS) if "." in key}
FAMILIES |= {"connection", "door", "fetch", "node", "request", "salvage", "server"}  # of events
FOREIGN_SUITES = re.compile(r"^## Official suites$.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]+")
COMMAND = re.compile(r"\btrilogue ((?:serve|config|doctor|codec|demo)\b[^\n|;]*(?:\\\n[^\n]*)*)")


RECORDS = [page for page in PAGES if page.parent.name == "decisions"]
"""Decision records are not rewritten: they name what was there on their day."""
PRESENT = [page for page in PAGES if page not in RECORDS]
MOVED = ROOT / "docs" / "decisions" / "moved.md"


@cache
def moved() -> dict[str, str]:
    """Paths that decision records name, and where these files are now."""
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", MOVED.read_text(), re.MULTILINE)
    return dict(rows)


def present(target: Path) -> Path:
    """Where a file is now that a record links to."""
    for base in (SOURCES, ROOT):
        if target.is_relative_to(base) and str(target.relative_to(base)) in moved():
            now = moved()[str(target.relative_to(base))]
            return SOURCES / now if (SOURCES / now).exists() else ROOT / now
    return target


def exists(path: str) -> bool:
    return (ROOT / path).exists() or (SOURCES / path).exists()


@cache
def known_tests() -> set[str]:
    return {
        found
        for path in (ROOT / "tests").rglob("test_*.py")
        for found in TEST_NAME.findall(path.read_text())
    }


@cache
def definitions() -> dict[str, set[str]]:
    """Every function and class of the sources, and the files that define it."""
    found: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        for what in DEFINED.findall(path.read_text()):
            found.setdefault(what, set()).add(name(path))
    return found


def missing(pages: list[Path], find: Callable[[Path], Iterable[object]]) -> dict[str, list[str]]:
    """What each page names that is not there; pages that name nothing of that kind are left out.

    One test for all pages: some thousand tests of a millisecond take longer than their work.
    """
    found = {name(page): sorted(map(str, find(page))) for page in pages}
    return {page: names for page, names in found.items() if names}


def missing_links(page: Path) -> list[Path]:
    targets = [(page.parent / target).resolve() for target in links(page)]
    if page in RECORDS:
        targets = [present(target) for target in targets]
    return [target for target in targets if not target.exists()]


def missing_tests(page: Path) -> set[str]:
    ours = FOREIGN_SUITES.sub("", prose(page))
    named = {text for text in CODE.findall(ours) if re.fullmatch(r"test_\w+", text)}
    return named - known_tests()


def missing_files(page: Path) -> list[str]:
    named = {text for text in inline(page) if PATH.fullmatch(text)}

    if page in RECORDS and page != MOVED:
        named = {moved().get(path.removeprefix("src/trilogue/"), path) for path in named}
    elif page == MOVED:
        named = set(moved().values())
    return [path for path in named if not exists(path)]


def missing_functions(page: Path) -> list[str]:
    named = {found for text in inline(page) if (found := CALL.fullmatch(text))}
    known = definitions()

    return [found[0] for found in named if not {found[2], found[1] or found[2]} <= known.keys()]


def missing_settings(page: Path) -> set[str]:
    """Settings, those of Kafka's clients after `kafka.` (options for Spark), and log events."""
    named = {
        text
        for text in inline(page)
        if DOTTED.fullmatch(text) and text.partition(".")[0] in FAMILIES
    }
    known = source_text()

    return {
        text
        for text in named - BY_KEY.keys() - TOPIC_SETTINGS.keys() - KAFKA_SETTINGS.keys()
        if f'"{text}"' not in known and f'"{text.removeprefix("kafka.")}"' not in known
    }


@cache
def source_text() -> str:
    return "\n".join(path.read_text() for path in SOURCES.rglob("*.py"))


def missing_options(page: Path) -> list[str]:
    text = "\n".join(text for _, text in blocks(page)) + "\n" + "\n".join(inline(page))
    return [
        f"{verb} {option}"
        for verb, _, rest in (command.partition(" ") for command in COMMAND.findall(text))
        for option in OPTION.findall(rest)
        if option not in help_of(verb)
    ]


@cache
def help_of(verb: str) -> str:
    return run_trilogue(verb, "--help", environment={"COLUMNS": "200"}).stdout


def missing_targets(page: Path) -> set[str]:
    text = "\n".join(text for _, text in blocks(page)) + "\n" + "\n".join(inline(page))
    named = set(re.findall(r"(?:^|[&;] *|\n)make ([a-z-]+)", text))

    return named - targets_of_make()


@cache
def targets_of_make() -> set[str]:
    listed = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return set(re.findall(r"^ *([a-z-]+) ", listed, re.MULTILINE))


def test_links_lead_somewhere():
    assert missing(PAGES, missing_links) == {}


def test_tests_that_pages_name_are_there():
    assert missing(PRESENT, missing_tests) == {}


def test_files_that_pages_name_are_there():
    assert missing(PAGES, missing_files) == {}


def test_functions_that_pages_name_are_there():
    assert missing(PRESENT, missing_functions) == {}


def test_settings_and_events_that_pages_name_exist():
    assert missing(PAGES, missing_settings) == {}


def test_options_that_pages_type_exist():
    assert missing(PAGES, missing_options) == {}


def test_targets_of_make_that_pages_type_exist():
    assert missing(PAGES, missing_targets) == {}


def test_metrics_that_pages_name_are_served(tmp_path: Path):
    named = {text for page in PAGES for text in inline(page) if re.fullmatch(r"trilogue_\w+", text)}
    with start_server(tmp_path / "data", objects__url=f"file://{tmp_path}") as server:
        page = urllib.request.urlopen(f"{server.http}/metrics").read().decode()

    named -= {"trilogue_broker", "trilogue_brokers"}  # fixtures for pytest
    named -= OF_SHARED_JOURNALS
    assert named
    assert set() == {metric for metric in named if f"# TYPE {metric} " not in page}


SHOWN = [
    pytest.param(text, id=f"{name(page)}-{number}")
    for page in PAGES
    for number, (kind, text) in enumerate(blocks(page))
    if kind == "toml"
]


@pytest.mark.parametrize("text", SHOWN)
def test_config_files_that_a_page_shows_are_accepted(text: str, tmp_path: Path):
    file = tmp_path / "trilogue.toml"
    file.write_text(text)

    load_settings(environment={}, config_file=file)


GLOSSARY = ROOT / "docs" / "explanation" / "names.md"
COINED_AT_MOST = 25


def test_the_glossary_has_few_words_of_its_own_and_their_modules():
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in GLOSSARY.read_text().partition("\n## Names of topics")[0].split("\n")
        if line.startswith("| ")
    ][1:]
    coined = [word for word, kafka, pulsar, tubemq, *_ in rows if not kafka + pulsar + tubemq]
    places = [place for row in rows for place in re.findall(r"`([^`]+)`", row[-1])]

    assert 0 < len(coined) <= COINED_AT_MOST
    assert [place for place in places if not (SOURCES / place).exists()] == []
