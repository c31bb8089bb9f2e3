"""What ends the whole connection, and the code of RFC 9114, RFC 9204 or RFC 9297 for it."""

import asyncio
import functools

from wire import (
    CONTROL,
    DECODER,
    ENCODER,
    OURS,
    PUSH,
    ErrorCode,
    FrameType,
    data,
    encode_settings,
    frame,
    head,
    section,
    varint,
)

E, F = ErrorCode, FrameType
OF_HTTP_2 = (0x02, 0x06, 0x08, 0x09)
# A stream that no request has: 1 is a server's.
SECTION_OF = {
    "a Required Insert Count that is not 0": b"\x02\0" + section([(":method", "GET")])[2:],
    "a negative Base": b"\0\x80" + section([(":method", "GET")])[2:],
    "an entry of the dynamic table": b"\0\0\x80",
    "an entry behind the Base": b"\0\0\x10",
    "a name of the dynamic table": b"\0\0\x40\x01a",
    "a name behind the Base": b"\0\0\x00\x01a",
    "entry 99 of the static table": b"\0\0\xff\x24",
    "a string that goes on behind it": b"\0\0\x27\x7f" + b"a" * 20,
    "an integer without end": b"\0\0\xff" + b"\xff" * 12,
    "a Huffman code of 31 ones": b"\0\0\x2c\xff\xff\xff\xff\x01a",
    "nothing at all": b"",
}


def on_control(*parts):
    async def attack(client):
        for part in parts:
            client.send(client.control, part)

    return attack


def on_request(content, end=False):
    async def attack(client):
        client.request(content, end)

    return attack


def in_tunnel(content, end=False):
    async def attack(client):
        stream = await client.tcp()
        client.send(stream, data(b"some") + content, end)

    return attack


def uni(kind, content=b"", end=False):
    async def attack(client):
        client.uni(kind, content, end)

    return attack


def on(which, content=b"", end=False):
    async def attack(client):
        client.send(getattr(client, which), content, end)

    return attack


async def resets_control(client):
    client.reset(client.control)


async def stops_ours(client):
    """Asks for the end of the far end's control stream, its first of one direction."""
    client.stop(3)


def broken(rows):
    return [
        (title, functools.partial(lambda world, code, it: world.breaks(code, it), code=code, it=it))
        for title, code, it in rows
    ]


def first(content):
    """A control stream that begins with this, on a connection of its own."""

    async def case(world, code):
        client = await world.open(settings=False)
        client.uni(CONTROL, content)
        await client.closes(code)
        client.leave()
        client = await world.open()
        await client.serves()
        client.leave()

    return case


def settings(pairs):
    return frame(F.SETTINGS, b"".join(varint(a) + varint(b) for a, b in pairs))


def begins():
    rows = [
        ("GOAWAY before SETTINGS", E.H3_MISSING_SETTINGS, frame(F.GOAWAY, b"\0")),
        ("an unknown frame before SETTINGS", E.H3_MISSING_SETTINGS, frame(0x21, b"x")),
        ("SETTINGS with H3_DATAGRAM of 2", E.H3_SETTINGS_ERROR, settings([(0x33, 2)])),
        ("SETTINGS with extended CONNECT of 2", E.H3_SETTINGS_ERROR, settings([(8, 2)])),
        ("a setting twice", E.H3_SETTINGS_ERROR, settings([(0x33, 1), (6, 9), (0x33, 1)])),
        ("an unknown setting twice", E.H3_SETTINGS_ERROR, settings([(0x21, 1), (0x21, 1)])),
        ("SETTINGS that end within one", E.H3_FRAME_ERROR, frame(F.SETTINGS, b"\x33")),
        ("SETTINGS of 5,000 bytes", E.H3_EXCESSIVE_LOAD, frame(F.SETTINGS, bytes(5000))),
    ]
    for identifier in (0x00, 0x02, 0x03, 0x04, 0x05):
        content = settings([(0x33, 1), (identifier, 1)])
        rows.append((f"setting {identifier} of HTTP/2", E.H3_SETTINGS_ERROR, content))
    return [
        (title, functools.partial(first(content), code=code)) for title, code, content in rows
    ]


