"""Connections of a protocol of one's own: streams and datagrams over several paths."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from . import _engine
from .controller import ControllerLike
from .errors import TransferError
from .running import Schedulers
from .scheduler import SchedulerLike
from .transfers import FileName, Opening, options_of


@dataclass(frozen=True)
class PathChange:
    """Something that happened to a path.

    Attributes:
        kind: "opened", "doubted" (it went silent), "recovered", "moved" (its peer has another
            address), "abandoned", "discarded", "capacity" (a further path can be opened), or
            "missed" if the reader was too slow for some: see `Connection.paths`.
        path: its id.
        silent: how long it was silent, in seconds.
        remote: the peer's address.
        code: why it was abandoned.
    """

    kind: str
    path: int | None = None
    silent: float | None = None
    remote: str | None = None
    code: int | None = None


class Stream:
    """One or both directions of a stream. What is written arrives in order or not at all.

    Attributes:
        id: its number, the same at both ends.
        readable, writable: what this side may do.
    """

    def __init__(self, stream: _engine.Stream) -> None:
        self._stream = stream
        self.id = stream.id
        self.readable, self.writable = stream.readable, stream.writable

    async def read(self, most: int = 1 << 16) -> bytes:
        """Waits for data, at most so many bytes; ``b""`` at the end."""
        while True:
            await self._stream.wait(most)
            # Nothing can be cancelled between the two.
            if (piece := self._stream.fetch(most)) is not None:
                return piece

    async def read_all(self, limit: int = 1 << 30) -> bytes:
        """Waits for all that is left; an error if it is more than ``limit`` bytes."""
        return await self._stream.read_all(limit)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunk := await self.read():
            yield chunk

    async def write(self, data: bytes) -> None:
        """Waits until all of it may be sent. A write that is cancelled may have begun."""
        await self._stream.write(data)

    async def finish(self) -> None:
        """Ends it in order: the peer reads what was written, then the end."""
        await self._stream.finish()

    async def reset(self, code: int = 0) -> None:
        """Gives it up, what has not arrived included."""
        await self._stream.reset(code)

    async def stop(self, code: int = 0) -> None:
        """Tells the peer that no more of it is wanted."""
        await self._stream.stop(code)

    def __repr__(self) -> str:
        return f"<Stream {self.id}>"


class Connection:
    """A connection over several paths. Close it, or open it with ``async with``.

    What is cancelled while it waits loses a write under way, what ``read_all`` has read so far, and
    a datagram or a new stream that arrives at that very moment; a ``read`` loses nothing.
    """

    def __init__(self, connection: _engine.Connection) -> None:
        self._connection = connection

    async def open_stream(self, *, one_way: bool = False) -> Stream:
        """Opens a stream, once the peer allows one more; ``one_way`` if only this side writes."""
        return Stream(await self._connection.open(one_way))

    async def accept_stream(self, *, one_way: bool = False) -> Stream:
        """Waits until the peer opens a stream. It does so with its first byte."""
        return Stream(await self._connection.accept(one_way))

    async def send_datagram(self, data: bytes) -> None:
        """Sends a datagram, once there is room. It arrives whole, or not at all."""
        await self._connection.send_datagram(data)

    async def receive_datagram(self) -> bytes:
        """Waits for a datagram."""
        return await self._connection.receive_datagram()

    @property
    def max_datagram(self) -> int | None:
        """The most bytes of a datagram now; None if the peer takes none."""
        return self._connection.max_datagram

    @property
    def multipath(self) -> bool:
        """Whether both sides speak multipath QUIC."""
        return self._connection.multipath

    @property
    def remote(self) -> str | None:
        """The peer's address."""
        return self._connection.remote

    def paths(self) -> list[dict[str, Any]]:
        """The open paths: ``id``, ``remote``, ``state``, ``status``, ``smoothed_rtt`` and
        ``min_rtt`` in seconds, ``congestion_window`` and ``bytes_in_flight`` in bytes,
        ``delivery_rate`` in bytes per second, ``mtu``."""
        return self._connection.paths()

    def path_changes(self) -> AsyncIterator[PathChange]:
        """What happens to paths from now on, until the connection ends."""
        changes = self._connection.path_changes()

        async def each() -> AsyncIterator[PathChange]:
            while (told := await changes.next()) is not None:
                yield PathChange(*told)

        return each()

    async def closed(self) -> str:
        """Waits until it has ended; returns why.

        Raises:
            SchedulerError: a scheduler written in Python raised an exception; it is the cause.
        """
        return await self._connection.closed()

    async def close(self, code: int = 0, reason: str = "") -> None:
        """Closes it and tells the peer. What has not arrived is lost: let the peer close, or
        wait for its answer."""
        await self._connection.close(code, reason)

    def __repr__(self) -> str:
        return f"<Connection with {self.remote}>"


