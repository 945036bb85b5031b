"""The options of `serve` and `config` that give settings, and their conversion into values."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, Required, TypedDict, Unpack

import typer

if TYPE_CHECKING:
    from trilogue.node.settings.table import Settings

USAGE_ERROR = 2
SETTINGS_FILE = "trilogue.toml"  # of `serve` and all that reads its settings
CLIENT_FILE = "client.conf"  # how verbs reach and log in to a server
SYSTEM_CONFIG = "/etc"

DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The data directory.", readable=False),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A TOML file with settings, instead of ~/.config/trilogue/trilogue.toml or "
        "/etc/trilogue/trilogue.toml (the first that exists); /dev/null: none.",
    ),
]
ListenOption = Annotated[
    list[str] | None,
    typer.Option(
        "--listen",
        metavar="LISTENER=HOST:PORT",
        help="Address of a listener (kafka, pulsar, tubemq-master, tubemq-broker, http); port 0 "
        "takes a free one; LISTENER=off closes it.",
    ),
]
AdvertiseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--advertise",
        metavar="LISTENER=HOST:PORT",
        help="The address that clients of a listener are given.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting; `trilogue config` lists them."),
]
ReadyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--ready-file",
        metavar="PATH",
        help="Write process id and addresses when all listeners are open.",
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Allow other machines to reach listeners without TLS and authentication."
    ),
]
SalvageOption = Annotated[
    bool,
    typer.Option(
        "--salvage", help="Start although acknowledged data is damaged; logs what is lost."
    ),
]
NodesOption = Annotated[
    str | None,
    typer.Option(
        "--nodes",
        metavar="N",
        help="Node processes, one core each, over one data directory; `auto`: one for each core.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="URL",
        help="The PostgreSQL database of a cluster on several machines: postgresql://...",
    ),
]
NodeOption = Annotated[
    int | None,
    typer.Option("--node", metavar="ID", help="The number of this node in the cluster."),
]
SecureOption = Annotated[
    bool,
    typer.Option(
        "--secure",
        help="Secure the data directory at its first start: an administrator, a private CA, "
        "TLS, logins and ACLs. Later starts on it are secure without this option.",
    ),
]

TestOption = Annotated[
    bool,
    typer.Option(
        "--test",
        help="Serve the tests of a program on free ports of this machine: prints one line of JSON "
        "with the addresses, takes faults over HTTP, ends with its parent or its stdin.",
    ),
]
TestSecondsOption = Annotated[
    float | None,
    typer.Option(
        "--test-seconds",
        metavar="SECONDS",
        help="With --test: end after this time instead of with the parent process.",
        min=0,
    ),
]


class SettingFlags(TypedDict, total=False):
    """The options of a command that are settings, or name their sources."""

    data: Required[Path | None]
    config: Path | None
    listen: list[str] | None
    advertise: list[str] | None
    assignments: list[str] | None
    ready_file: Path | None
    insecure: bool
    salvage: bool
    nodes: str | None
    cluster: str | None
    node: int | None
    is_complete: bool


def settings_from(**given: Unpack[SettingFlags]) -> Settings:
    """Read all sources of settings; after an error exit with code 2 and one line."""
    from trilogue.node.settings.table import SettingsError

    try:
        return read_settings(**given)
    except SettingsError as error:
        exit_with_error(str(error), USAGE_ERROR)


def read_settings(
    *,
    data: Path | None,
    config: Path | None = None,
    listen: list[str] | None = None,
    advertise: list[str] | None = None,
    assignments: list[str] | None = None,
    ready_file: Path | None = None,
    insecure: bool = False,
    salvage: bool = False,
    nodes: str | None = None,
    cluster: str | None = None,
    node: int | None = None,
    is_complete: bool = True,
) -> Settings:
    """Read all sources of settings; SettingsError."""
    from trilogue.node.settings.sources import CONFIG_VARIABLE, listener_flag, load_settings

    flags = [listener_flag("listen", text) for text in listen or ()]
    flags += [listener_flag("advertise", text) for text in advertise or ()]
    if data is not None:
        flags.append(("data", str(data), "--data"))
    if ready_file is not None:
        flags.append(("ready-file", str(ready_file), "--ready-file"))
    if insecure:
        flags.append(("insecure", "true", "--insecure"))
    if salvage:
        flags.append(("salvage", "true", "--salvage"))
    if nodes is not None:
        count = len(os.sched_getaffinity(0)) if nodes == "auto" else nodes
        flags.append(("nodes", str(count), "--nodes"))
    if cluster is not None:
        flags.append(("cluster.url", cluster, "--cluster"))
    if node is not None:
        flags.append(("cluster.node", str(node), "--node"))
    if config is None and CONFIG_VARIABLE not in os.environ:  # an empty one: no file
        config = find_config_file(SETTINGS_FILE)
    return load_settings(
        environment=os.environ,
        config_file=config,
        assignments=assignments or (),
        flags=flags,
        is_complete=is_complete,
    )


def find_config_file(name: str) -> Path | None:
    """Return the user's configuration file of a name, or the machine's, if one exists."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    if not home.startswith("/"):  # a relative one is ignored, as the XDG rules require
        home = os.path.expanduser("~/.config")  # noqa: PTH111 - no error without a home
    for folder in (home, SYSTEM_CONFIG):
        path = Path(folder) / "trilogue" / name
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            if folder == home:  # of another user, whose HOME this process has
                continue
        return path  # what cannot be read is an error
    return None


def exit_with_error(message: str, code: int) -> NoReturn:
    """Print one line on stderr and end the command."""
    print(f"trilogue: {message}", file=sys.stderr)
    raise typer.Exit(code)
