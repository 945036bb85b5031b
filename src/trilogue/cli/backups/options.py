"""The options that reach the place of backups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trilogue.log.objects.obstore_store import StoreOptions
    from trilogue.node.settings.table import Settings

EndpointOption = Annotated[
    str,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="Of S3-compatible storage that is not Amazon's; else `objects.endpoint`.",
    ),
]
RegionOption = Annotated[
    str, typer.Option("--region", metavar="NAME", help="Of the bucket; else `objects.region`.")
]
CredentialsOption = Annotated[
    Path | None,
    typer.Option(
        "--credentials-file",
        metavar="FILE",
        help="Keys of the bucket, as in ~/.aws/credentials; else `objects.credentials-file`, the "
        "environment or the role of the machine.",
    ),
]


def store_options(
    place: str,
    endpoint: str,
    region: str,
    credentials_file: Path | None,
    settings: Settings | None = None,
) -> StoreOptions | None:
    """Return how a bucket is reached: by these options, else as the server reaches its own."""
    if "://" not in place:
        return None
    from trilogue.log.objects.obstore_store import StoreOptions

    def own(key: str) -> str:
        return "" if settings is None else settings.text(f"objects.{key}")

    return StoreOptions(
        place,
        endpoint or own("endpoint"),
        region or own("region"),
        str(credentials_file or own("credentials-file")),
    )
