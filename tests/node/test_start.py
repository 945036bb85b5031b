"""What a start of the server loads: counted, because times depend on the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server import LISTENERS, clean_environment
from trilogue.cli.compiled_modules import COMPILED_MODULES

OURS_AT_MOST = 518  # modules; 0.25 ms of CPU each
MESSAGES = {
    "trilogue.wire.kafka.groups.member_metadata",
    "trilogue.wire.kafka.leader",
    "trilogue.wire.kafka.metadata.api_versions",
    "trilogue.wire.kafka.metadata.metadata",
    "trilogue.wire.kafka.produce",
}
"""Kafka's messages that a start needs; the others come with the first request."""
NO_MESSAGES = ("trilogue.wire.kafka.api", "trilogue.wire.kafka.codec", "trilogue.wire.kafka.errors")
HEAVY = (
    "argparse", "avro", "click", "cryptography", "email", "h11", "importlib.metadata", "jwt",
    "numpy", "prometheus_client", "pyarrow", "re2", "rich", "starlette", "trilogue.client",
    "trilogue.demo", "trilogue.gateway.http.app", "trilogue.gateway.http.server",
    "trilogue.node.metrics.node_metrics", "trilogue.spark", "uvicorn",
)  # fmt: skip
PROGRAM = """
import contextlib, os, signal, sys
from pathlib import Path
from trilogue.node import process
make_ready_file = process.ready_file

@contextlib.contextmanager
def ready_file(path, addresses):
    with make_ready_file(path, addresses):
        Path(path).with_name("modules").write_text(chr(10).join(sys.modules))
        os.kill(os.getpid(), signal.SIGTERM)
        yield

process.ready_file = ready_file
from trilogue.cli.main import main
main(sys.argv[1:])
"""


VERB = """
import sys
from trilogue.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The modules of a server that has written its ready file, without those of any verb."""
    folder = tmp_path_factory.mktemp("start")
    listen = [f"--listen={name}=127.0.0.1:0" for name in LISTENERS]
    files = ["--data", str(folder / "data"), "--ready-file", str(folder / "ready")]
    run_python(PROGRAM, "serve", *files, *listen)
    verbs = run_python(VERB, "config")  # Typer since 0.29 loads pydantic, which loads much
    needed = {name for name in verbs.split() if not within(name, ("trilogue",))}
    return sorted(set((folder / "modules").read_text().split()) - needed)


def run_python(program: str, *arguments: str) -> str:
    """Return what the program writes to stderr."""
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=clean_environment(), check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return ran.stderr


def within(name: str, folders: tuple[str, ...]) -> bool:
    return any(name == folder or name.startswith(f"{folder}.") for folder in folders)


def source_of(name: str) -> Path:
    return Path(__file__).parents[2] / "src" / name.replace(".", "/")


def test_a_start_loads_no_heavy_library(loaded: list[str]):
    assert [name for name in loaded if within(name, HEAVY)] == []


def test_a_start_loads_few_messages_of_kafka(loaded: list[str]):
    messages = {
        name
        for name in loaded
        if within(name, ("trilogue.wire.kafka",)) and not within(name, NO_MESSAGES)
    }

    assert {name for name in messages if not source_of(name).is_dir()} == MESSAGES


def test_a_start_loads_few_modules(loaded: list[str]):
    ours = [name for name in loaded if within(name, ("trilogue",))]

    assert len(ours) <= OURS_AT_MOST, ours


@pytest.mark.parametrize("name", [name for name in HEAVY if name.startswith("trilogue")])
def test_a_heavy_module_of_ours_exists(name: str):
    assert source_of(name).is_dir() or source_of(name).with_suffix(".py").exists()


def test_doctor_imports_no_module_that_it_reports():
    assert set(run_python(VERB, "doctor").split()).isdisjoint(COMPILED_MODULES)
