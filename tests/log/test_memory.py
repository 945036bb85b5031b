from __future__ import annotations

import ctypes
import os

import pytest

from trilogue.log.files import BLOCK
from trilogue.log.memory import HUGE_PAGE, aligned, mapped


@pytest.mark.parametrize("size", [BLOCK, HUGE_PAGE, 3 * HUGE_PAGE + BLOCK])
def test_it_is_zeroed_writable_and_begins_where_direct_writes_want_it(size: int):
    memory = aligned(size)

    assert len(memory) == size
    assert bytes(memory[-BLOCK:]) == bytes(BLOCK)
    memory[-1:] = b"x"
    assert ctypes.addressof(ctypes.c_char.from_buffer(memory)) % BLOCK == 0


def test_a_forked_process_does_not_write_into_it():
    memory = mapped(BLOCK)
    child = os.fork()
    if not child:
        memory[:5] = b"child"
        os._exit(0)
    os.waitpid(child, 0)

    assert memory[:5] == bytes(5)
