"""The list of compiled modules is whole: setup.py, doctor and the packaging tests read it."""

from __future__ import annotations

from pathlib import Path

from trilogue.cli.compiled_modules import COMPILED_MODULES

SOURCES = Path(__file__).resolve().parents[2] / "src"
INLINED = {
    "trilogue.entry.header",
    "trilogue.entry.memory",
    "trilogue.entry.pulsar.layout",
    "trilogue.entry.tubemq.layout",
    "trilogue.wire.memory",
    "trilogue.wire.pulsar.metadata_fields",
}
"""Their `.pxd` has constants and inline functions for other modules; they are no extensions."""


def test_each_module_with_cython_declarations_is_listed():
    declared = {
        ".".join(path.relative_to(SOURCES).with_suffix("").parts) for path in SOURCES.rglob("*.pxd")
    }

    assert set(COMPILED_MODULES) == declared - INLINED
    assert len(COMPILED_MODULES) == len(set(COMPILED_MODULES))


def test_each_listed_module_also_runs_uncompiled():
    for name in COMPILED_MODULES:
        assert (SOURCES / name.replace(".", "/")).with_suffix(".py").exists()
