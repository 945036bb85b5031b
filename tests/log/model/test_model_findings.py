"""Failures that the model test found, each reduced to the fewest steps that show it."""

from __future__ import annotations

from random import Random

import pytest

from tests.fakes import PowerCut
from tests.log.journal.test_recovery import flushed_all
from tests.log.rig import Rig


@pytest.mark.parametrize("seed", range(5))
def test_a_prepared_file_is_durable_under_its_name_before_frames_go_to_it(seed: int) -> None:
    """A kill comes between its renaming and the sync of the folder; the next process uses it."""
    rig = Rig()
    rig.open()
    rig.log.journal._files.prepare_spare()  # as the first frame does
    rig.fs.cut_after(6)  # create, fill, sync, header, sync, rename
    with pytest.raises(PowerCut):
        rig.loop.work()
    assert [name.suffix for name in rig.fs.changes[-1]] == [".journal", ".spare"]
    rig.restart()
    rig.commit()
    flushed_all(rig)
    offset = rig.commit()

    rig.fs.power_cut(Random(seed))
    rig.open()

    assert rig.log.partition(1).high_watermark == offset + 1
