"""Values <-> the bytes of one GR00T message. Values are nil, booleans, numbers, text, bytes, lists, maps with text
keys, numpy arrays of numbers, and `ModalityConfig`."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

import msgpack
import numpy as np

from proto.errors import BadMessage
from proto.groot import npy
from proto.groot.modality import ModalityConfig, from_map, to_map
from proto.groot.reader import Limits, read

Wire = Literal["w1", "w2", "w3"]
_W2_ARRAY, _W2_CONFIG = "__ndarray_class__", "__ModalityConfig_class__"
_W3_ARRAY, _W3_CONFIG = "nd", "__ModalityConfig__"
_DEFAULT_LIMITS = Limits()

_pack = msgpack.packb


class Decoded(NamedTuple):
    """A message and the generation that its arrays and configurations are written in; None when it holds none."""

    value: Any
    wire: Wire | None


def encode(value: Any, wire: Wire = "w2") -> bytes:
    """The bytes of one message; arrays are copied once, into it.

    Raises:
        TypeError: something in it cannot travel.
    """
    parts: list[Any] = []
    _write(value, parts, wire)
    return b"".join(parts)


def decode(message: Any, limits: Limits = _DEFAULT_LIMITS) -> Decoded:
    """Read a message of any generation (bytes, memoryview, or zmq.Frame). Arrays of bytes are read-only views of it.

    Raises:
        TooLarge, BadMessage: says what is wrong; never anything else for any bytes.
    """
    seen: list[Wire] = []

    def revive(found: dict[str, Any]) -> Any:
        if _W2_ARRAY in found:
            seen.append("w2")
            return npy.read_npy(_binary(found, "as_npy"), limits.dimensions)
        if _W3_ARRAY in found and "type" in found and "data" in found:
            seen.append("w3")
            return _w3_array(found, limits)
        if _W2_CONFIG in found or _W3_CONFIG in found:
            json_text = isinstance(found.get("as_json"), (str, memoryview))
            seen.append("w3" if _W3_CONFIG in found else "w1" if json_text else "w2")
            return from_map(_plain(found.get("as_json")))
        return {key: _plain(item) for key, item in found.items()}

    value = read(memoryview(getattr(message, "buffer", message)).cast("B"), limits, revive)
    return Decoded(value, seen[0] if seen else None)


def _plain(value: Any) -> Any:
    return bytes(value) if type(value) is memoryview else value


def _binary(found: dict[str, Any], key: str) -> memoryview:
    data = found.get(key)
    if type(data) is not memoryview:
        raise BadMessage(f"an array's {key!r} must be binary, got {type(data).__name__}")
    return data


def _w3_array(found: dict[str, Any], limits: Limits) -> Any:
    kind, descr, shape = _plain(found.get("kind", b"")), _plain(found["type"]), found.get("shape", [])
    descr = descr.decode("latin-1") if isinstance(descr, bytes) else descr
    if kind not in (b"", "") or not isinstance(descr, str):
        raise BadMessage(
            f"array of kind {str(kind)[:16]}: only numbers and booleans are taken, no objects or structures"
        )
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise BadMessage(f"an array's shape must be a list of sizes, got {str(shape)[:80]}")
    array = npy.numbers(_binary(found, "data"), descr, tuple(shape), limits.dimensions)
    return array if found["nd"] else array[()]


def _write(value: Any, parts: list[Any], wire: Wire) -> None:
    if isinstance(value, np.ndarray):
        _write_w3_array(value, parts) if wire == "w3" else _write_array(value, parts)
    elif isinstance(value, dict):
        parts.append(_container_head(len(value), 0x80, 0xDE))
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"map key {key!r} is {type(key).__name__}; keys must be text")
            parts.append(_pack(key))
            _write(item, parts, wire)
    elif isinstance(value, (list, tuple)):
        parts.append(_container_head(len(value), 0x90, 0xDC))
        for item in value:
            _write(item, parts, wire)
    elif isinstance(value, ModalityConfig):
        fields = _pack(json.dumps(to_map(value)) if wire == "w1" else to_map(value))
        parts += [b"\x82", _pack(_W3_CONFIG if wire == "w3" else _W2_CONFIG), b"\xc3", _pack("as_json"), fields]
    else:
        parts.append(_pack(value.item() if isinstance(value, np.generic) else value))


_ARRAY_HEAD = b"\x82" + _pack(_W2_ARRAY) + b"\xc3" + _pack("as_npy")


def _write_array(array: np.ndarray, parts: list[Any]) -> None:
    head, data = npy.npy_parts(array)
    parts += [_ARRAY_HEAD, _binary_head(len(head) + data.nbytes), head, data]


def _write_w3_array(array: np.ndarray, parts: list[Any]) -> None:
    npy.refuse_objects(array)
    data = npy.flat_bytes(array)
    fields = {b"nd": True, b"type": array.dtype.str, b"kind": b"", b"shape": array.shape}
    parts += [b"\x85", *(_pack(item) for pair in fields.items() for item in pair), _pack(b"data")]
    parts += [_binary_head(data.nbytes), data]


def _binary_head(length: int) -> bytes:
    if length < 0x100:
        return b"\xc4" + length.to_bytes(1, "big")
    if length < 0x10000:
        return b"\xc5" + length.to_bytes(2, "big")
    return b"\xc6" + length.to_bytes(4, "big")


def _container_head(length: int, few: int, many: int) -> bytes:
    if length < 0x10:
        return bytes([few | length])
    if length < 0x10000:
        return bytes([many]) + length.to_bytes(2, "big")
    return bytes([many + 1]) + length.to_bytes(4, "big")
