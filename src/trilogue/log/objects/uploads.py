"""Uploads one segment to object storage: a job of the helper process.

It runs in a process of its own, since the file is mapped and sent from the page cache: hundreds of
MiB need no memory of the broker, and a disk error while reading them ends that process only.
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import msgspec

from trilogue.log.errors import CorruptLog
from trilogue.log.files import FileSystem, OsFileSystem
from trilogue.log.objects.objects import Objects, ObjectsEnvironment
from trilogue.log.objects.obstore_store import Reach
from trilogue.log.segments.segment_info import SegmentInfo


class UploadJob(msgspec.Struct, frozen=True):
    """The segment to upload, and its destination."""

    reach: Reach
    directory: str
    segment: SegmentInfo


class UploadResult(msgspec.Struct, frozen=True):
    """The object is whole and durable; otherwise the job raises `StorageUnavailable`."""

    was_there: bool  # an earlier try had uploaded it
    retries: int


def run(job: UploadJob) -> UploadResult:
    """Upload from the operating system's files; the entry point of the helper process."""
    around = ObjectsEnvironment(time.monotonic, time.sleep, Random())  # noqa: S311
    return upload(job, job.reach.open(around), OsFileSystem())


def upload(job: UploadJob, objects: Objects, files: FileSystem) -> UploadResult:
    """Put the file's bytes under the segment's key."""
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
