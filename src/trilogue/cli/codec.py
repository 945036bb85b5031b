"""`trilogue codec fetch 11`: the Python that reads and writes one Kafka message in one version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trilogue.cli.options import USAGE_ERROR, leave

if TYPE_CHECKING:
    from trilogue.wire.kafka.compile import Way

WAYS: tuple[Way, ...] = ("decode", "encode", "gather")


def codec(
    api: Annotated[
        str | None, typer.Argument(help="An API by name or key: fetch, list_offsets, 1.")
    ] = None,
    version: Annotated[int | None, typer.Argument(help="Its version; the newest if none.")] = None,
    *,
    response: Annotated[
        bool, typer.Option("--response", help="The response instead of the request.")
    ] = False,
    way: Annotated[
        str, typer.Option("--way", help="decode, encode, or gather (encode without copying).")
    ] = "",
) -> None:
    """Print the code generated for a Kafka message; without arguments, list the messages."""
    from trilogue.wire.kafka.api import MESSAGES
    from trilogue.wire.kafka.compile import source
    from trilogue.wire.kafka.schema import table

    if api is None:
        for key, (request, _) in sorted(MESSAGES.items()):
            declared = table(request)
            typer.echo(f"{key:3} {_spoken(request):20} {declared.first}-{declared.last}")
        return
    message = _find(api)[1 if response else 0]
    declared = table(message)
    version = declared.last if version is None else version
    if version not in declared:
        leave(
            f"{message.__name__} has the versions {declared.first} to {declared.last}", USAGE_ERROR
        )
    asked: Way | None = next((one for one in WAYS if one == way), None)
    if way and asked is None:
        leave(f"--way {way}: one of {', '.join(WAYS)}", USAGE_ERROR)
    typer.echo(source(message, version, asked or ("encode" if response else "decode")))


def _find(api: str) -> tuple[type, type]:
    from trilogue.wire.kafka.api import MESSAGES

    wanted = api.replace("-", "_").lower()
    found: dict[str, tuple[type, type]] = {}
    for key, pair in MESSAGES.items():
        name = _spoken(pair[0])
        found |= {str(key): pair, name: pair, name.replace("_", ""): pair}
    if wanted not in found:
        leave(f"no message {api!r}; `trilogue codec` lists them", USAGE_ERROR)
    return found[wanted]


def _spoken(request: type) -> str:
    name = request.__name__.removesuffix("Request")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
