"""The layout of an entry's header: one set of numbers, for Python and for compiled code."""

from __future__ import annotations

import re
from pathlib import Path

from trilogue.entry import header


def test_compiled_code_has_the_same_numbers():
    types = Path(header.__file__).with_name("header.pxd").read_text()

    numbers = {
        name: int(value) for name, value in re.findall(r"^ +(\w+) = (\d+)$", types, re.MULTILINE)
    }

    assert numbers
    assert numbers == {name: getattr(header, name) for name in numbers}
    assert header.HEADER.size == header.HEADER_SIZE
    assert header.STAMP.size == header.STAMP_SIZE
