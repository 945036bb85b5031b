"""What the pages name is there: files, tests, functions, settings, options, metrics."""

from __future__ import annotations

import re
import subprocess
import urllib.request
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


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path):
    targets = [(page.parent / target).resolve() for target in links(page)]
    if page in RECORDS:
        targets = [present(target) for target in targets]

    assert [str(target) for target in targets if not target.exists()] == []


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_tests_that_a_page_names_are_there(page: Path):
    ours = FOREIGN_SUITES.sub("", prose(page))
    named = {text for text in CODE.findall(ours) if re.fullmatch(r"test_\w+", text)}

    assert set() == named - known_tests()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_a_page_names_are_there(page: Path):
    named = {text for text in inline(page) if PATH.fullmatch(text)}

    if page in RECORDS and page != MOVED:
        named = {moved().get(path.removeprefix("src/trilogue/"), path) for path in named}
    elif page == MOVED:
        named = set(moved().values())

    assert sorted(path for path in named if not exists(path)) == []


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_functions_that_a_page_names_are_there(page: Path):
    named = {found for text in inline(page) if (found := CALL.fullmatch(text))}
    known = definitions()

    assert (
        sorted(found[0] for found in named if not {found[2], found[1] or found[2]} <= known.keys())
        == []
    )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_settings_and_events_that_a_page_names_exist(page: Path):
    named = {
        text
        for text in inline(page)
        if DOTTED.fullmatch(text) and text.partition(".")[0] in FAMILIES
    }
    known = source_text()

    assert set() == {
        text
        for text in named - BY_KEY.keys() - TOPIC_SETTINGS.keys() - KAFKA_SETTINGS.keys()
        if f'"{text}"' not in known
    }


@cache
def source_text() -> str:
    return "\n".join(path.read_text() for path in SOURCES.rglob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_options_that_a_page_types_exist(page: Path):
    text = "\n".join(text for _, text in blocks(page)) + "\n" + "\n".join(inline(page))
    unknown = [
        f"{verb} {option}"
        for verb, _, rest in (command.partition(" ") for command in COMMAND.findall(text))
        for option in OPTION.findall(rest)
        if option not in help_of(verb)
    ]

    assert unknown == []


@cache
def help_of(verb: str) -> str:
    return run_trilogue(verb, "--help", environment={"COLUMNS": "200"}).stdout


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_targets_of_make_that_a_page_types_exist(page: Path):
    listed = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    text = "\n".join(text for _, text in blocks(page)) + "\n" + "\n".join(inline(page))
    named = set(re.findall(r"(?:^|[&;] *|\n)make ([a-z-]+)", text))

    assert set() == named - set(re.findall(r"^ *([a-z-]+) ", listed, re.MULTILINE))


def test_metrics_that_pages_name_are_served(tmp_path: Path):
    named = {text for page in PAGES for text in inline(page) if re.fullmatch(r"trilogue_\w+", text)}
    with start_server(tmp_path / "data", objects__url=f"file://{tmp_path}") as server:
        page = urllib.request.urlopen(f"{server.http}/metrics").read().decode()

    named -= {"trilogue_broker", "trilogue_brokers"}  # fixtures for pytest
    named -= OF_SHARED_JOURNALS
    assert named
    assert set() == {metric for metric in named if f"# TYPE {metric} " not in page}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_config_files_that_a_page_shows_are_accepted(page: Path, tmp_path: Path):
    for kind, text in blocks(page):
        if kind == "toml":
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
