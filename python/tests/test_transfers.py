"""Files over the loopback interface, by the code of the command."""

import asyncio
import contextlib
import hashlib
import os
import subprocess
import sys
import time
import traceback
import urllib.request
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

import anabranch as ab

SIZE = 3_000_000
#: No wait of a test is longer, in seconds.
BOUND = 60


def run(work):
    """Runs a coroutine, for a bounded time."""
    return asyncio.run(asyncio.wait_for(work, BOUND))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a file, and no tickets of this user's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "big").write_bytes(os.urandom(SIZE))
    return tmp_path


def serving(place, **options):
    return ab.serve(
        place / "files", listen=["127.0.0.1:0"], identity=place / "key", **options
    )


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sockets():
    """How many sockets this process has."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


async def until(what):
    """Waits until something is so."""
    end = time.monotonic() + BOUND
    while not what():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


class Counting(ab.Scheduler):
    asked = 0

    def select(self, view):
        type(self).asked += 1
        return view.send(view.ready[0], "first") if view.ready else view.hold()


class Failing(ab.Scheduler):
    def __init__(self):
        self.left = 20

    def select(self, view):
        self.left -= 1
        if self.left < 0:
            raise ValueError("enough")
        return view.send(view.ready[0], "first") if view.ready else view.hold()


def test_a_file_that_was_put_is_got_back(place):
    async def work():
        async with serving(place, writable=True) as server:
            sent = await ab.put(place / "files" / "big", f"{server.url}/copy")
            back = await ab.get(f"{server.url}/copy", place / "back")
            again = await ab.get(f"{server.url}/copy", place / "back")
            return sent, back, again

    sent, back, again = run(work())
    assert digest(place / "back") == digest(place / "files" / "big") == back.sha256 == sent.sha256
    assert (sent.bytes, back.bytes, back.verified) == (SIZE, SIZE, "whole")
    assert back.file == place / "back" and not back.unchanged and again.unchanged
    assert back.multipath and sum(path["bytes"] for path in back.paths) >= SIZE


def test_a_file_goes_over_the_paths_that_are_named(place):
    async def work():
        async with serving(place) as server:
            paths = ["127.0.0.2", "127.0.0.3,backup"]
            return await ab.get(f"{server.url}/big", paths=paths, scheduler="round-robin")

    done = run(work())
    assert done.file.name == "big" and digest(place / "big") == done.sha256
    assert {path["local"].rsplit(":", 1)[0] for path in done.paths} <= {"127.0.0.2", "127.0.0.3"}


def test_the_command_gets_what_python_serves(place, command):
    async def work():
        async with serving(place) as server:
            words = [command, "get", f"{server.url}/big", "-o", "got"]
            await asyncio.to_thread(subprocess.run, words, check=True, timeout=BOUND)

    run(work())
    assert digest(place / "got") == digest(place / "files" / "big")


@pytest.mark.parametrize("how", ["cancelled", "too late"])
def test_what_is_broken_off_lets_go_of_its_sockets_and_goes_on_later(place, how):
    async def work():
        async with serving(place) as server:
            url, before = f"{server.url}/big", sockets()
            slow = asyncio.ensure_future(ab.get(url, place / "got", limit_rate="300k"))
            part = place / "got.part"
            await until(lambda: part.exists() and part.stat().st_size > 100_000)
            if how == "cancelled":
                slow.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await slow
            else:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(slow, 0.01)
            await until(lambda: sockets() <= before)
            assert part.exists() and not (place / "got").exists()
            return await ab.get(url, place / "got")

    done = run(work())
    assert done.resumed_from > 0 and digest(place / "got") == digest(place / "files" / "big")


def test_a_server_that_does_not_answer_is_an_error_in_time(place):
    with pytest.raises(ab.TransferError, match="cannot connect") as caught:
        run(ab.get(f"anabranch://{'ab' * 32}@127.0.0.1:9/x", connect_timeout=0.2))
    assert isinstance(caught.value, OSError)


def test_a_scheduler_in_python_decides_a_real_transfer(place):
    async def work():
        async with serving(place, writable=True, schedulers=[Counting]) as server:
            url = f"{server.url}/copy"
            Counting.asked = 0
            await ab.put(place / "files" / "big", url, scheduler=Counting)
            put = Counting.asked
            await ab.put(place / "files" / "big", f"{server.url}/other", scheduler=Counting())
            Counting.asked = 0
            done = await ab.get(url, scheduler=Counting)
            return put, Counting.asked, done

    put, got, done = run(work())
    assert put > SIZE / 65_536 and got > SIZE / 65_536
    assert digest(place / "copy") == done.sha256


def test_an_exception_of_a_scheduler_ends_the_transfer_with_its_traceback(place):
    async def work():
        async with serving(place, writable=True) as server:
            with pytest.raises(ab.SchedulerError, match="enough") as caught:
                await ab.put(place / "files" / "big", f"{server.url}/copy", scheduler=Failing)
            return caught.value

    error = run(work())
    assert isinstance(error.__cause__, ValueError)
    assert "in select" in "".join(traceback.format_exception(error.__cause__))


def test_an_exception_of_its_scheduler_ends_a_server(place):
    async def work():
        server = await serving(place, scheduler=Failing)
        with pytest.raises(ab.TransferError):
            await ab.get(f"{server.url}/big", connect_timeout=5)
        with pytest.raises(ab.SchedulerError, match="enough"):
            await server.wait()

    run(work())


class Growing(ab.Controller):
    """Grows, whatever happens."""

    acks = 0

    def on_ack(self, event, members):
        Growing.acks += 1
        self.window += event.bytes

    def on_congestion(self, event, members):
        pass


class Broken(Growing):
    def on_ack(self, event, members):
        raise ValueError("enough")


def test_a_controller_in_python_controls_a_real_transfer(place):
    async def work():
        async with serving(place, writable=True, congestion=Growing) as server:
            url = f"{server.url}/copy"
            Growing.acks = 0
            await ab.put(place / "files" / "big", url, congestion=Growing)
            put, Growing.acks = Growing.acks, 0
            done = await ab.get(url)
            return put, Growing.acks, done

    put, got, done = run(work())
    assert put > 10 and got > 10
    assert digest(place / "copy") == done.sha256


def test_an_exception_of_a_controller_ends_the_transfer_with_its_traceback(place):
    async def work():
        async with serving(place, writable=True) as server:
            with pytest.raises(ab.SchedulerError, match="enough") as caught:
                await ab.put(place / "files" / "big", f"{server.url}/copy", congestion=Broken)
            return caught.value

    error = run(work())
    assert "in on_ack" in "".join(traceback.format_exception(error.__cause__))


def test_a_policy_table_decides_a_real_transfer(place):
    table = ab.PolicyTable(features=[("ready", 0, [0.5])], actions=[1, 0])

    async def work():
        known = {"learnt": table}
        async with serving(place, schedulers=known) as server:
            words = {"paths": ["127.0.0.2", "127.0.0.3"], "schedulers": known}
            return await ab.get(f"{server.url}/big", scheduler="learnt", **words)

    done = run(work())
    assert digest(place / "big") == done.sha256


def test_a_mistake_is_told_in_the_words_of_the_command(place):
    url = "anabranch://127.0.0.1:9/x"
    wrong = [
        ({"paths": ["eht0"]}, ab.UsageError, "no interface `eht0`"),
        ({"paths": ["127.0.0.1,bakcup"]}, ab.UsageError, "bakcup"),
        ({"scheduler": "min-rrt"}, ab.SpecError, "did you mean `min-rtt`"),
        ({"congestion": "cubci"}, ab.SpecError, "did you mean `cubic`"),
        ({"chunk": 1}, ab.UsageError, "out of range"),
        ({"limit_rate": "fast"}, ab.UsageError, "limit_rate"),
        ({"connect_timeout": -1.0}, ab.UsageError, "connect_timeout"),
    ]
    for options, kind, words in wrong:
        with pytest.raises(kind, match=words):
            run(ab.get(url, **options))
        assert issubclass(kind, ValueError)
    with pytest.raises(ab.UsageError, match="no server URL"):
        run(ab.get("http://127.0.0.1/x"))
    with pytest.raises(TypeError, match="expected a list"):
        run(ab.get(url, paths="eth0"))
    with pytest.raises(ab.TransferError, match="no end of a tunnel"):
        ab.tunnel.status()


def test_what_the_server_refuses_is_told(place):
    async def work():
        async with serving(place) as server:
            with pytest.raises(ab.TransferError, match="404"):
                await ab.get(f"{server.url}/none")
            with pytest.raises(ab.TransferError, match="Counting"):
                await ab.get(f"{server.url}/big", scheduler=Counting)
            with pytest.raises(ab.TransferError, match="403|405|uploads"):
                await ab.put(place / "files" / "big", f"{server.url}/copy")

    run(work())


PROGRAM = """
import asyncio, pathlib, sys
import anabranch as ab