CONTROL_STREAM = [
    ("a second control stream", E.H3_STREAM_CREATION_ERROR, uni(CONTROL, frame(4, OURS))),
    ("a second encoder stream", E.H3_STREAM_CREATION_ERROR, uni(ENCODER)),
    ("a second decoder stream", E.H3_STREAM_CREATION_ERROR, uni(DECODER)),
    ("a push stream", E.H3_STREAM_CREATION_ERROR, uni(PUSH, b"\0")),
    ("SETTINGS twice", E.H3_FRAME_UNEXPECTED, on_control(frame(F.SETTINGS, OURS))),
    ("DATA on the control stream", E.H3_FRAME_UNEXPECTED, on_control(data(b"x"))),
    ("HEADERS on it", E.H3_FRAME_UNEXPECTED, on_control(head([(":method", "GET")]))),
    ("PUSH_PROMISE on it", E.H3_FRAME_UNEXPECTED, on_control(frame(F.PUSH_PROMISE, b"\0"))),
    ("its end", E.H3_CLOSED_CRITICAL_STREAM, on("control", end=True)),
    ("its end within a frame", E.H3_CLOSED_CRITICAL_STREAM, on("control", b"\x07\x05", end=True)),
    ("its reset", E.H3_CLOSED_CRITICAL_STREAM, resets_control),
    ("STOP_SENDING of the far end's", E.H3_CLOSED_CRITICAL_STREAM, stops_ours),
    ("the end of the encoder stream", E.H3_CLOSED_CRITICAL_STREAM, on("encoder", end=True)),
    ("the end of the decoder stream", E.H3_CLOSED_CRITICAL_STREAM, on("decoder", end=True)),
    (
        "GOAWAY with a growing ID",
        E.H3_ID_ERROR,
        on_control(frame(F.GOAWAY, b"\x04"), frame(F.GOAWAY, b"\x03"), frame(F.GOAWAY, b"\x05")),
    ),
    ("GOAWAY of two integers", E.H3_FRAME_ERROR, on_control(frame(F.GOAWAY, b"\x04\x04"))),
    ("GOAWAY of a hundred bytes", E.H3_FRAME_ERROR, on_control(frame(F.GOAWAY, bytes(100)))),
    ("an empty GOAWAY", E.H3_FRAME_ERROR, on_control(frame(F.GOAWAY))),
    (
        "MAX_PUSH_ID that goes back",
        E.H3_ID_ERROR,
        on_control(frame(F.MAX_PUSH_ID, b"\x09"), frame(F.MAX_PUSH_ID, b"\x08")),
    ),
    ("CANCEL_PUSH without a promise", E.H3_ID_ERROR, on_control(frame(F.CANCEL_PUSH, b"\0"))),
]
CONTROL_STREAM += [
    (f"frame {kind} of HTTP/2 on it", E.H3_FRAME_UNEXPECTED, on_control(frame(kind, b"x")))
    for kind in OF_HTTP_2
]

QPACK = [
    (f"a field section with {what}", E.QPACK_DECOMPRESSION_FAILED, on_request(frame(F.HEADERS, it)))
    for what, it in SECTION_OF.items()
] + [
    ("room for a dynamic table", E.QPACK_ENCODER_STREAM_ERROR, on("encoder", b"\x3f\x45")),
    ("an entry for a dynamic table", E.QPACK_ENCODER_STREAM_ERROR, on("encoder", b"\x41a\x01b")),
    ("a duplicate of none", E.QPACK_ENCODER_STREAM_ERROR, on("encoder", b"\x00")),
    ("acknowledgement of a section", E.QPACK_DECODER_STREAM_ERROR, on("decoder", b"\x80")),
    ("an Insert Count Increment", E.QPACK_DECODER_STREAM_ERROR, on("decoder", b"\x01")),
    ("an Insert Count Increment of 0", E.QPACK_DECODER_STREAM_ERROR, on("decoder", b"\x00")),
    (
        "cancellation of a stream beyond 2^62",
        E.QPACK_DECODER_STREAM_ERROR,
        on("decoder", b"\x7f" + b"\xff" * 12),
    ),
]

