"""A msgpack reader that copies no binary data and bounds everything a stranger's message can ask for.

The `msgpack` package copies each bin, which for camera frames is most of the time a message takes; so the outer
structure, some fifty values, is read here and bins stay views of the message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proto.errors import BadMessage, TooLarge


@dataclass(frozen=True)
class Limits:
    """What a message may hold.

    Attributes:
        bytes: its length.
        depth: containers within containers; an observation has 4.
        values: all keys, numbers, texts and containers together; an observation has some 50.
        dimensions: of an array.
    """

    bytes: int = 64 << 20
    depth: int = 16
    values: int = 100_000
    dimensions: int = 8


_NUMBERS = {
    0xCA: struct.Struct(">f"), 0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"), 0xCD: struct.Struct(">H"), 0xCE: struct.Struct(">I"), 0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"), 0xD1: struct.Struct(">h"), 0xD2: struct.Struct(">i"), 0xD3: struct.Struct(">q"),
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_SIZES = (struct.Struct(">B"), struct.Struct(">H"), struct.Struct(">I"))
_SIZED = {
    0xC4: ("binary", _SIZES[0]), 0xC5: ("binary", _SIZES[1]), 0xC6: ("binary", _SIZES[2]),
    0xD9: ("text", _SIZES[0]), 0xDA: ("text", _SIZES[1]), 0xDB: ("text", _SIZES[2]),
    0xDC: ("array", _SIZES[1]), 0xDD: ("array", _SIZES[2]),
    0xDE: ("map", _SIZES[1]), 0xDF: ("map", _SIZES[2]),
}  # fmt: skip

Revive = Callable[[dict[str, Any]], Any]


def read(message: memoryview, limits: Limits, revive: Revive) -> Any:
    """The one value that `message` (bytes) holds.

    Args:
        revive: gets each map, innermost first, its bins as views of `message`; returns what stands for it.

    Raises:
        TooLarge, BadMessage: says what is wrong and where.
    """
    if message.nbytes > limits.bytes:
        raise TooLarge(f"message of {message.nbytes} bytes, at most {limits.bytes} are taken")
    reader = _Reader(message, limits, revive)
    value = reader.value(0)
    if reader.at != message.nbytes:
        raise BadMessage(f"{message.nbytes - reader.at} bytes too many after the message's {reader.at}")
    return bytes(value) if isinstance(value, memoryview) else value


class _Reader:
    def __init__(self, message: memoryview, limits: Limits, revive: Revive) -> None:
        self._message, self._limits, self._revive = message, limits, revive
        self._values_left = limits.values
        self.at = 0

    def value(self, depth: int) -> Any:
        self._values_left -= 1
        if self._values_left < 0:
            raise TooLarge(f"more than {self._limits.values} values in one message")
        code = self._take(1, "a value")[0]
        if code < 0x80:
            return code
        if code >= 0xE0:
            return code - 0x100
        if code < 0x90:
            return self._map(code & 0x0F, depth)
        if code < 0xA0:
            return self._array(code & 0x0F, depth)
        if code < 0xC0:
            return self._text(code & 0x1F)
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _NUMBERS:
            number = _NUMBERS[code]
            return number.unpack(self._take(number.size, "a number"))[0]
        if code not in _SIZED:
            raise BadMessage(f"msgpack code 0x{code:02x} at byte {self.at - 1}: extension types are not taken")
        kind, size = _SIZED[code]
        (length,) = size.unpack(self._take(size.size, f"the length of a {kind}"))
        if kind == "binary":
            return self._take(length, "binary data")
        if kind == "text":
            return self._text(length)
        return self._map(length, depth) if kind == "map" else self._array(length, depth)

    def _take(self, count: int, what: str) -> memoryview:
        end = self.at + count
        if end > self._message.nbytes:
            left = self._message.nbytes - self.at
            raise BadMessage(f"truncated: {what} at byte {self.at} needs {count} bytes, {left} are left")
        taken = self._message[self.at : end]
        self.at = end
        return taken

    def _text(self, length: int) -> str:
        try:
            return str(self._take(length, "text"), "utf-8")
        except UnicodeDecodeError as error:
            raise BadMessage(f"text before byte {self.at} is not UTF-8 ({error.reason})") from None

    def _enter(self, count: int, depth: int) -> None:
        """Before the first of `count` elements, each of which takes a byte at least."""
        if depth >= self._limits.depth:
            raise TooLarge(f"nested deeper than {self._limits.depth} at byte {self.at}")
        if count > self._message.nbytes - self.at:
            raise BadMessage(f"truncated: {count} elements announced at byte {self.at} are not there")

    def _array(self, length: int, depth: int) -> list[Any]:
        self._enter(length, depth)
        values = [self.value(depth + 1) for _ in range(length)]
        return [bytes(value) if type(value) is memoryview else value for value in values]

    def _map(self, length: int, depth: int) -> Any:
        self._enter(2 * length, depth)
        found: dict[str, Any] = {}
        for _ in range(length):
            key = self.value(depth + 1)
            if type(key) is memoryview:  # W3 writes the keys of its arrays as bins
                key = str(key, "ascii", "replace")
            if type(key) is not str:
                raise BadMessage(f"map key of type {type(key).__name__} before byte {self.at}; keys are text")
            if key in found:
                raise BadMessage(f"map key {key[:64]!r} stands twice")
            found[key] = self.value(depth + 1)
        return self._revive(found)
