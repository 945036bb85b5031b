"""The house stays tidy: sizes of rooms and modules, no import circle, the field's words."""

from __future__ import annotations

import ast
import re
import subprocess
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES, MODULE_LINES_WARNED, FUNCTION_LINES, BLOB_BYTES = 700, 400, 70, 100_000
FOLDER_MODULES = 25
WORDS_PER_THOUSAND = 2.5
AVOIDED = {
    "told", "tell", "tells", "telling", "say", "says", "said", "saying", "ask", "asks", "asked",
    "asking", "nobody", "anybody", "somebody", "whoever", "shall", "anew", "door", "doors",
    "doorway", "wish", "wishes", "wished",
}  # fmt: skip
"""Words that prose and names of tests avoid: they name the subject, by a word of the field."""
PRONOUNS = {"who", "whom", "anyone", "someone"}
"""Words that names of tests avoid also: the subject is a client, a member, a user."""
PRIVATE = re.compile(
    r"\bseed 0\d\d\b|\bwire facts?\b|\b(?:design|checks|numbers|layout|style)\.md\b"
)
"""Texts that are not in the repository."""
CODE = re.compile(r"`[^`\n]*`")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\([^)]*\)")
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
PER_PROTOCOL = ("gateway", "wire", "client")
FACADES = ("sync.py", "sync_admin.py")
"""The synchronous clients have the names of the asynchronous ones."""
GENERATED = ("_pb2.py", "_pb2.pyi")


def tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", pattern],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        return sorted(ROOT.glob(f"src/{pattern}")) + sorted(ROOT.glob(f"tests/{pattern}"))
    return [ROOT / name for name in listed.stdout.split("\n") if name and (ROOT / name).exists()]


