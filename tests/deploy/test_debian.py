"""The Debian package, installed in a copy-on-write view of this machine, used, removed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.tools import require, require_program, require_root
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
BUILD_S, RUN_S = 1800, 300
BUILT = "TRILOGUE_TEST_DEB"  # the path of a package that is built already
READY = "var/lib/trilogue/ready"
SERVE = f"""
setpriv --reuid=trilogue --regid=trilogue --clear-groups \\
  trilogue serve --data /var/lib/trilogue/data --ready-file /{READY} \\
  --listen kafka=127.0.0.1:0 --listen http=127.0.0.1:0 --listen pulsar=off \\
  --listen tubemq-master=off --listen tubemq-broker=off >/var/log/trilogue.output 2>&1 &
server=$!
while read -r signal; do kill -"$signal" $server; done
code=0
wait $server || code=$?
cat /var/log/trilogue.output
exit $code
"""
"""Serve as the unit does; each line of stdin is a signal for the server."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(BUILD_S + RUN_S)]


@pytest.fixture(scope="module")
def package() -> Path:
    if built := os.environ.get(BUILT):
        return Path(built)
    require_program("dpkg-deb")
    require("python3-dev", found=list(Path("/usr/include").glob("python3.*/Python.h")))
    done = subprocess.run(
        ["bash", "tools/build-deb.sh"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / done.stdout.splitlines()[-1].split(":")[0]


@pytest.fixture
def clean_root(tmp_path: Path) -> Iterator[Path]:
    """A root in which changes go to a folder of memory, and not to this machine."""
    require_root()
    layers, root = tmp_path / "layers", tmp_path / "root"
    layers.mkdir()
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", layers], check=True)
    for each in ("upper", "work"):
        (layers / each).mkdir()
    options = f"lowerdir=/,upperdir={layers}/upper,workdir={layers}/work"
    try:
        mounted = subprocess.run(
            ["mount", "-t", "overlay", "overlay", "-o", options, root], check=False
        )
        require("overlayfs", found=mounted.returncode == 0)
        try:
            yield root
        finally:
            subprocess.run(["umount", "-l", root], check=True)
    finally:
        subprocess.run(["umount", "-l", layers], check=True)


def enter(root: Path, script: str) -> list[str]:
    """Return the command that runs a script of the shell in the root."""
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    return [
        "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
        "chroot", str(root), "/usr/bin/env", "-i", "HOME=/root", "LANG=C.UTF-8", f"PATH={path}",
        "/bin/sh", "-ec", f"mount -t tmpfs tmpfs /run; {script}",
    ]  # fmt: skip


def run(root: Path, script: str) -> str:
    """Run a script of the shell in the root; return what it printed."""
    done = subprocess.run(
        enter(root, script), capture_output=True, text=True, timeout=RUN_S, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_installed_package_serves_and_leaves_its_data(package: Path, clean_root: Path):
    (clean_root / "tmp" / package.name).write_bytes(package.read_bytes())

    run(clean_root, f"dpkg -i /tmp/{package.name}")

    assert "trilogue 0" in run(clean_root, "trilogue version")
    assert "compiled" in run(clean_root, "trilogue doctor")
    for page in ("trilogue", "trilogue-serve", "trilogue-topics-create"):
        assert (clean_root / f"usr/share/man/man1/{page}.1.gz").exists()
    check_unit(clean_root)
    check_service(clean_root)

    run(clean_root, "dpkg --remove trilogue")

    assert not (clean_root / "usr/lib/trilogue").exists()
    assert (clean_root / "etc/trilogue/trilogue.toml").exists()

    run(clean_root, "dpkg --purge trilogue")

    assert not (clean_root / "etc/trilogue").exists()
    assert list((clean_root / "var/lib/trilogue").iterdir())


def check_unit(root: Path) -> None:
    """Check that systemd takes the unit, and that it names what the package has."""
    unit = (root / "usr/lib/systemd/system/trilogue.service").read_text()
    assert "/usr/bin/trilogue serve --data /var/lib/trilogue\n" in unit
    if shutil.which("systemd-analyze"):
        found = run(root, "systemd-analyze verify --man=no trilogue.service 2>&1 || true")
        assert "trilogue.service" not in found, found


def has_ended(output: Path) -> bool:
    """Return whether the server has said why it could not start."""
    return output.exists() and "trilogue: " in output.read_text()


def check_service(root: Path) -> None:
    """Use the installed server by a Kafka client, change a setting under it, and stop it."""
    with subprocess.Popen(
        enter(root, SERVE),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/",
    ) as serving:  # fmt: skip
        assert serving.stdin is not None
        output = root / "var/log/trilogue.output"
        try:
            wait_until(lambda: (root / READY).exists() or has_ended(output), timeout_s=RUN_S)
            assert (root / READY).exists(), output.read_text()
            address = json.loads((root / READY).read_text())["doors"]["kafka"]
            errors: list[object] = []
            producer = Producer({"bootstrap.servers": address, "error_cb": errors.append})
            producer.produce("orders", b"one")
            assert producer.flush(RUN_S) == 0
            assert "settings.file path=/etc/trilogue/trilogue.toml" in output.read_text()

            settings = root / "etc/trilogue/trilogue.toml"
            settings.write_text('[topics]\nretention = "3d"\n')
            serving.stdin.write("HUP\n")
            serving.stdin.flush()
            applied = "settings.read applied=topics.retention"
            wait_until(lambda: applied in output.read_text(), "the settings", timeout_s=RUN_S)
            producer.produce("orders", b"two")
            assert producer.flush(RUN_S) == 0
            assert errors == []
            consumer = Consumer(
                {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
            )
            consumer.subscribe(["orders"])
            assert [each.value() for each in consumer.consume(2, RUN_S)] == [b"one", b"two"]
            consumer.close()
            printed, _ = serving.communicate("TERM\n", RUN_S)
            assert serving.returncode == 0, printed
        finally:
            serving.kill()