REQUESTS = [
    ("DATA before HEADERS", E.H3_FRAME_UNEXPECTED, on_request(data(b"x"))),
    ("HEADERS in a CONNECT after data", E.H3_FRAME_UNEXPECTED, in_tunnel(head([("a", "b")]))),
    ("a frame that breaks off, HEADERS", E.H3_FRAME_ERROR, on_request(b"\x01\x05\0\0", True)),
    ("a frame that breaks off, its type", E.H3_FRAME_ERROR, on_request(b"\x40", True)),
    ("a frame that breaks off, DATA", E.H3_FRAME_ERROR, in_tunnel(b"\0\x05ab", True)),
    ("an unknown frame that breaks off", E.H3_FRAME_ERROR, on_request(b"\x21\x05ab", True)),
]
REQUESTS += [
    (f"frame {kind} of HTTP/2 in {where}", E.H3_FRAME_UNEXPECTED, how(frame(kind, b"x")))
    for kind in OF_HTTP_2
    for where, how in (("a request", on_request), ("a tunnel", in_tunnel))
]
REQUESTS += [
    (f"{kind.name} in {where}", E.H3_FRAME_UNEXPECTED, how(frame(kind, b"\0")))
    for kind in (F.CANCEL_PUSH, F.SETTINGS, F.PUSH_PROMISE, F.GOAWAY, F.MAX_PUSH_ID)
    for where, how in (("a request", on_request), ("a tunnel", in_tunnel))
]


def datagram(content):
    async def attack(client):
        client.datagram(content)

    return attack


DATAGRAMS = [
    ("an empty QUIC datagram", E.H3_DATAGRAM_ERROR, datagram(b"")),
    ("half a quarter of a stream's number", E.H3_DATAGRAM_ERROR, datagram(b"\x40")),
    ("a stream beyond 2^60", E.H3_DATAGRAM_ERROR, datagram(varint(1 << 60) + b"\0x")),
    ("a stream of 2^64", E.H3_DATAGRAM_ERROR, datagram(b"\xff" * 9)),
]


async def harmless(world):
    """Strange, but allowed: the connection and all flows go on."""

    async def attack(client):
        client.send(client.control, frame(F.GOAWAY, b"\x09") + frame(F.GOAWAY, b"\x09"))
        client.send(client.control, frame(F.GOAWAY, b"\x08"))
        client.send(client.control, frame(F.MAX_PUSH_ID, b"\x08") + frame(F.MAX_PUSH_ID, b"\x09"))
        # PRIORITY_UPDATE (RFC 9218), of which the far end knows nothing: of a stream that is open,
        # of one that never was, and with what is none.
        for stream in (b"\0", varint(1 << 40), varint(3)):
            client.send(client.control, frame(0xF0700, stream + b"u=9, i, x=("))
        client.send(client.control, frame(0xF0701, b"\x05u=0"))
        for n in range(20):
            client.send(client.control, frame(0x1F * n + 0x21, bytes(n)))
        client.send(client.encoder, b"\x20\x20")
        client.send(client.decoder, b"\x44\x7f\xff\x03")
        strange = client.uni(0x1F * 7 + 0x21, b"what nobody reads")
        stopped = client.streams[strange]
        await client.until("STOP_SENDING", lambda: stopped.stopped is not None)
        if stopped.stopped != E.H3_STREAM_CREATION_ERROR:
            raise ValueError(f"an unknown stream is stopped by {stopped.stopped:#x}")
        client.uni(0x21, b"", True)

    await world.goes_on(attack)


async def settings_byte_by_byte(world):
    client = await world.open(settings=False)
    content = bytes([CONTROL]) + frame(F.SETTINGS, encode_settings({0x33: 1, 0x4242: 1 << 40}))
    stream = client._quic.get_next_available_stream_id(is_unidirectional=True)
    for byte in content:
        client.send(stream, bytes([byte]))
        await asyncio.sleep(0.002)
    await client.echo_udp(await client.udp())
    client.leave()


GROUPS = {
    "control": begins()
    + broken(CONTROL_STREAM)
    + [("what is strange, and allowed", harmless), ("SETTINGS in bytes", settings_byte_by_byte)],
    "qpack": broken(QPACK),
    "frames": broken(REQUESTS + DATAGRAMS),
}
