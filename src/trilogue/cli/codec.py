"""`trilogue codec fetch 11`: the generated Python that codes one Kafka message in one version.

With --decode or --frame it decodes a message and prints it as JSON (codec_decoded.py).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trilogue.cli.options import USAGE_ERROR, exit_with_error

if TYPE_CHECKING:
    from trilogue.wire.kafka.codec.compile import Way

FAILED = 1
KINDS = ("auto", "hex", "base64", "raw")
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
    decode: Annotated[
        bool, typer.Option("--decode", help="Read one from stdin and print it as JSON.")
    ] = False,
    frame: Annotated[
        bool,
        typer.Option(
            "--frame",
            help="Decode a message with its header; that of a request has API and version.",
        ),
    ] = False,
    kind: Annotated[
        str, typer.Option("--input", help="What stdin has: hex, base64, raw, or auto.")
    ] = "auto",
) -> None:
    """Print the code generated for a Kafka message, or decode one; without arguments list them."""
    if kind not in KINDS:
        exit_with_error(f"--input {kind}: one of {', '.join(KINDS)}", USAGE_ERROR)
    if frame or decode:
        _decode(api, version, kind, response=response, frame=frame)
        return
    from trilogue.wire.kafka.api import MESSAGES
    from trilogue.wire.kafka.codec.compile import source
    from trilogue.wire.kafka.codec.schema import table

    if api is None:
        for key, (request, _) in sorted(MESSAGES.items()):
            declared = table(request)
            typer.echo(f"{key:3} {_spoken(request):20} {declared.first}-{declared.last}")
        return
    message = _find(api)[1 if response else 0]
    declared = table(message)
    version = declared.last if version is None else version
    if version not in declared:
        exit_with_error(
            f"{message.__name__} has the versions {declared.first} to {declared.last}", USAGE_ERROR
        )
    requested: Way | None = next((one for one in WAYS if one == way), None)
    if way and requested is None:
        exit_with_error(f"--way {way}: one of {', '.join(WAYS)}", USAGE_ERROR)
    typer.echo(source(message, version, requested or ("encode" if response else "decode")))


def _decode(
    api: str | None, version: int | None, kind: str, *, response: bool, frame: bool
) -> None:
    import json

    from trilogue.cli import codec_decoded as decoded
    from trilogue.wire.kafka.codec.schema import table

    if (api is None or version is None) and (response or not frame):
        exit_with_error("name the message: an API and its version", USAGE_ERROR)
    given = sys.stdin.buffer.read(decoded.SIZE_MAX)
    try:
        data = decoded.octets(given, kind)
        if api is None or version is None or (frame and not response):
            body = decoded.request_frame(data)
        else:
            pair = _find(api)
            message = pair[1 if response else 0]
            if version not in table(message):
                exit_with_error(f"{message.__name__} has no version {version}", USAGE_ERROR)
            key = table(pair[0]).key
            assert key is not None
            if frame:
                body = decoded.response_frame(data, message, key, version)
            else:
                body = decoded.body(data, message, version)
    except decoded.DecodingError as error:
        exit_with_error(str(error), FAILED)
    typer.echo(json.dumps(body, indent=2, ensure_ascii=False))


def _find(api: str) -> tuple[type, type]:
    from trilogue.wire.kafka.api import MESSAGES

    wanted = api.replace("-", "_").lower()
    found: dict[str, tuple[type, type]] = {}
    for key, pair in MESSAGES.items():
        name = _spoken(pair[0])
        found |= {str(key): pair, name: pair, name.replace("_", ""): pair}
    if wanted not in found:
        exit_with_error(f"no message {api!r}; `trilogue codec` lists them", USAGE_ERROR)
    return found[wanted]


def _spoken(request: type) -> str:
    name = request.__name__.removesuffix("Request")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
