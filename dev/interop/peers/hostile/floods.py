"""Much of everything: the far end goes on, and its memory stays."""

import asyncio

from peer import Memory, Wrong
from wire import (
    COMPRESSION_ASSIGN,
    UNKNOWN,
    ErrorCode,
    FrameType,
    capsule,
    carried,
    data,
    frame,
    head,
    literal,
    longest,
    quarter,
    udp,
    varint,
)

E = ErrorCode
BATCH = 200


def bounded(title, attack, goes_on=True):
    """The connection and the flow beside it go on, and what the far end has resident is bounded."""

    async def case(world):
        memory = Memory(world.pid)
        if goes_on:
            await world.goes_on(attack)
        else:
            client = await world.open()
            await attack(client)
            client.leave()
        memory.check(title)
        client = await world.open()
        await client.serves()
        client.leave()

    return title, case


async def pour(client, contents):
    """Sends datagrams as fast as the path takes them."""
    for number, content in enumerate(contents):
        client.datagram(content, now=False)
        if number % BATCH == BATCH - 1:
            client.transmit()
            await client.sent()
    client.transmit()
    await client.sent()


async def unknown_contexts(client):
    stream = await client.udp()
    await pour(client, (quarter(stream) + udp(bytes(1000), 2 * n + 2) for n in range(5_000)))
    await client.echo_udp(stream)


async def unknown_streams(client):
    await pour(client, (varint(n * 7 + 100) + udp(bytes(1000)) for n in range(5_000)))


async def unasked(client):
    """Datagrams for a request of which half a header section has come, so that none is read."""
    content = head(client.udp_fields("127.0.0.1", client.udp_port))
    stream = client.request(content[:-5])
    await pour(client, (quarter(stream) + udp(bytes(1000)) for _ in range(5_000)))
    client.send(stream, content[-5:])
    await client.granted(stream)
    await client.echo_udp(stream)


async def unread_datagrams(world):
    """A request waits for the SETTINGS of its client, and meanwhile nobody reads its datagrams."""
    memory = Memory(world.pid)
    client = await world.open(settings=False)
    stream = client.request(head(client.udp_fields("127.0.0.1", client.udp_port)))
    await pour(client, (quarter(stream) + udp(b"%d" % n + bytes(1000)) for n in range(8_000)))
    memory.check("8,000 datagrams that wait")
    client.say_settings()
    await client.granted(stream)
    await client.echo_udp(stream)
    await client.serves()
    client.leave()


async def much(client):
    """More datagrams for a target than it takes."""
    stream = await client.udp()
    await pour(client, (quarter(stream) + udp(b"%d" % n + bytes(1000)) for n in range(8_000)))
    client.datagrams.clear()
    await client.echo_udp(stream)


async def deaf(client):
    """Targets send without end, and the client acknowledges nothing for a while."""
    streams = [await client.tcp() for _ in range(40)]
    stream = await client.udp()
    for one in streams:
        client.send(one, data(b"flood"))
    client.datagram(quarter(stream) + udp(b"flood 20000"))
    client.is_deaf = True
    await asyncio.sleep(2)
    client.is_deaf = False
    for one in streams:
        client.reset(one)
        client.stop(one)
    await client.echo_udp(stream, seconds=20)


async def unread(client):
    """Bytes for hosts that read none of them: the far end takes what its windows hold."""
    sink = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0, limit=1)
    port = sink.sockets[0].getsockname()[1]
    streams = []
    for _ in range(30):
        content = head(client.connect_fields(f"127.0.0.1:{port}"))
        streams.append(await client.granted(client.request(content)))
    for one in streams:
        client.send(one, data(bytes(1_000_000)))
    await asyncio.sleep(2)
    for one in streams:
        client.reset(one)
    sink.close()


