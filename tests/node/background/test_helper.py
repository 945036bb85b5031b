"""The helper process: started when needed, started again, never left behind."""

from __future__ import annotations

import asyncio
import io
import operator
import os
import pickle
import select
import signal
import subprocess
import sys

import pytest
from msgspec.structs import replace

from tests.log.jobs.merging import job, put
from tests.log.samples import samples
from tests.waiting import run_ready_tasks, wait_on_loop
from trilogue.log.files import OsFileSystem
from trilogue.log.jobs import merge
from trilogue.log.segments.segment_info import segment_name
from trilogue.node.background.helper import Helper, HelperDiedError
from trilogue.node.background.helper_process import JobFailedError, read_packet, run_job
from trilogue.node.background.thread_helper import ThreadHelper


def with_helper(scenario, **arguments):
    async def run():
        helper = Helper(**arguments)
        try:
            return await scenario(helper)
        finally:
            await helper.close()

    return asyncio.run(run())


def test_no_process_runs_before_the_first_job():
    async def scenario(helper):
        assert helper.pid is None
        assert await helper.run(operator.add, 2, 3) == 5
        return helper.pid

    assert with_helper(scenario) is not None


def test_jobs_run_outside_this_process_one_after_the_other():
    async def scenario(helper):
        return await asyncio.gather(*(helper.run(os.getpid) for _ in range(5)))

    pids = with_helper(scenario)

    assert len(set(pids)) == 1
    assert os.getpid() not in pids


def test_an_exception_of_a_job_is_raised_here_and_the_helper_lives_on():
    async def scenario(helper):
        with pytest.raises(ZeroDivisionError):
            await helper.run(operator.truediv, 1, 0)
        assert await helper.run(operator.add, 2, 3) == 5
        assert helper.starts == 1

    with_helper(scenario)


def test_a_helper_that_died_in_a_job_is_reported_and_started_again():
    async def scenario(helper):
        with pytest.raises(HelperDiedError, match="7"):
            await helper.run(os._exit, 7)
        assert await helper.run(operator.add, 2, 3) == 5
        assert helper.starts == 2

    with_helper(scenario)


def test_a_helper_that_died_between_jobs_is_started_again():
    async def scenario(helper):
        await helper.run(operator.add, 2, 3)
        process = helper._process
        os.kill(helper.pid, signal.SIGKILL)
        await process.wait()
        assert await helper.run(operator.add, 2, 3) == 5

    with_helper(scenario)


def test_hurry_ends_throttling_of_the_running_job_only(tmp_path):
    """At this pace it would take an hour."""
    files = OsFileSystem()
    segments = [put(files, tmp_path, 1, samples(1, 40, size=100_000))]

    async def scenario(helper):
        helper.hurry()  # no process is running
        slow = replace(job(segments, tmp_path), bytes_per_second=1_000)
        merging = asyncio.ensure_future(helper.run(merge.run, slow))
        made = tmp_path / segment_name(slow.segment_ids[0])
        await wait_on_loop(lambda: made.exists() and made.stat().st_size, "output of the merge")
        await asyncio.sleep(0.1)  # it waits until more is due
        helper.hurry()
        await merging
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await helper.run(merge.run, replace(slow, segment_ids=(200,)))
        return merging.result()

    assert with_helper(scenario).entries == 40


def test_a_cancelled_job_does_not_answer_the_next_one():
    async def scenario(helper):
        await helper.run(operator.add, 1, 1)
        slow = asyncio.ensure_future(helper.run(signal.pause))
        await run_ready_tasks()  # it has begun
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert await helper.run(operator.add, 2, 3) == 5

    with_helper(scenario)


def test_a_helper_that_does_not_start_is_reported(monkeypatch):
    async def scenario(helper):
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        with pytest.raises(HelperDiedError, match="does not start"):
            await helper.run(operator.add, 2, 3)
        monkeypatch.undo()
        assert await helper.run(operator.add, 2, 3) == 5

    with_helper(scenario)


def test_an_idle_helper_is_stopped():
    async def scenario(helper):
        await helper.run(operator.add, 2, 3)
        process = helper._process
        assert await process.wait() == 0
        assert helper.pid is None
        assert await helper.run(operator.add, 2, 3) == 5

    with_helper(scenario, idle_limit_s=0.01)


def test_a_closed_helper_takes_no_job():
    async def scenario():
        helper = Helper()
        await helper.run(operator.add, 2, 3)
        process = helper._process
        await helper.close()
        assert process.returncode == 0
        with pytest.raises(HelperDiedError):
            await helper.run(operator.add, 2, 3)

    asyncio.run(scenario())


def test_group_signals_are_left_to_the_server():
    async def scenario(helper):
        pid = await helper.run(os.getpid)
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
        assert await helper.run(os.getpid) == pid

    with_helper(scenario)


PARENT = """
import asyncio, os
from trilogue.node.background.helper import Helper

JOB = "import pathlib, signal; pathlib.Path({fifo!r}).write_text('begun'); signal.pause()"

async def main():
    helper = Helper()
    print(await helper.run(os.getpid), flush=True)
    await {then}

asyncio.run(main())
"""


@pytest.mark.parametrize("busy", [True, False])
def test_the_helper_dies_with_its_server(tmp_path, busy):
    """Also in the middle of a job, where it does not see that its stdin has ended."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    then = "helper.run(exec, JOB)" if busy else "asyncio.Event().wait()"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(fifo=str(fifo), then=then)], stdout=subprocess.PIPE
    )
    pid = int(parent.stdout.readline())
    handle = os.pidfd_open(pid)
    if busy:
        assert fifo.read_text() == "begun"

    parent.kill()
    parent.wait()
    parent.stdout.close()

    ended, _, _ = select.select([handle], [], [], 10)
    if not ended:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    os.close(handle)
    assert ended


class StubbornError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


def fail_stubbornly():
    raise StubbornError("cannot", "travel")


def test_an_exception_that_cannot_travel_arrives_as_text():
    packet = run_job(pickle.dumps((fail_stubbornly, ())))

    result, error = pickle.loads(packet)
    assert result is None
    assert isinstance(error, JobFailedError)
    assert "StubbornError: cannot travel" in str(error)


def test_half_a_packet_is_the_end():
    assert read_packet(io.BytesIO(b"")) is None
    assert read_packet(io.BytesIO(b"\x00\x00")) is None
    assert read_packet(io.BytesIO(b"\x00\x00\x00\x05abc")) is None
    assert read_packet(io.BytesIO(b"\x00\x00\x00\x03abc")) == b"abc"


def test_a_helper_without_a_process_runs_one_job_at_a_time_in_a_thread_of_this_one():
    async def scenario():
        helper = ThreadHelper()
        pids = await asyncio.gather(*(helper.run(os.getpid) for _ in range(3)))
        with pytest.raises(ZeroDivisionError):
            await helper.run(operator.floordiv, 1, 0)
        await helper.close()
        with pytest.raises(HelperDiedError):
            await helper.run(os.getpid)
        return pids, helper.jobs_done, helper.pid

    assert asyncio.run(scenario()) == ([os.getpid()] * 3, 3, None)
