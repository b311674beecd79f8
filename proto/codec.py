"""Messages <-> ZMQ frames: [header, body, array, array, ...].

The header is msgpack ``[version, type name]``, the body the msgpack map of the fields. An array stands in the body as
``[number of its frame, dtype, shape]``; its bytes are a frame of their own, in C order, little-endian, sent from where
they lie and read where they were received.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from proto import PROTOCOL_VERSION
from proto.errors import BadMessage, TooLarge, UnknownType, UnknownVersion
from proto.messages import Message, message_type

MAX_FRAMES = 64  # arrays in one message; the largest of ours has one a camera or a file
MAX_DIMENSIONS = 8
_KINDS = frozenset("buif")  # booleans, integers, floats: nothing that could hold an object

_header = msgspec.msgpack.Decoder(tuple[int, str])
_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> list[bytes | memoryview]:
    """The frames of `message`. Contiguous arrays are not copied: do not change them before the frames are sent.

    Raises:
        TypeError: an array of objects, text or complex numbers, or a field msgpack has no type for.
    """
    arrays: list[memoryview] = []

    def place(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(message).__name__} holds a {type(value).__name__}, which cannot travel")
        if value.dtype.kind not in _KINDS:
            raise TypeError(
                f"{type(message).__name__} holds an array of {value.dtype}; only numbers and booleans travel"
            )
        packed = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        arrays.append(packed.reshape(-1).view(np.uint8).data)
        return [len(arrays) - 1, packed.dtype.str, value.shape]

    body = msgspec.msgpack.encode(message, enc_hook=place)
    return [_encoder.encode((PROTOCOL_VERSION, type(message).__name__)), body, *arrays]


def decode(frames: Sequence[Any], max_bytes: int | None = None) -> Message:
    """The message in `frames` (bytes, memoryviews or zmq.Frames). Its arrays are read-only views of the frames.

    Raises:
        UnknownVersion, UnknownType, TooLarge, BadMessage: says what is wrong; never anything else for any bytes.
    """
    buffers = [memoryview(getattr(frame, "buffer", frame)) for frame in frames]
    if not 2 <= len(buffers) <= MAX_FRAMES + 2:
        raise BadMessage(f"a message has 2 to {MAX_FRAMES + 2} frames (header, body, arrays), got {len(buffers)}")
    size = sum(buffer.nbytes for buffer in buffers)
    if max_bytes is not None and size > max_bytes:
        raise TooLarge(f"message of {size} bytes, at most {max_bytes} are taken")
    kind = _read_header(buffers[0])
    arrays = buffers[2:]
    used: set[int] = set()

    def fetch(wanted: type, value: Any) -> Any:
        if wanted is not np.ndarray:
            raise BadMessage(f"{kind.__name__}: no field of type {wanted.__name__} travels")
        return _array(kind.__name__, value, arrays, used)

    try:
        message = msgspec.msgpack.decode(buffers[1], type=kind, dec_hook=fetch)
    except BadMessage:
        raise
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise BadMessage(f"{kind.__name__}: {error}") from None
    if len(used) != len(arrays):
        raise BadMessage(f"{kind.__name__}: {len(arrays)} array frames, the body names {len(used)}")
    return message


def _read_header(buffer: memoryview) -> type[Message]:
    try:
        version, name = _header.decode(buffer)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadMessage(f"the first frame is no header [version, type]: {error}") from None
    if version != PROTOCOL_VERSION:
        raise UnknownVersion(f"protocol version {version}, this side speaks {PROTOCOL_VERSION}; use equal releases")
    kind = message_type(name)
    if kind is None:
        raise UnknownType(f"unknown message type {name[:128]!r}")
    return kind


def _array(owner: str, value: Any, arrays: list[memoryview], used: set[int]) -> np.ndarray:
    match value:
        case [int(number), str(name), [*shape]] if all(type(n) is int and n >= 0 for n in shape):
            pass
        case _:
            raise BadMessage(f"{owner}: an array is [frame, dtype, shape], got something else")
    if number in used or not 0 <= number < len(arrays):
        raise BadMessage(f"{owner}: array frame {number} is not there or used twice; {len(arrays)} came")
    used.add(number)
    if len(shape) > MAX_DIMENSIONS:
        raise TooLarge(f"{owner}: array of {len(shape)} dimensions, at most {MAX_DIMENSIONS}")
    dtype = _dtype(owner, name)
    needed = math.prod(shape) * dtype.itemsize
    if needed != arrays[number].nbytes:
        raise BadMessage(
            f"{owner}: array of shape {tuple(shape)} and dtype {dtype} needs {needed} bytes, "
            f"its frame has {arrays[number].nbytes}"
        )
    array = np.frombuffer(arrays[number], dtype).reshape(shape)
    array.flags.writeable = False
    return array


def _dtype(owner: str, name: str) -> np.dtype:
    try:
        dtype = np.dtype(name) if len(name) <= 8 else None
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    if dtype is None or dtype.kind not in _KINDS or dtype.names is not None or dtype.shape or dtype.str != name:
        raise BadMessage(f"{owner}: array dtype {name[:16]!r} is no bool, int or float in numpy's short form")
    return dtype
