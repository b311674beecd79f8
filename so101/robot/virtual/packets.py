"""STS packets: ff ff id length instruction parameters checksum, and how to find them in a stream of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

HEADER = b"\xff\xff"
BROADCAST = 0xFE
SMALLEST = 6  # header, id, length, instruction, checksum
LONGEST = 250  # the maker's host library sends no more

PING, READ, WRITE, REG_WRITE, ACTION, RESET, SYNC_READ, SYNC_WRITE = 1, 2, 3, 4, 5, 6, 0x82, 0x83


class Packet(NamedTuple):
    """An instruction to servo `id`, or to all of them."""

    id: int
    instruction: int
    parameters: bytes


def checksum(body: bytes) -> int:
    """Of everything between header and checksum."""
    return ~sum(body) & 0xFF


def pack(id: int, instruction_or_error: int, parameters: bytes = b"") -> bytes:
    """The bytes of an instruction, or of a status packet with its error byte."""
    body = bytes([id, len(parameters) + 2, instruction_or_error]) + parameters
    return HEADER + body + bytes([checksum(body)])


class Parser:
    """Collects bytes and gives packets. Bytes that are no packet are skipped, one at a time, so that a packet after any
    garbage is found.

    Attributes:
        skipped: bytes thrown away so far.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.skipped = 0

    @property
    def waiting(self) -> int:
        """Bytes of an unfinished packet."""
        return len(self._bytes)

    def clear(self) -> None:
        """Forget an unfinished packet: a servo does, when the line is silent for long."""
        self.skipped += len(self._bytes)
        self._bytes.clear()

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Add bytes; the packets that are complete now."""
        self._bytes += data
        while len(self._bytes) >= 4:
            buffer = self._bytes
            if buffer[:2] != HEADER or buffer[2] == 0xFF or not 2 <= buffer[3] <= LONGEST - 4:
                self._skip()
                continue
            end = buffer[3] + 4
            if len(buffer) < end:
                return
            if buffer[end - 1] != checksum(buffer[2 : end - 1]):
                self._skip()
                continue
            packet = Packet(buffer[2], buffer[4], bytes(buffer[5 : end - 1]))
            del buffer[:end]
            yield packet

    def _skip(self) -> None:
        """Drop bytes up to the next that may begin a packet, at least one."""
        begin = self._bytes.find(0xFF, 1)
        dropped = begin if begin > 0 else len(self._bytes)
        self.skipped += dropped
        del self._bytes[:dropped]
