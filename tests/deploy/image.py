"""The instructions of a Dockerfile, run in folders as `docker build` and `docker run` do.

    base (Debian and its Python) ── a view for each FROM, changes in a folder of its own ──► image

Commands run in a root of their own, as the image's user, with the image's environment only. Layers,
the cache and the network of containers have no part in it.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from string import Template

import msgspec

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OF_REGISTRIES = (
    "etc/resolv.conf",
    "etc/hosts",
    "etc/pip.conf",
    "etc/ssl/certs/ca-certificates.crt",
)
"""What a build needs of this machine to reach its registries of packages."""
MOUNTS = "mount -t proc proc {root}/proc; mount -t tmpfs tmpfs {root}/tmp"
READ_ONLY = (
    "mount --bind {root}{volume} {root}{volume}; mount -o remount,bind,ro {root}; "
    "mount -t proc proc {root}/proc; mount -t tmpfs tmpfs {root}/tmp"
)


class Stage(msgspec.Struct):
    """A stage of a build, and the image that it becomes."""

    root: Path
    environment: dict[str, str]
    folder: str = "/"
    user: str = "0"
    volumes: list[str] = []
    entrypoint: list[str] = []
    command: list[str] = []
    health: list[str] = []


def read_instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile with their texts."""
    lines = [each for each in text.splitlines() if not each.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


@contextmanager
def build_image(dockerfile: Path, context: Path, base: Path, folder: Path) -> Iterator[Stage]:
    """Run a Dockerfile's instructions; AssertionError for one that fails or is unknown."""
    stages: dict[str, Stage] = {}
    stage = Stage(base, {})
    with ExitStack() as stack:
        for name, text in read_instructions(dockerfile.read_text()):
            if name == "FROM":
                label = text.partition(" AS ")[2] or str(len(stages))
                root = stack.enter_context(_view(base, folder / label))
                stage = stages[label] = Stage(root, {"PATH": PATH})
            else:
                _run_instruction(stage, stages, context, name, text)
        yield stage


@contextmanager
def _view(base: Path, folder: Path) -> Iterator[Path]:
    """A view of a root; what changes in it goes to the folder."""
    root = folder / "root"
    for each in ("root", "upper", "work"):
        (folder / each).mkdir(parents=True)
    options = f"lowerdir={base},upperdir={folder}/upper,workdir={folder}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, root], check=True)
    try:
        for each in OF_REGISTRIES:
            if Path("/", each).exists():
                (root / each).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path("/", each), root / each)
        yield root
    finally:
        subprocess.run(["umount", "-l", root], check=True)


def _run_instruction(
    stage: Stage, stages: dict[str, Stage], context: Path, name: str, text: str
) -> None:
    if name == "RUN":
        command = enter(stage, ["/bin/sh", "-c", text])
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={})
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    elif name == "COPY":
        _copy(stage, stages, context, shlex.split(text))
    elif name == "ENV":
        for each in shlex.split(text):
            key, _, value = each.partition("=")
            stage.environment[key] = Template(value).substitute(stage.environment)
    elif name == "WORKDIR":
        stage.folder = text
        stage.root.joinpath(text.lstrip("/")).mkdir(parents=True, exist_ok=True)
    else:
        _set_option(stage, name, text)


def _set_option(stage: Stage, name: str, text: str) -> None:
    """Note what an image says of its containers."""
    match name:
        case "USER":
            stage.user = text
        case "VOLUME":
            stage.volumes.append(text)
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(text)
        case "CMD":
            stage.command = json.loads(text)
        case "HEALTHCHECK":
            stage.health = json.loads(text.partition(" CMD ")[2])
        case "EXPOSE" | "STOPSIGNAL":
            pass
        case _:
            raise AssertionError(f"this build does not know {name}")


def _copy(stage: Stage, stages: dict[str, Stage], context: Path, words: list[str]) -> None:
    """Copy files of the context, or those of a stage with `--from`."""
    if words[0].startswith("--from="):
        source = stages[words.pop(0).partition("=")[2]].root
    else:
        source = context
    *names, target = words
    folder = stage.root / (target if target.startswith("/") else f"{stage.folder}/{target}")[1:]
    for name in names:
        found = source / name.lstrip("/")
        if found.is_dir():
            shutil.copytree(found, folder, symlinks=True, dirs_exist_ok=True)
        else:
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, folder)


def enter(stage: Stage, command: Sequence[str], *, read_only: bool = False) -> list[str]:
    """Return the command that runs one in the root of a stage, as its user.

    With `read_only` nothing but its volumes and /tmp may be written, as `docker run --read-only`.
    """
    mounts = MOUNTS.format(root=stage.root)
    if read_only:
        (volume,) = stage.volumes
        mounts = READ_ONLY.format(root=stage.root, volume=volume)
    user = ["env", "-i", *(f"{key}={value}" for key, value in stage.environment.items())]
    if stage.user != "0":
        passwd = (stage.root / "etc/passwd").read_text()
        (group,) = re.findall(rf"^[^:]*:[^:]*:{stage.user}:(\d+):", passwd, re.MULTILINE)
        user = ["setpriv", f"--reuid={stage.user}", f"--regid={group}", "--clear-groups", *user]
    inside = shlex.join(["sh", "-c", f'cd {stage.folder} && exec "$@"', "sh", *user, *command])
    script = f"set -e; {mounts}; exec chroot {stage.root} {inside}"
    return ["unshare", "--mount", "sh", "-c", script]