async def reset_at_once(client):
    """Ten thousand requests that are taken back as soon as they are made."""
    content = head(client.connect_fields(f"127.0.0.1:{client.tcp_port}"))
    for _ in range(10_000 // BATCH):
        opened = [client.request(content, now=False) for _ in range(BATCH)]
        client.transmit()
        for stream in opened:
            client.reset(stream, now=False)
            client.stop(stream, now=False)
        client.transmit()
        last = client.streams[opened[-1]]
        await client.until("resets", last.is_over, 20)
        for stream in opened:
            client.streams.pop(stream, None)


async def half_asked(client):
    """Requests that announce as much as they may, of which one byte comes."""
    content = varint(FrameType.HEADERS) + varint(16_000) + b"\0"
    streams = [client.request(content, now=False) for _ in range(2_000)]
    client.transmit()
    await client.taken(streams[-1])
    for stream in streams:
        client.reset(stream, now=False)
    client.transmit()


async def byte_by_byte(client):
    """A slow client."""
    content = head(client.connect_fields(f"127.0.0.1:{client.tcp_port}"))
    stream = client.request(content[:1])
    for byte in content[1:]:
        client.send(stream, bytes([byte]))
        await asyncio.sleep(0.002)
    await client.granted(stream)
    for byte in data(b"slow"):
        client.send(stream, bytes([byte]))
        await asyncio.sleep(0.002)
    is_so = client.streams[stream]
    await client.until("an echo", lambda: carried(is_so.content) == b"slow")


async def many_capsules(client):
    stream = await client.udp()
    some = b"".join(capsule(UNKNOWN + n, bytes(n % 50)) for n in range(5_000))
    for _ in range(4):
        client.send(stream, data(some))
        await client.taken(stream)
        await client.echo_udp(stream)


async def endless_capsule(client):
    """An unknown capsule of the largest size that there is, and the beginning of it."""
    stream = await client.udp()
    client.send(stream, data(longest(UNKNOWN) + longest((1 << 62) - 1)))
    for _ in range(8):
        client.send(stream, data(bytes(1_000_000)))
        await client.taken(stream)
        await client.echo_udp(stream)


async def endless_frame(client):
    stream = client.request(longest(0x21) + longest((1 << 62) - 1))
    client.send(stream, bytes(4_000_000))
    control = varint(0x21) + longest((1 << 62) - 1) + bytes(4_000_000)
    client.send(client.control, control)
    await client.taken(stream)
    await client.taken(client.control)
    await client.echo_udp(await client.udp())


async def empty_frames(client):
    """Frames with nothing in them: of DATA, and unknown ones before a request and in a tunnel."""
    content = head(client.connect_fields(f"127.0.0.1:{client.tcp_port}"))
    stream = client.request(frame(0x21) * 50_000 + content)
    await client.granted(stream)
    client.send(stream, (data(b"") + frame(0x21)) * 50_000)
    await client.taken(stream)
    await client.echo(stream)


async def connections(world):
    """One client may have 16: with one more it loses its oldest."""
    memory = Memory(world.pid)
    clients = []
    for _ in range(40):
        clients.append(await world.open())
        await clients[-1].tcp()
    for client in clients[:-16]:
        await client.closes(E.H3_EXCESSIVE_LOAD)
    for client in clients[-16:]:
        await client.serves()
    for client in clients:
        client.leave()
    memory.check("40 connections of a client")


async def frames_of_control(client):
    """PRIORITY_UPDATE, and what a client may repeat as often as it likes."""
    for number in range(50):
        some = [frame(0xF0700, varint(4 * n) + b"u=1") for n in range(100)]
        some += [frame(FrameType.GOAWAY, b"\x07"), frame(FrameType.MAX_PUSH_ID, varint(number))]
        some += [frame(0x21), frame(0x40, bytes(200))]
        client.send(client.control, b"".join(some))
    client.send(client.encoder, b"\x20" * 5_000)
    client.send(client.decoder, b"\x44" * 5_000)
    for stream in (client.control, client.encoder, client.decoder):
        await client.taken(stream)


async def strange_streams(client):
    """Streams of one direction that mean nothing; they are stopped, and there may be more."""
    for number in range(2_000):
        stream = client.uni(0x1F * number + 0x21, b"x", number % 2 == 0)
        if number % 50 == 49:
            is_so = client.streams[stream]
            await client.until("STOP_SENDING", lambda: is_so.stopped is not None or number % 2 == 0)
            await asyncio.sleep(0.01)


async def big_sections(client):
    for _ in range(10):
        stream = client.request(frame(FrameType.HEADERS, b"\0\0" + literal(b"x", bytes(1_000_000))))
        await client.cancels(stream, E.H3_EXCESSIVE_LOAD)


def of_address(number):
    remote = b"\x04\x7f\0\0\x01" + (1024 + number).to_bytes(2, "big")
    return capsule(COMPRESSION_ASSIGN, varint(2 * number + 2) + remote)


async def contexts(client):
    """More contexts than there may be: those beyond are refused, and all others go on."""
    stream = await client.udp([("connect-udp-bind", "?1")])
    client.send(stream, data(capsule(COMPRESSION_ASSIGN, b"\x02\0")))
    for begin in range(1, 3_000, 100):
        some = b"".join(of_address(n) for n in range(begin, begin + 100))
        client.send(stream, data(some))
        await client.taken(stream)
        await client.echo_udp(stream)


async def contexts_unheard(client):
    """The same, by a client that does not hear the answers: the request ends, or they wait."""
    stream = await client.udp([("connect-udp-bind", "?1")])
    client.send(stream, data(capsule(COMPRESSION_ASSIGN, b"\x02\0")))
    client.is_deaf = True
    for begin in range(1, 9_000, 100):
        some = b"".join(of_address(n) for n in range(begin, begin + 100))
        client.send(stream, data(some))
        await asyncio.sleep(0)
    await asyncio.sleep(1)
    client.is_deaf = False
    client.reset(stream)


async def many_strangers(client):
    """Requests that nobody is let in for: after five the connection ends."""
    fields = [(":method", "CONNECT"), (":authority", "127.0.0.1:9")]
    for _ in range(3):
        if await client.answer(client.request(head(fields))) != 401:
            raise Wrong("not answered by 401")
    for _ in range(1_000):
        client.request(head(fields))
    await client.closes(E.H3_EXCESSIVE_LOAD)


async def sections_for_a_table(client):
    """Nothing but an encoder stream of instructions that need a table: one is enough."""
    client.send(client.encoder, b"\x41a\x01b" * 10_000)
    await client.closes(E.QPACK_ENCODER_STREAM_ERROR)


async def stops_in_the_middle(world):
    """A request of which the rest never comes: the others of its connection go on meanwhile."""
    client = await world.open()
    stream = await client.tcp()
    half = client.request(head(client.connect_fields("127.0.0.1:9"))[:-5])
    is_so = client.streams[half]
    await client.until("an end", lambda: is_so.reset is not None, 25)
    await client.cancels(half, E.H3_REQUEST_REJECTED)
    await client.echo(stream)
    client.leave()


async def says_nothing(world):
    client = await world.open()
    await client.closes(E.H3_EXCESSIVE_LOAD, 25)
    client.leave()


async def allows_nothing(world):
    """No streams for SETTINGS and answers of the far end, or no bytes in them."""
    strange = []
    for what in ("_local_max_streams_uni", "_local_max_stream_data_uni", "_local_max_data"):
        strange.append(await world.open(settings=False, nothing=what))
    for client in strange:
        await client.closes(E.H3_EXCESSIVE_LOAD, 25)
        client.leave()


# Beside a group, from its beginning on: they take fifteen seconds each.
SLOW = {
    "floods of streams": [
        ("a request that stops in the middle", stops_in_the_middle),
        ("a client that asks for nothing", says_nothing),
        ("a client that allows nothing", allows_nothing),
    ]
}
GROUPS = {
    "floods of datagrams": [
        bounded("5,000 datagrams of unknown contexts", unknown_contexts),
        bounded("5,000 datagrams of streams that never were", unknown_streams),
        bounded("5,000 datagrams before their request", unasked),
        ("8,000 datagrams that wait", unread_datagrams),
        bounded("8,000 datagrams for a target", much),
        bounded("40 floods to a client that is deaf", deaf),
        ("40 connections of a client", connections),
    ],
    "floods of streams": [
        bounded("30 MB for hosts that read nothing", unread),
        bounded("10,000 requests that are reset at once", reset_at_once),
        bounded("2,000 requests of which one byte comes", half_asked),
        bounded("a request byte by byte", byte_by_byte),
        bounded("20,000 unknown capsules", many_capsules),
        bounded("8 MB of a capsule of 2^62 - 1", endless_capsule),
        bounded("8 MB of frames of 2^62 - 1", endless_frame),
        bounded("150,000 empty frames", empty_frames),
        bounded("5,000 PRIORITY_UPDATE and others", frames_of_control),
        bounded("2,000 unknown streams", strange_streams),
        bounded("10 MB of header fields", big_sections),
        bounded("3,000 contexts", contexts),
        bounded("9,000 contexts, answers unheard", contexts_unheard),
        bounded("1,000 requests of a stranger", many_strangers, goes_on=False),
        bounded("50 kB for a dynamic table", sections_for_a_table, goes_on=False),
    ],
}
