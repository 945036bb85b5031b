"""Loads the uncompiled twin of a module that may also be there compiled."""

from __future__ import annotations

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def load_pure(name: str, **beneath: ModuleType) -> ModuleType:
    """Load the .py of a module, bypassing a compiled one; the imported module stays as it is.

    `beneath` names modules, dots written as `__`, that the loaded one finds in place of the
    installed ones: so a module is tested on top of the uncompiled twin of another.
    """
    package, _, stem = name.rpartition(".")
    path = Path(next(iter(importlib.import_module(package).__path__))) / f"{stem}.py"
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    replaced = {key.replace("__", "."): twin for key, twin in beneath.items()} | {name: module}
    before = {key: sys.modules.get(key) for key in replaced}
    sys.modules.update(replaced)
    try:
        spec.loader.exec_module(module)
    finally:
        for key, old in before.items():
            if old is None:
                del sys.modules[key]
            else:
                sys.modules[key] = old
    return module
