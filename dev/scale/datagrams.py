"""Senders and receivers of many small datagrams, fast enough not to be what is measured.

A sender hands the kernel a whole burst with one call: joined, as the kernel of a sender with
segmentation offload or of a machine that received them does (UDP_SEGMENT), or each for itself
(sendmmsg). A receiver takes up to 64 with one call (recvmmsg). Both are processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import socket
import time

UDP_SEGMENT = 103
AT_A_TIME = 64
ROOM = 2048
BUFFER = 4 << 20
SO_RCVBUFFORCE = 33
# The kernel joins no more than this.
JOINED = 64 << 10

LIBC = ctypes.CDLL(None, use_errno=True)


class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Message(ctypes.Structure):
    """`struct mmsghdr`."""

    _fields_ = [
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("pieces", ctypes.POINTER(Piece)),
        ("piece_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("length", ctypes.c_uint),
    ]


class Messages:
    """Buffers for many datagrams, as the kernel takes and fills them."""

    def __init__(self, count: int, size: int, content: bytes = b"") -> None:
        self.count = count
        self.buffers = [ctypes.create_string_buffer(content, size) for _ in range(count)]
        self.pieces = (Piece * count)()
        self.messages = (Message * count)()
        for at, buffer in enumerate(self.buffers):
            self.pieces[at] = Piece(ctypes.addressof(buffer), size)
            self.messages[at].pieces = ctypes.pointer(self.pieces[at])
            self.messages[at].piece_count = 1

    def send(self, to: int) -> int:
        return LIBC.sendmmsg(to, self.messages, self.count, 0)

    def receive(self, at: int) -> int:
        # 0x10000 is MSG_WAITFORONE.
        return LIBC.recvmmsg(at, self.messages, self.count, 0x10000, None)


def udp() -> socket.socket:
    """A socket with a large buffer: it is not to be what loses."""
    at = socket.socket(type=socket.SOCK_DGRAM)
    try:
        at.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    except PermissionError:
        at.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    return at


def flood(
    to: list[socket.socket],
    datagrams: list[bytes],
    rate: float,
    seconds: float,
    burst: int,
    is_joined: bool,
) -> int:
    """Sends so many a second from connected sockets, a burst of each datagram in turn; returns how
    many it was."""
    size = len(datagrams[0])
    if is_joined:
        burst = min(burst, AT_A_TIME, JOINED // size)
    each = [Messages(burst, size, datagram) for datagram in datagrams]
    joined = [datagram * burst for datagram in datagrams]
    segment = [(socket.IPPROTO_UDP, UDP_SEGMENT, size.to_bytes(2, "little"))]
    started, sent, turn = time.monotonic(), 0, 0
    while (elapsed := time.monotonic() - started) < seconds:
        if sent >= rate * elapsed:
            time.sleep(burst / rate / 4)
            continue
        one, what = to[turn % len(to)], turn % len(datagrams)
        turn += 1
        # What finds nobody or no room counts as sent.
        sent += burst
        with contextlib.suppress(OSError):
            if is_joined:
                one.sendmsg([joined[what]], segment)
            else:
                each[what].send(one.fileno())
    return sent


class Sink:
    """A process that counts what comes to sockets. It ends with this one."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self.counts = multiprocessing.Array("Q", len(sockets), lock=False)
        self.processes = [
            multiprocessing.Process(target=self.take, args=(at, one), daemon=True)
            for at, one in enumerate(sockets)
        ]
        for process in self.processes:
            process.start()

    def take(self, at: int, one: socket.socket) -> None:
        one.setblocking(True)
        messages = Messages(AT_A_TIME, ROOM)
        while True:
            got = messages.receive(one.fileno())
            if got > 0:
                self.counts[at] += got
            elif ctypes.get_errno() not in (0, 4, 11, 111):
                os._exit(1)

    def count(self) -> int:
        return sum(self.counts)

    def settled(self) -> int:
        """The count once it has not grown for a while."""
        before = -1
        while before != self.count():
            before = self.count()
            time.sleep(0.2)
        return before

    def end(self) -> None:
        for process in self.processes:
            process.terminate()
            process.join(5)


class Flood:
    """A process that sends. `sent` waits until it has."""

    def __init__(self, *what: object) -> None:
        self.result = multiprocessing.SimpleQueue()
        self.process = multiprocessing.Process(target=self.run, args=what, daemon=True)
        self.process.start()

    def run(self, *what: object) -> None:
        self.result.put(flood(*what))

    def sent(self) -> int:
        sent = self.result.get()
        self.process.join(5)
        return sent
