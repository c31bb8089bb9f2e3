"""Hosts behind near ends, by SOCKS5: what becomes of them when the other side breaks the rules."""

import asyncio
import functools
import os
import struct
import time

from answers import ASKED, CAME
from peer import SOON_S, Memory, Wrong, name_of
from wire import ErrorCode, data

E = ErrorCode
# How long a flow waits for its answer, by the near end's own bound, and some.
OPEN_S = 35
# A connection that broke is made again after a pause, which is longer each time.
AGAIN_S = 20
# What the near end asks for (RFC 1928, section 6), when it is refused.
GENERAL, UNREACHABLE = 1, 4


def named(name, port=80):
    name = name.encode()
    return bytes([3, len(name)]) + name + struct.pack(">H", port)


class Near:
    """A near end, and the process that it is."""

    def __init__(self, at, number, port, pid, name):
        self.at, self.number, self.port, self.pid, self.name = at, number, port, pid, name
        self.count = 0

    def own(self, name):
        """The same name, as nobody has asked for it yet."""
        self.count += 1
        return f"{name}.{self.at}-{self.number}-{self.count}.test"

    async def greet(self, command, target, seconds):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"\5\1\0" + bytes([5, command, 0]) + target)
        try:
            reply = await asyncio.wait_for(reader.readexactly(12), seconds)
        except (asyncio.TimeoutError, asyncio.CancelledError):
            writer.close()
            raise
        return reader, writer, reply[3], struct.unpack(">H", reply[10:])[0]

    async def connect(self, name, seconds=SOON_S):
        """A connection, and the code of the answer."""
        try:
            return await self.greet(1, named(name), seconds)
        except asyncio.TimeoutError:
            raise Wrong(f"{name}: no answer within {seconds} s") from None

    async def serves(self, seconds=AGAIN_S):
        """That an ordinary host is served, on this connection or on the next one."""
        reader, writer, code, _ = await self.connect(self.own("echo-tcp"), seconds)
        if code:
            raise Wrong(f"an ordinary host is refused by {code}")
        writer.write(b"is it whole?")
        writer.write_eof()
        content = await asyncio.wait_for(reader.read(100), seconds)
        if content != b"is it whole?":
            raise Wrong(f"an ordinary host got {content}")
        writer.close()

    async def serves_udp(self, association=None):
        own = association or await Association.open(self)
        await own.echo(self.own("echo-udp"))


class Association(asyncio.DatagramProtocol):
    """UDP of a host."""

    @classmethod
    async def open(cls, near):
        # What closes the connection ends the association.
        _, own, code, port = await near.greet(3, b"\1\0\0\0\0\0\0", SOON_S)
        if code:
            raise Wrong(f"no association: {code}")
        loop = asyncio.get_running_loop()
        address = ("127.0.0.1", port)
        _, self = await loop.create_datagram_endpoint(cls, remote_addr=address)
        self.own, self.come = own, 0
        self.last = b""
        return self

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, content, _address):
        self.come += 1
        self.last = content

    def ask(self, name, content=b"who is there?"):
        self.transport.sendto(b"\0\0\0" + named(name, 53) + content)

    async def echo(self, name, seconds=AGAIN_S):
        end = time.monotonic() + seconds
        content = name.encode()
        while not self.last.endswith(content):
            if time.monotonic() > end:
                raise Wrong(f"{name}: no echo")
            self.ask(name, content)
            await asyncio.sleep(0.2)

    def close(self):
        self.own.close()
        self.transport.close()


async def asked(name, seconds=AGAIN_S):
    """The connection and the stream by which the proxy was asked for it."""
    end = time.monotonic() + seconds
    while name not in ASKED:
        if time.monotonic() > end:
            raise Wrong(f"{name}: the proxy was not asked")
        await asyncio.sleep(0.01)
    return ASKED[name]


async def told(name, code, is_of_connection, both=True):
    """What the proxy is told, by which code."""
    server, stream = await asked(name)
    if is_of_connection:
        return await server.closes(code)
    await server.cancels(stream, code, both)


def refused(name, code, wire=None, seconds=SOON_S):
    """A host that is refused by this code of SOCKS, and what the proxy is told."""

    async def case(near):
        own = near.own(name)
        _, writer, answer, _ = await near.connect(own, seconds)
        writer.close()
        if answer != code:
            raise Wrong(f"refused by {answer}, not {code}")
        if wire is not None:
            server, stream = await asked(own)
            is_so = server.streams[stream]
            await server.until("STOP_SENDING", lambda: is_so.stopped is not None)
            if is_so.stopped != wire:
                raise Wrong(f"stopped by {name_of(is_so.stopped)}, not {name_of(wire)}")
        await near.serves()

    return name, case


