"""A data directory that was made survives a power cut as what is in it does."""

from __future__ import annotations

from pathlib import Path

from tests.fakes import FakeFileSystem
from trilogue.log.directory import DataDirectory


class Recording(FakeFileSystem):
    def __init__(self) -> None:
        super().__init__()
        self.synced: list[Path] = []

    def sync_directory(self, path: Path) -> None:
        self.synced.append(path)
        super().sync_directory(path)


def test_a_new_data_directory_is_durable_in_the_directories_above_it():
    """Its name stands in its parent: synced only inside, it could vanish with every ack."""
    fs = Recording()
    fs.make_directory(Path("/mnt"))

    DataDirectory.open(fs, Path("/mnt/a/b")).close()

    assert {Path("/mnt"), Path("/mnt/a"), Path("/mnt/a/b")} <= set(fs.synced)


def test_the_directories_above_one_that_was_there_are_none_of_our_business():
    """They may not even be readable."""
    fs = Recording()
    fs.make_directory(Path("/mnt/a"))

    DataDirectory.open(fs, Path("/mnt/a")).close()

    assert Path("/mnt") not in fs.synced
