"""Optional compilation: without a C compiler the same modules run as plain Python."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
MODULE_LIST = ROOT / "src/trilogue/cli/compiled_modules.py"
C_FLAGS = ["-O2", "-g0", "-w"]
"""They follow Python's own `-O3 -g -Wall`; docs/decisions/0063 has measurements."""


def jobs() -> int:
    """Return how many files are compiled at a time: one per core this process may use."""
    if sys.platform != "linux":  # a child process elsewhere begins by executing this file again
        return 1
    return len(os.sched_getaffinity(0))


def extensions() -> list[object]:
    """Return the extensions of the compiled modules; a failing compiler does not fail the build."""
    if os.environ.get("TRILOGUE_NO_EXTENSIONS"):
        return []
    from Cython.Build import cythonize

    names: tuple[str, ...] = runpy.run_path(str(MODULE_LIST))["COMPILED_MODULES"]
    built = cythonize(
        [f"src/{name.replace('.', '/')}.py" for name in names],
        language_level=3,
        build_dir="build/cython",
        nthreads=jobs(),
        quiet=True,
        compiler_directives={"boundscheck": False, "wraparound": False},
    )
    for extension in built:  # after cythonize, which drops what was set before
        extension.optional = True
        extension.extra_compile_args = C_FLAGS
    return built


if __name__ == "__main__":  # cythonize's worker processes import this file
    setup(ext_modules=extensions(), options={"build_ext": {"parallel": jobs()}})
