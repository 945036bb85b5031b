"""Optional compilation: where there is no C compiler the same modules run as plain Python."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import setup

COMPILED = [
    "src/trilogue/broker/hot.py",
    "src/trilogue/entry/columns.py",
    "src/trilogue/entry/message_set.py",
    "src/trilogue/entry/pack.py",
    "src/trilogue/entry/pulsar_entry.py",
    "src/trilogue/entry/tubemq_entry.py",
    "src/trilogue/entry/walk.py",
    "src/trilogue/log/commit.py",
    "src/trilogue/gateway/hot.py",
    "src/trilogue/gateway/kafka/hot.py",
    "src/trilogue/log/hot.py",
    "src/trilogue/wire/fields.py",
    "src/trilogue/wire/frames.py",
    "src/trilogue/wire/pulsar/hot.py",
    "src/trilogue/wire/pulsar/singles.py",
    "src/trilogue/wire/tubemq/hot.py",
]


def extensions() -> list[object]:
    """Build the compiled rooms; a failing compiler must not fail the install."""
    if os.environ.get("TRILOGUE_NO_EXTENSIONS"):
        return []
    from Cython.Build import cythonize

    built = cythonize(
        [path for path in COMPILED if Path(path).exists()],
        language_level=3,
        build_dir="build/cython",
        compiler_directives={"boundscheck": False, "wraparound": False},
    )
    for extension in built:  # set after cythonize: set before, it is lost
        extension.optional = True
    return built


setup(ext_modules=extensions())
