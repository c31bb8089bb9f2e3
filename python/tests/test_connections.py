"""Streams, datagrams and paths of connections over the loopback interface."""

import asyncio
import os
import subprocess
import sys
import traceback

import pytest
from test_transfers import BOUND, Failing, run

import anabranch as ab


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Opens a listener, and calls something with both ends of a connection to it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def open_and(work, **options):
        async def all_of_it():
            async with ab.listen(protocol="test") as listener:
                accepting = asyncio.ensure_future(listener.accept())
                async with ab.connect(listener.url, protocol="test", **options) as near:
                    far = await accepting
                    try:
                        return await work(near, far)
                    finally:
                        await far.close()

        return run(all_of_it())

    return open_and


def test_streams_carry_bytes_both_ways(opened):
    async def work(near, far):
        stream = await near.open_stream()
        await stream.write(b"a" * 300_000)
        await stream.finish()
        there = await far.accept_stream()
        chunks = [chunk async for chunk in there]
        assert b"".join(chunks) == b"a" * 300_000
        await there.write(b"answer")
        await there.finish()
        assert (there.id, there.readable, there.writable) == (stream.id, True, True)
        return await stream.read_all()

    assert opened(work) == b"answer"


def test_a_stream_of_one_way_is_read_at_the_other_end(opened):
    async def work(near, far):
        stream = await near.open_stream(one_way=True)
        await stream.write(b"hello")
        await stream.finish()
        there = await far.accept_stream(one_way=True)
        assert await there.read_all() == b"hello"
        with pytest.raises(ab.UsageError, match="peer writes"):
            await there.write(b"x")
        with pytest.raises(ab.UsageError, match="peer reads"):
            await stream.read()

    opened(work)


def test_a_reset_and_a_stop_reach_the_other_end(opened):
    async def work(near, far):
        stream = await near.open_stream()
        await stream.write(b"x")
        there = await far.accept_stream()
        await stream.reset(7)
        with pytest.raises(ab.TransferError, match="0x7"):
            await there.read_all()
        await stream.stop(9)
        with pytest.raises(ab.TransferError, match="0x9"):
            while True:
                await there.write(b"y" * 10_000)

    opened(work)


def test_datagrams_arrive_whole(opened):
    async def work(near, far):
        assert near.max_datagram > 1000
        await near.send_datagram(b"tick")
        assert await far.receive_datagram() == b"tick"
        with pytest.raises(ab.TransferError):
            await near.send_datagram(b"x" * 100_000)

    opened(work)


def test_a_read_that_is_cancelled_loses_nothing(opened):
    async def work(near, far):
        stream = await near.open_stream()
        await stream.write(b"first")
        there = await far.accept_stream()
        assert await there.read() == b"first"
        # What arrives at the very moment of the cancellation is not lost either.
        for text in [b"%d" % number for number in range(40)]:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(there.read(), 0.005)
            await stream.write(text)
            assert await asyncio.wait_for(there.read(), BOUND) == text

    opened(work)


def test_paths_are_told_as_they_open(opened):
    async def work(near, far):
        changes = far.path_changes()
        while len([path for path in near.paths() if path["state"] == "active"]) < 2:
            change = await asyncio.wait_for(anext(changes), BOUND)
            if change.kind == "opened":
                assert change.path > 0 and change.remote.startswith("127.0.0.")
                break
        assert near.multipath and near.remote.startswith("127.0.0.1:")

    opened(work, paths=["127.0.0.2", "127.0.0.3"])


def test_events_end_with_the_connection(opened):
    async def work(near, far):
        changes = near.path_changes()
        await far.close(3, "done")
        assert "0x3" in await near.closed()
        async for _ in changes:
            pass
        with pytest.raises(ab.TransferError, match="done"):
            await near.open_stream()

    opened(work)