class Lowest(ab.Scheduler):
    def select(self, view):
        path = min(view.ready, key=lambda p: p.smoothed_rtt, default=None)
        return view.send(path) if path else view.hold()

async def main(place):
    serving = {"listen": ["127.0.0.1:0"], "identity": place / "key", "schedulers": [Lowest]}
    async with ab.serve(place / "files", **serving) as server:
        await ab.get(f"{server.url}/big", place / sys.argv[2], scheduler=Lowest)

asyncio.run(main(pathlib.Path(sys.argv[1])))
"""


def test_a_program_that_ends_right_after_a_transfer_ends_well(place):
    for name in ("1", "2", "3", "4", "5", "6"):
        words = [sys.executable, "-c", PROGRAM, str(place), name]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=BOUND, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert digest(place / name) == digest(place / "files" / "big")


def once_it_runs(ask):
    """What `ask` returns once there is somebody who answers."""
    until = time.monotonic() + 60
    while True:
        try:
            return ask()
        except ab.TransferError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def test_tunnels_are_asked_what_they_do(place, command, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place / "run"))
    (place / "run").mkdir()
    words = [command, "tunnel", "serve", "--listen", "127.0.0.1:0", "--name", "there"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as far:
        try:
            told = once_it_runs(ab.tunnel.status)
            sockets = list((place / "run" / "anabranch").glob("*.sock"))
            named = ab.tunnel.status(sockets[0])
        finally:
            far.kill()
    assert [one["node"] for one in told] == ["far"]
    assert (named[0]["name"], named[0]["clients"]) == ("there", [])


def test_metrics_of_a_tunnel_are_what_prometheus_reads(place, command, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place / "run"))
    (place / "run").mkdir()
    words = [command, "tunnel", "serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes) as far:
        try:
            said = next(line for line in far.stderr if line.startswith("metrics on "))
            with urllib.request.urlopen(said.split()[2], timeout=BOUND) as page:
                kind, text = page.headers["content-type"], page.read().decode()
            told = ab.tunnel.metrics(urlsplit(said.split()[2]).netloc)
        finally:
            far.kill()
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    healthy = [one for one in told if one.name == "anabranch_healthy"]
    assert healthy == [ab.tunnel.Sample("anabranch_healthy", {}, 1.0)]
    with pytest.raises(ab.TransferError, match="no metrics at http://127.0.0.1:9/metrics"):
        ab.tunnel.metrics("127.0.0.1:9")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["anabranch_healthy"].samples[0].value == 1
    assert families["anabranch_payload_bytes"].type == "counter"
    assert families["anabranch_reorder_wait_seconds"].type == "summary"
    directions = {one.labels["direction"] for one in families["anabranch_payload_bytes"].samples}
    assert directions == {"up", "down"}
    assert all(family.documentation for family in families.values())
