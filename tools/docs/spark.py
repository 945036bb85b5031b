"""The options of the Spark source and sink, from the table that checks them."""

from __future__ import annotations

from collections.abc import Mapping

from tools.docs.blocks import table
from trilogue.spark.read_options import READ_OPTIONS
from trilogue.spark.write_options import WRITE_OPTIONS


def read_options() -> str:
    """What `spark.read` and `spark.readStream` take."""
    return _options(READ_OPTIONS)


def write_options() -> str:
    """What `df.write` and `df.writeStream` take."""
    return _options(WRITE_OPTIONS)


def _options(options: Mapping[str, str]) -> str:
    return table(("option", "meaning"), ((f"`{name}`", doc) for name, doc in options.items()))
