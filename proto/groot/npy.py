"""Arrays <-> .npy files in memory, as numpy.save writes them, without copying the numbers and without pickle."""

from __future__ import annotations

import functools
import io
import math
import re

import numpy as np

from proto.errors import BadMessage, TooLarge

KINDS = frozenset("buif")  # booleans, integers, floats: nothing that could hold an object
_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 1024  # numpy writes 118 bytes for up to 8 dimensions
_COMMA = r"\s*(?:,\s*)?"
_HEADER = re.compile(
    rf"\{{\s*(?:'descr'\s*:\s*'(?P<descr>[<>|=]?[buif]\d{{1,2}})'{_COMMA}"
    rf"|'fortran_order'\s*:\s*(?P<fortran>True|False){_COMMA}"
    rf"|'shape'\s*:\s*\((?P<shape>(?:\s*\d+\s*,)*\s*\d*\s*)\){_COMMA}){{3}}\}}\s*"
)


def npy_parts(array: np.ndarray) -> tuple[bytes, memoryview]:
    """Head and data of the .npy file of `array`; the data is a view when the array is contiguous.

    Raises:
        TypeError: the array holds no numbers.
    """
    refuse_objects(array)
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    return _head(array.dtype.str, fortran, array.shape), flat_bytes(array.T if fortran else array)


def flat_bytes(array: np.ndarray) -> memoryview:
    """(nbytes,) the numbers in C order; a view when the array is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def refuse_objects(array: np.ndarray) -> None:
    if array.dtype.kind not in KINDS:
        raise TypeError(f"an array of {array.dtype} cannot travel; only numbers and booleans can")


@functools.lru_cache(maxsize=256)
def _head(descr: str, fortran: bool, shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    header = {"descr": descr, "fortran_order": fortran, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def read_npy(file: memoryview, max_dimensions: int) -> np.ndarray:
    """The array in a .npy file. Bytes and booleans are a read-only view of `file`; larger numbers are copied, for they
    may lie at any address.

    Raises:
        TooLarge, BadMessage: not such a file, not of numbers, or its length is not that of its shape.
    """
    if bytes(file[: len(_MAGIC)]) != _MAGIC:
        raise BadMessage(f"array data starts with {bytes(file[:6])!r}, not as a .npy file does")
    version, width = bytes(file[6:8]), 2
    if version in (b"\x02\x00", b"\x03\x00"):
        width = 4
    elif version != b"\x01\x00":
        raise BadMessage(f".npy of version {version.hex('.')}; 1.0 to 3.0 are read")
    start = 8 + width
    length = int.from_bytes(file[8:start], "little")
    if length > _MAX_HEADER:
        raise TooLarge(f".npy header of {length} bytes, at most {_MAX_HEADER} are taken")
    if start + length > file.nbytes:
        raise BadMessage(f".npy truncated: a header of {length} bytes is not there")
    descr, fortran, shape = _parse_header(bytes(file[start : start + length]))
    array = numbers(file[start + length :], descr, shape[::-1] if fortran else shape, max_dimensions)
    return array.T if fortran else array


@functools.lru_cache(maxsize=256)
def _parse_header(header: bytes) -> tuple[str, bool, tuple[int, ...]]:
    match = _HEADER.fullmatch(header.decode("latin-1"))
    if match is None or None in match.groups():
        raise BadMessage(f".npy header {header[:80]!r} is none of an array of numbers or booleans")
    sizes = [size for size in map(str.strip, match["shape"].split(",")) if size]
    if any(len(size) > 18 for size in sizes):
        raise TooLarge(f".npy shape ({match['shape'][:80]}) is out of all proportion")
    return match["descr"], match["fortran"] == "True", tuple(int(size) for size in sizes)


def numbers(data: memoryview, descr: str, shape: tuple[int, ...], max_dimensions: int) -> np.ndarray:
    """C-ordered `data` as an array; a read-only view of it when its numbers are single bytes.

    Raises:
        TooLarge, BadMessage: too many dimensions, not of numbers, or the lengths disagree.
    """
    if len(shape) > max_dimensions:
        raise TooLarge(f"array of {len(shape)} dimensions, at most {max_dimensions}")
    try:
        dtype = np.dtype(descr)
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    if dtype is None or dtype.kind not in KINDS or dtype.itemsize > 8 or dtype.subdtype is not None:
        raise BadMessage(f"array of dtype {descr[:32]!r}; numbers of up to 8 bytes and booleans are taken")
    needed = math.prod(shape) * dtype.itemsize
    if needed != data.nbytes:
        raise BadMessage(f"array of shape {shape} and dtype {dtype} needs {needed} bytes, {data.nbytes} are there")
    if dtype.itemsize > 1:
        return np.frombuffer(bytearray(data), dtype).reshape(shape)
    array = np.frombuffer(data, dtype).reshape(shape)
    array.flags.writeable = False
    return array
