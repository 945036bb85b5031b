"""Exports of a package whose modules are loaded on first use.

A tool that lists topics needs little of a client, and reading all of it takes longer than the
answer of the server.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping


def lazy_exports(package: str, modules: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """Make the `__getattr__` of a package: module to the names that come from it."""
    where = {name: module for module, names in modules.items() for name in names}

    def load_export(name: str) -> object:
        module = where.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(importlib.import_module(f"{package}.{module}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return load_export
