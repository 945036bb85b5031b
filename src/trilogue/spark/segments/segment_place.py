"""Options that name a data directory and the object storage beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from trilogue.spark.errors import OptionError

if TYPE_CHECKING:
    from trilogue.log.objects.obstore_store import StoreOptions

_OBJECTS = "objects.url"
_OF_OBJECTS = ("objects.endpoint", "objects.region", "objects.credentials-file")


class SegmentPlace(NamedTuple):
    """A data directory, and the object storage that its older segments were moved to."""

    directory: str
    store: StoreOptions | None = None


def parse_segments(options: Mapping[str, str]) -> SegmentPlace | None:
    """Return the place that option `path` names; None where it names topics, or is not given."""
    path = options.get("path", "")
    parts = urlsplit(path)
    if parts.scheme and "://" in path:
        if parts.scheme != "file" or parts.netloc:
            raise OptionError(
                f"option 'path' takes topics, /PATH or file:///PATH, not {parts.scheme}://…: the "
                f"manifest lies in the data directory; {_OBJECTS} names the storage beside it"
            )
        path = unquote(parts.path)
    if not path.startswith("/"):
        if _OBJECTS in options:
            raise OptionError(f"option {_OBJECTS!r} needs a data directory in option 'path'")
        return None
    return SegmentPlace(str(Path(path)), _parse_store(options))


def _parse_store(options: Mapping[str, str]) -> StoreOptions | None:
    if _OBJECTS not in options:
        for name in _OF_OBJECTS:
            if name in options:
                raise OptionError(f"option {name!r} needs {_OBJECTS!r}")
        return None
    from trilogue.log.objects.obstore_store import StoreOptions, StoreOptionsError

    store = StoreOptions(options[_OBJECTS], *(options.get(name, "") for name in _OF_OBJECTS))
    try:
        store.check()
    except StoreOptionsError as error:
        raise OptionError(f"option {_OBJECTS!r}: {error}") from None
    return store
