"""The image of deploy/Dockerfile: built in a clean root of Debian, and run as its user."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest
import yaml
from confluent_kafka import Consumer, Producer
from tools.servers.network import OwnNetwork

from tests.deploy.image import Stage, build_image, enter
from tests.tools import require_program, require_root
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BUILT = "TRILOGUE_TEST_ROOT"  # a root of Debian that is there already
BUILD_S, RUN_S = 1800, 120
PACKAGES = "python3,python3-venv,libpython3-dev,ca-certificates"
SERVER = "/opt/trilogue/bin/trilogue"

pytestmark = [pytest.mark.long, pytest.mark.timeout(BUILD_S + RUN_S)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Debian with Python and its headers, as `FROM python:3.12-slim` has them."""
    require_root()
    if built := os.environ.get(BUILT):
        return Path(built)
    require_program("mmdebstrap")
    root = tmp_path_factory.mktemp("base") / "root"
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    command = ["mmdebstrap", "-q", "--variant=minbase", f"--include={PACKAGES}", suite, str(root)]
    subprocess.run(command, check=True, timeout=BUILD_S)
    return root


@pytest.fixture(scope="module")
def image(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The image, with the name that Python has in the base of the Dockerfile."""
    folder = tmp_path_factory.mktemp("image")
    python = base / "usr/local/bin/python"
    if not python.is_symlink():
        python.symlink_to("/usr/bin/python3")
    context = folder / "context"
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    for each in (line[1:] for line in lines if line.startswith("!")):
        (context / each).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / each).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.c")
            shutil.copytree(ROOT / each, context / each, ignore=ignored)
        else:
            shutil.copy(ROOT / each, context / each)
    with build_image(DEPLOY / "Dockerfile", context, base, folder) as built:
        yield built


@contextmanager
def run_container(
    image: Stage, network: OwnNetwork, command: list[str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of the image as compose.yaml does: read-only, without capabilities."""
    with log.open("wb") as output, network.inside():
        process = subprocess.Popen(
            enter(image, [*image.entrypoint, *command], read_only=True),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={},
        )  # fmt: skip
    with process:
        try:
            wait_until(
                lambda: process.poll() is not None or is_healthy(image, network),
                "a healthy container",
                timeout_s=RUN_S,
            )
            assert process.poll() is None, log.read_text()
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(RUN_S) == 0, log.read_text()
        finally:
            process.kill()
            shutil.rmtree(image.root / image.environment["TRILOGUE_DATA"].lstrip("/"))


def is_healthy(image: Stage, network: OwnNetwork) -> bool:
    with network.inside():
        return subprocess.run(enter(image, image.health), check=False, env={}).returncode == 0


def read_config(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    return dict(each.split("=", 1) for each in lines if "=" in each and not each.startswith("#"))


def test_the_image_has_no_root_and_no_compiler(image: Stage):
    def run(*command: str) -> str:
        done = subprocess.run(
            enter(image, command), capture_output=True, text=True, check=False, env={}
        )
        return done.stdout + done.stderr

    assert run("id", "-u").strip() == "10001"
    assert "compiled" in run("trilogue", "doctor")
    assert "trilogue 0" in run("trilogue", "version")
    assert run("sh", "-c", "command -v gcc || echo none").strip() == "none"
    assert "denied" in run("sh", "-c", "echo 1 >/opt/trilogue/x")


def test_by_default_it_serves_users_over_tls(image: Stage, tmp_path: Path):
    network = OwnNetwork()
    data = image.root / image.environment["TRILOGUE_DATA"].lstrip("/")
    with run_container(image, network, image.command, tmp_path / "log"):
        config: dict[str, Any] = read_config(data / "clients" / "librdkafka.conf")
        config["bootstrap.servers"] = "127.0.0.1:9093"
        config["ssl.ca.location"] = str(data / "tls" / "ca.pem")
        with network.inside():
            producer = Producer(config)
            assert producer.list_topics(timeout=RUN_S).brokers
            problems: list[Any] = []
            wrong = {"sasl.password": "wrong", "log_level": 0, "error_cb": problems.append}
            stranger = Producer({**config, **wrong})
            wait_until(lambda: stranger.poll(0.1) or problems, "a refusal", timeout_s=RUN_S)
            assert "AUTHENTICATION" in str(problems[0])
    network.close()


def test_composes_command_serves_kafkas_and_pulsars_clients(image: Stage, tmp_path: Path):
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["trilogue"]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    network = OwnNetwork()
    with (
        run_container(image, network, service["command"], tmp_path / "log"),
        network.inside(),
    ):
        producer = Producer({"bootstrap.servers": "127.0.0.1:9092"})
        producer.produce("orders", b"one")
        assert producer.flush(RUN_S) == 0
        client = pulsar.Client("pulsar://127.0.0.1:6650")
        client.create_producer("orders-partition-0").send(b"two")
        client.close()
        consumer = Consumer(
            {
                "bootstrap.servers": "127.0.0.1:9092",
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        assert [each.value() for each in consumer.consume(2, RUN_S)] == [b"one", b"two"]
        consumer.close()
    network.close()
