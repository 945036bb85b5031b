"""Brings one segment to object storage: a job of the helper process.

In a process of its own, since the file is mapped and goes out from the page cache: hundreds of MiB
need no memory of ours, and a disk that cannot read them ends that process and not the broker.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from trilogue.log.errors import CorruptLog
from trilogue.log.files import FileSystem, OsFileSystem
from trilogue.log.objects import Objects, Surroundings
from trilogue.log.obstore_store import Reach
from trilogue.log.segment_info import SegmentInfo


@dataclass(frozen=True, slots=True)
class UploadJob:
    """Which segment, and where to."""

    reach: Reach
    directory: str
    segment: SegmentInfo


@dataclass(frozen=True, slots=True)
class UploadResult:
    """How it went. It is there, whole and durable, or the job raises `StorageUnavailable`."""

    was_there: bool  # by an earlier try
    retries: int


def run(job: UploadJob) -> UploadResult:
    """Upload from the operating system's files: what the helper process is sent."""
    around = Surroundings(time.monotonic, time.sleep, Random())  # noqa: S311
    return upload(job, job.reach.open(around), OsFileSystem())


def upload(job: UploadJob, objects: Objects, files: FileSystem) -> UploadResult:
    """Put the file's bytes where the segment's key is."""
    path = Path(job.directory) / job.segment.name
    try:
        file = files.open(path)
    except FileNotFoundError:
        raise CorruptLog("the segment is missing", path) from None
    try:
        objects.prove()
        was_there = objects.put(job.segment, file.map())
    finally:
        file.close()
    return UploadResult(was_there, objects.counts.retries)