PYTHON = [path for path in tracked("*.py") if not path.name.endswith(GENERATED)]
SOURCES = [path for path in PYTHON if path.is_relative_to(ROOT / "src")]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module, parsed once for all tests."""
    return ast.parse(path.read_text())


def test_modules_and_functions_fit_their_limits():
    lines = {name(path): path.read_text().count("\n") for path in PYTHON}
    long = [
        f"{name(path)}: {node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for path in PYTHON
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    ]

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for path, count in lines.items():
            if count > MODULE_LINES_WARNED:
                warnings.warn(f"{path} has {count} lines", stacklevel=1)
    assert [f"{path}: {count}" for path, count in lines.items() if count > MODULE_LINES] == []
    assert long == []


def test_every_module_has_a_docstring():
    assert [name(path) for path in SOURCES if not ast.get_docstring(parsed(path))] == []


def test_every_module_is_imported_somewhere():
    words = {path: set(re.findall(r"\w+", path.read_text())) for path in PYTHON}
    files = Counter(word for found in words.values() for word in found)
    files.update(set(re.findall(r"\w+", (ROOT / "pyproject.toml").read_text())))
    lonely = [
        name(path)
        for path in SOURCES
        if path.stem not in {"__init__", "__main__"}
        and files[path.stem] <= (path.stem in words[path])
    ]

    assert lonely == []


def test_no_blobs():
    large = [name(path) for path in tracked("*") if path.stat().st_size > BLOB_BYTES]

    assert large == []


def test_unfinished_work_names_its_issue():
    mark = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b(?!\(#\d+\))")
    found = [name(path) for path in PYTHON if mark.search(path.read_text())]

    assert found == []


def test_methods_that_a_subclass_has_to_define_are_abstract():
    """Then a class without it cannot be instantiated, and the type checker names it."""
    found = [
        f"{name(path)}: {function.name}"
        for path in SOURCES
        for function in ast.walk(parsed(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in function.body
        if isinstance(node, ast.Raise) and ast.unparse(node) == "raise NotImplementedError"
    ]

    assert found == []


def test_changelog_has_an_unreleased_part():
    text = (ROOT / "CHANGELOG.md").read_text()

    assert text.startswith("# Changelog")
    assert "## [Unreleased]" in text


def test_no_folder_has_too_many_modules():
    modules = Counter(path.parent for path in PYTHON if path.parts[len(ROOT.parts)] in ROOMS)

    assert {name(folder): n for folder, n in modules.items() if n > FOLDER_MODULES} == {}


ROOMS = {"src", "tests"}


def dotted(path: Path) -> str:
    """The name by which a source is imported."""
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path, known: set[str]) -> Iterator[str]:
    """Modules of ours that a source imports, for types and inside functions included."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{each.name}" for each in node.names]
            yield from (each if each in known else node.module for each in names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or not."""
    reached = {module: reachable(graph, module) for module in graph}
    groups = {
        frozenset(each for each in reached[module] if module in reached[each])
        for module in graph
        if module in reached[module]
    }
    return sorted(sorted(group) for group in groups)


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """Every module that a module imports, directly or not."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += graph[module]
    return found


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_no_modules_import_each_other():
    known = {dotted(path) for path in SOURCES}
    graph = {
        dotted(path): known.intersection(imports(path, known)) - {dotted(path)} for path in SOURCES
    }

    assert circles(graph) == []


def test_names_of_classes_are_unique_in_their_room():
    """In a room for several protocols: per protocol. A synchronous client has the same names."""
    homes = defaultdict(list)
    for path in SOURCES:
        first, *others = (
            path.relative_to(ROOT / "src/trilogue").parts if "trilogue" in path.parts else ("",)
        )
        room = (first, others[0]) if first in PER_PROTOCOL and len(others) > 1 else (first,)
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[*room, node.name].append(path)

    assert [
        (key, [name(path) for path in paths])
        for key, paths in homes.items()
        if len([path for path in paths if path.name not in FACADES]) > 1
    ] == []


def comments(path: Path) -> Iterator[str]:
    """The comments of a module, but those between the parts of one string."""
    lines = path.read_bytes().split(b"\n")
    for node in ast.walk(parsed(path)):
        if (
            isinstance(node, ast.JoinedStr | ast.Constant)
            and node.end_lineno
            and node.end_col_offset
        ):
            last = lines[node.end_lineno - 1]
            lines[node.end_lineno - 1] = last[node.end_col_offset :].rjust(len(last))
            for number in range(node.lineno, node.end_lineno - 1):
                lines[number] = b""
            if node.end_lineno > node.lineno:
                lines[node.lineno - 1] = lines[node.lineno - 1][: node.col_offset]
    for line in lines:
        _, mark, comment = line.partition(b"#")
        if mark:
            yield comment.decode()


def prose(path: Path) -> str:
    """The sentences of a file: docstrings and comments, or a page without its code."""
    text = path.read_text()
    if path.suffix == ".md":
        return LINK.sub("]", CODE.sub("", FENCE.sub("", text)))
    parts = [
        node.value.value
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    parts += comments(path)
    return CODE.sub("", "\n".join(parts))


def room_of(path: Path) -> str:
    """The room whose words are counted together: two folders of sources and tests, or one."""
    parts = path.relative_to(ROOT).parts
    depth = {"src": 3, "tests": 2}.get(parts[0], 1)
    return "/".join(parts[:depth]) if len(parts) > depth else "/".join(parts[:-1]) or parts[0]


WRITTEN = [
    path
    for path in [*PYTHON, *tracked("*.md")]
    if "decisions" not in path.parts and path.name != "CHANGELOG.md" and path != Path(__file__)
]


def test_prose_uses_the_words_of_the_field():
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for path in WRITTEN:
        words = [word.lower() for word in WORD.findall(prose(path))]
        found[room_of(path)].update(all=len(words), avoided=sum(word in AVOIDED for word in words))

    assert {
        room: f"{count['avoided']} of {count['all']} words"
        for room, count in found.items()
        if count["avoided"] > max(3, count["all"] * WORDS_PER_THOUSAND / 1000)
    } == {}


def user_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Strings of a source that are no docstrings and have several words: errors, logs, help."""
    tree = parsed(path)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value.strip()
            and id(node) not in docstrings
        ):
            yield node.lineno, node.value


def test_texts_for_users_use_the_words_of_the_field():
    assert [
        f"{name(path)}:{line}: {text}"
        for path in SOURCES
        for line, text in user_texts(path)
        if AVOIDED.intersection(word.lower() for word in WORD.findall(text))
    ] == []


def test_names_of_tests_use_the_words_of_the_field():
    assert [
        f"{name(path)}::{node.name}"
        for path in PYTHON
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and (
            (AVOIDED | PRONOUNS).intersection(node.name.split("_"))
            or node.name.startswith("test_what_")
        )
    ] == []


def test_only_what_a_reader_can_open_is_cited():
    cited = {name(path): PRIVATE.findall(path.read_text()) for path in WRITTEN}

    assert {path: texts for path, texts in cited.items() if texts} == {}