def test_an_exception_of_a_scheduler_ends_the_connection_with_its_traceback(opened):
    async def work(near, far):
        stream = await near.open_stream()
        with pytest.raises(ab.SchedulerError) as caught:
            while True:
                await stream.write(b"x" * 100_000)
        assert "in select" in "".join(traceback.format_exception(caught.value.__cause__))
        with pytest.raises(ab.SchedulerError):
            await near.closed()

    async def reading(near, far):
        async def drain():
            there = await far.accept_stream()
            async for _ in there:
                pass

        draining = asyncio.ensure_future(drain())
        await work(near, far)
        with pytest.raises(ab.TransferError):
            await draining

    opened(reading, scheduler=Failing)


def test_a_listener_that_is_closed_tells_whoever_waits_and_frees_its_port(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def all_of_it():
        listener = await ab.listen(protocol="test")
        address = listener.url.rsplit("@", 1)[1]
        waiting = asyncio.ensure_future(listener.accept())

        async def each():
            return [connection async for connection in listener]

        looping = asyncio.ensure_future(each())
        near = await ab.connect(listener.url, protocol="test")
        done, _ = await asyncio.wait([waiting, looping], timeout=1)
        assert len(done) <= 1
        await asyncio.wait_for(listener.close(), BOUND)
        if waiting not in done:
            with pytest.raises(ab.TransferError, match="closed"):
                await asyncio.wait_for(waiting, BOUND)
        assert len(await asyncio.wait_for(looping, BOUND)) <= 1
        with pytest.raises(ab.TransferError, match="closed"):
            await listener.accept()
        await asyncio.wait_for(near.closed(), BOUND)
        await listener.close()
        # Its connections are still there as objects, the port is free all the same.
        again = await ab.listen([address], protocol="test")
        assert again.url.endswith(address)
        await again.close()

    run(all_of_it())


class Asking(ab.Scheduler):
    """Asks the connection for which it decides, as if the engine had the answer at hand."""

    #: The connection, once it stands.
    connection = None

    def select(self, view):
        if Asking.connection is not None:
            Asking.connection.paths()
        return view.send(view.ready[0]) if view.ready else view.hold()


class Endless(ab.Scheduler):
    """Does not come to a decision once it is told to."""

    begins = False

    def select(self, view):
        while Endless.begins:
            pass
        return view.send(view.ready[0]) if view.ready else view.hold()


async def written(near):
    """Writes until the connection has ended."""
    stream = await near.open_stream()
    while True:
        await stream.write(b"x" * 10_000)


def test_a_scheduler_that_asks_its_own_connection_is_told_so(opened):
    async def work(near, far):
        Asking.connection = near
        try:
            with pytest.raises(ab.SchedulerError, match="cannot ask a connection") as caught:
                await asyncio.wait_for(written(near), BOUND)
        finally:
            Asking.connection = None
        assert isinstance(caught.value.__cause__, ab.UsageError)

    opened(work, scheduler=Asking)


def test_a_decision_without_end_ends_its_connection_and_nothing_else(opened):
    async def work(near, far):
        Endless.begins = True
        try:
            with pytest.raises(ab.SchedulerError, match="longer than 2 s") as caught:
                await asyncio.wait_for(written(near), BOUND)
        finally:
            Endless.begins = False
        assert isinstance(caught.value.__cause__, ab.SlowDecision)
        assert "in select" in "".join(traceback.format_exception(caught.value.__cause__))

    opened(work, scheduler=Endless)


#: A program that forks after it has used the runtime, and asks for a connection in the child.
FORKING = """
import asyncio, os, sys
import anabranch as ab

async def listens():
    async with ab.listen(protocol="test"):
        pass

asyncio.run(listens())
child = os.fork()
if child == 0:
    try:
        asyncio.run(listens())
    except ab.UsageError as error:
        os._exit(0 if "fork" in str(error) and "spawn" in error.hint else 3)
    except BaseException:
        os._exit(4)
    os._exit(5)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_process_made_by_fork_is_told_that_connections_do_not_work_there(tmp_path):
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", FORKING], env=environment, timeout=BOUND)
    assert done.returncode == 0