def retried(name, code):
    """An answer that ends the connection. The same is asked for on the next one, and so on, until
    the host gives up, which it does here at once."""

    async def case(near):
        own = near.own(name)
        begin = len(CAME["Proxy"])
        asking = asyncio.ensure_future(near.connect(own, OPEN_S))
        server, _ = await asked(own)
        await server.closes(code)
        asking.cancel()
        await near.serves()
        if len(CAME["Proxy"]) <= begin:
            raise Wrong("it did not connect again")

    return name, case


async def ends(reader, seconds):
    """How a host's connection ends: with its content, or broken."""
    try:
        return await asyncio.wait_for(reader.read(), seconds)
    except ConnectionError:
        return "reset"
    except asyncio.TimeoutError:
        raise Wrong(f"the host has no end within {seconds} s") from None


def broken(name, code=None, of_connection=False, content="reset", seconds=SOON_S):
    """A host that is connected, says something, and has an end soon."""

    async def case(near):
        own = near.own(name)
        reader, writer, answer, _ = await near.connect(own, AGAIN_S)
        if answer:
            raise Wrong(f"refused by {answer}")
        writer.write(b"hello")
        if code is not None:
            await told(own, code, of_connection)
        end = await ends(reader, seconds)
        writer.close()
        if end != content:
            raise Wrong(f"the host's end is {end}")
        await near.serves()

    return name, case


def of_udp(name, code=None, of_connection=False, both=True):
    """A flow of UDP that comes to nothing: others of the same association go on."""

    async def case(near):
        association = await Association.open(near)
        own = near.own(name)
        association.ask(own)
        if code is not None:
            await told(own, code, of_connection, both)
        else:
            await asked(own)
        await near.serves_udp(association)
        await near.serves()
        association.close()

    return name, case


def bounded(case):
    """The near end's memory stays."""
    title, work = case

    async def measured(near):
        memory = Memory(near.pid)
        await work(near)
        memory.check(f"near end, {title}")

    return title, measured


async def unread(near):
    """A host that reads nothing of what comes."""
    own = near.own("flood-of-bytes")
    _, writer, answer, _ = await near.connect(own)
    server, stream = await asked(own)
    await asyncio.sleep(1.5)
    writer.transport.abort()
    is_so = server.streams[stream]
    await server.until("an end", lambda: is_so.stopped is not None or is_so.is_over())
    await near.serves()
    if answer:
        raise Wrong(f"refused by {answer}")


def flooded(name):
    """A flow of UDP to which far too much comes."""

    async def case(near):
        association = await Association.open(near)
        association.ask(near.own(name))
        for _ in range(3):
            await asyncio.sleep(0.5)
            await near.serves()
        await near.serves_udp()
        association.close()

    return bounded((name, case))


async def goes_away(near):
    """What is open goes on, and what is new goes to the next connection."""
    own = near.own("goes-away")
    reader, writer, _, _ = await near.connect(own, AGAIN_S)
    writer.write(b"hello")
    server, stream = await asked(own)
    end = time.monotonic() + AGAIN_S
    while True:
        other = near.own("echo-tcp")
        _, second, answer, _ = await near.connect(other, AGAIN_S)
        second.close()
        if ASKED[other][0] is not server:
            break
        if time.monotonic() > end:
            raise Wrong("it stays where it was told to go")
        await asyncio.sleep(0.1)
    server.send(stream, data(b"still here"), True)
    content = await ends(reader, SOON_S)
    writer.close()
    if content != b"still here":
        raise Wrong(f"what was open got {content}")


async def early(near):
    """Four connections come to nothing, and the fifth serves."""
    end = time.monotonic() + OPEN_S
    while len(CAME["Early"]) < 5:
        if time.monotonic() > end:
            raise Wrong(f"{len(CAME['Early'])} connections")
        await asyncio.sleep(0.1)
    await CAME["Early"][1].closes(E.H3_SETTINGS_ERROR)
    await near.serves(OPEN_S)


async def ours(near):
    """It is let in after three that did not let it in; the name is not what draws."""
    await near.serves(OPEN_S)
    await near.serves_udp()


async def leaving(near):
    """It serves all the same, does not connect again without a pause, and keeps few connections."""
    before = len(os.listdir(f"/proc/{near.pid}/fd"))
    for _ in range(20):
        await near.serves()
        await asyncio.sleep(0.5)
    after = len(os.listdir(f"/proc/{near.pid}/fd"))
    count, still = len(CAME["Leaving"]), sum(not it.closed for it in CAME["Leaving"])
    print(f"leaving: {count} connections, {still} stand, {before} and {after} files", flush=True)
    if count > 8:
        raise Wrong(f"{count} connections in ten seconds")
    # Three that are leaving, the newest one, and one whose end is on its way.
    if still > 5:
        raise Wrong(f"{still} connections stand")


