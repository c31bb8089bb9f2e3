"""HTTP/3 frames, SETTINGS, datagrams and capsules as bytes, so that each can be wrong.

Integers, frames and error codes are aioquic's; field sections are those of its QPACK library.
"""

import struct

import pylsqpack
from aioquic.buffer import Buffer, BufferReadError, encode_uint_var
from aioquic.h3.connection import ErrorCode, FrameType, encode_frame, encode_settings

CONTROL, PUSH, ENCODER, DECODER = range(4)
OURS = encode_settings({0x08: 1, 0x33: 1})
PATH = "/.well-known/masque/udp/{}/{}/"

COMPRESSION_ASSIGN, COMPRESSION_ACK, COMPRESSION_CLOSE = 0x11, 0x12, 0x13
REGISTER_SEQUENCE = 0x1F8C62A5
UNKNOWN = 0x2A2A2A


def varint(value):
    return encode_uint_var(value)


def longest(value):
    """The same in eight bytes, which is allowed everywhere."""
    return struct.pack(">Q", 0xC0 << 56 | value)


def frame(kind, payload=b""):
    return varint(kind) + varint(len(payload)) + payload


# Capsules have the form of frames.
capsule = frame


def data(payload):
    return encode_frame(FrameType.DATA, payload)


def section(fields):
    """A field section that names nothing of a dynamic table."""
    fields = [tuple(x if isinstance(x, bytes) else x.encode() for x in field) for field in fields]
    return pylsqpack.Encoder().encode(0, fields)[1]


def literal(name, value):
    """A field of any length (RFC 9204, section 4.5.6): the library refuses long ones."""

    def text(first, bits, content):
        most, out = (1 << bits) - 1, bytearray()
        if len(content) < most:
            return bytes([first | len(content)]) + content
        out.append(first | most)
        left = len(content) - most
        while left >= 0x80:
            out.append(left & 0x7F | 0x80)
            left >>= 7
        return bytes(out) + bytes([left]) + content

    return text(0x20, 3, name) + text(0, 7, value)


def head(fields):
    return encode_frame(FrameType.HEADERS, section(fields))


def fields_of(payload):
    return pylsqpack.Decoder(0, 0).feed_header(0, bytes(payload))[1]


def frames(content):
    """The whole frames, or capsules, at the beginning of these bytes, and the part of another."""
    found, rest = [], bytes(content)
    while True:
        buffer = Buffer(data=rest)
        try:
            kind, length = buffer.pull_uint_var(), buffer.pull_uint_var()
            found.append((kind, buffer.pull_bytes(length)))
        except BufferReadError:
            return found, rest
        rest = rest[buffer.tell() :]


def carried(content):
    """What the DATA frames of a stream carry."""
    return b"".join(payload for kind, payload in frames(content)[0] if kind == FrameType.DATA)


def quarter(stream):
    return varint(stream // 4)


def udp(payload, context=0):
    """A datagram of HTTP, behind the number of its stream."""
    return varint(context) + payload


__all__ = [name for name in dir() if not name.startswith("_")]