class Listener:
    """Takes connections until it is closed: ``async for connection in listener``.

    Attributes:
        url: the URL for clients, with the key of this side.
    """

    def __init__(self, listener: _engine.Listener) -> None:
        self._listener = listener
        self.url = listener.url

    async def accept(self) -> Connection:
        """Waits for a connection.

        Raises:
            TransferError: the listener was closed, before or meanwhile.
        """
        accepted = await self._listener.accept()
        if accepted is None:
            raise TransferError("the listener was closed")
        return Connection(accepted)

    async def __aiter__(self) -> AsyncIterator[Connection]:
        while (accepted := await self._listener.accept()) is not None:
            yield Connection(accepted)

    async def close(self) -> None:
        """Takes no more and closes all of its connections. Whoever waits in `accept` is told, a
        loop over it ends, and its port is free."""
        await self._listener.close()

    def __repr__(self) -> str:
        return f"<Listener {self.url}>"


def connect(
    url: str,
    *,
    protocol: str,
    scheduler: SchedulerLike | None = None,
    schedulers: Schedulers = (),
    **options: Any,
) -> Opening[Connection]:
    """Connects to a server that speaks a protocol of yours.

        async with ab.connect(url, protocol="ticks", paths=["eth0", "wwan0"]) as connection:
            stream = await connection.open_stream()

    Args:
        url: ``anabranch://KEY@HOST:PORT``, as `Listener.url`.
        protocol: the name of the protocol (ALPN), the same at both ends.
        scheduler: which path each packet takes: a name, a class, or an object, as in the
            simulator.
        schedulers: further schedulers written in Python that the name may mean.
        options: ``paths``, ``connect_timeout``, ``congestion``, ``chunk``, ``timestamps``,
            ``identity``, ``ca``, ``qlog``, as for `get`.

    Raises:
        TransferError, UsageError, SpecError: as for `get`.
    """
    told = options_of(scheduler, schedulers, **options)

    async def start() -> Connection:
        return Connection(await _engine.connect(url, protocol, told))

    return Opening(start())


def listen(
    addresses: Iterable[str] = (),
    *,
    protocol: str,
    scheduler: SchedulerLike | None = None,
    schedulers: Schedulers = (),
    congestion: ControllerLike | None = None,
    identity: FileName | None = None,
    qlog: FileName | None = None,
) -> Opening[Listener]:
    """Listens for connections of a protocol of yours.

        async with ab.listen(["192.0.2.1:4444"], protocol="ticks") as listener:
            async for connection in listener:
                ...

    Args:
        addresses: where, as ``"192.0.2.1:4444"``; a free port of this machine alone if none.
        protocol: the name of the protocol (ALPN), the same at both ends.
        scheduler, schedulers, congestion, identity, qlog: as for `serve`.

    Raises:
        UsageError: it cannot listen there.
        SpecError: there is no such scheduler or congestion control.
    """
    told = options_of(
        scheduler, schedulers, congestion=congestion, identity=identity, qlog=qlog
    )

    async def start() -> Listener:
        return Listener(await _engine.listen(list(addresses), protocol, told))

    return Opening(start())