async def stingy(near):
    """Hosts are not kept waiting for ever, and are gone when they are."""
    given_up = [asyncio.ensure_future(near.connect("given-up.test", OPEN_S)) for _ in range(50)]
    await asyncio.sleep(1)
    for one in given_up:
        one.cancel()
    _, writer, code, _ = await near.connect("stingy.test", OPEN_S)
    writer.close()
    if code != UNREACHABLE:
        raise Wrong(f"refused by {code}, not {UNREACHABLE}")


BAD = E.H3_MESSAGE_ERROR
OF_CONNECTION = functools.partial(broken, of_connection=True)
PROXY = [
    # Streams alone: all of it on one connection.
    [
        refused("wrong-status", GENERAL),
        refused("status-600", GENERAL),
        refused("without-end", UNREACHABLE),
        refused("content", UNREACHABLE),
        refused("status-101", GENERAL, BAD),
        refused("status-abc", GENERAL, BAD),
        refused("no-status", GENERAL, BAD),
        refused("two-statuses", GENERAL, BAD),
        refused("capitals", GENERAL, BAD),
        refused("big-section", GENERAL, E.H3_EXCESSIVE_LOAD),
        refused("end-at-once", GENERAL),
        refused("reset-at-once", GENERAL),
        refused("interim", UNREACHABLE),
        broken("reset"),
        broken("stop"),
        broken("end", content=b"a part"),
        broken("of-a-connect", E.H3_DATAGRAM_ERROR),
        of_udp("udp-status"),
        of_udp("udp-content"),
        of_udp("udp-garbage", BAD),
        of_udp("udp-breaks-off", BAD, both=False),
        of_udp("udp-unagreed"),
        of_udp("udp-too-long", E.H3_EXCESSIVE_LOAD),
        of_udp("udp-reset", E.H3_REQUEST_CANCELLED, both=False),
        bounded(("flood-of-bytes", unread)),
        flooded("flood-of-datagrams"),
        flooded("flood-of-capsules"),
    ],
    # What takes its time.
    [refused("never", UNREACHABLE, seconds=OPEN_S)],
    [refused("interim-forever", UNREACHABLE, seconds=OPEN_S)],
    [broken("vanishes", seconds=25), ("goes-away", goes_away)],
    # Four connections for each, as the pause between two grows.
    [
        OF_CONNECTION("http-2", E.H3_FRAME_UNEXPECTED),
        OF_CONNECTION("headers", E.H3_FRAME_UNEXPECTED),
        OF_CONNECTION("breaks-off", E.H3_FRAME_ERROR),
        broken("closes"),
    ],
    [
        retried("data-first", E.H3_FRAME_UNEXPECTED),
        retried("push-promise", E.H3_ID_ERROR),
        retried("dynamic", E.QPACK_DECOMPRESSION_FAILED),
    ],
    [
        OF_CONNECTION("opens-requests", E.H3_STREAM_CREATION_ERROR),
        OF_CONNECTION("push-stream", E.H3_ID_ERROR),
        OF_CONNECTION("second-control", E.H3_STREAM_CREATION_ERROR),
        OF_CONNECTION("settings-twice", E.H3_FRAME_UNEXPECTED),
    ],
    [
        OF_CONNECTION("max-push-id", E.H3_FRAME_UNEXPECTED),
        OF_CONNECTION("cancel-push", E.H3_ID_ERROR),
        OF_CONNECTION("control-ends", E.H3_CLOSED_CRITICAL_STREAM),
        OF_CONNECTION("stops-control", E.H3_CLOSED_CRITICAL_STREAM),
    ],
    [
        OF_CONNECTION("goaway-grows", E.H3_ID_ERROR),
        OF_CONNECTION("goaway-odd", E.H3_ID_ERROR),
        OF_CONNECTION("bad-datagram", E.H3_DATAGRAM_ERROR),
        of_udp("udp-frame", E.H3_FRAME_UNEXPECTED, of_connection=True),
    ],
]
LANES = {
    "proxy": PROXY,
    "ours": [[("not let in at first", ours), flooded("flood-of-contexts"), flooded("far-numbers")]],
    "leaving": [[("GOAWAY on every connection", leaving)]],
    "stingy": [[bounded(("no request is allowed", stingy))]],
    "early": [[("nothing at first", early)]],
}
