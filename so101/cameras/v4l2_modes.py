"""Which cameras Linux has and what they offer, asked of the kernel: for messages that say what to choose from.

Numbers and layouts are those of linux/videodev2.h, the same on all 64-bit machines.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

_ENUM_FORMATS, _FORMATS_BYTES = 0xC0405602, 64
_ENUM_SIZES, _SIZES_BYTES = 0xC02C564A, 44
_ENUM_INTERVALS, _INTERVALS_BYTES = 0xC034564B, 52
_CAPTURE = 1  # V4L2_BUF_TYPE_VIDEO_CAPTURE
_DISCRETE = 1  # of sizes and of intervals; others are ranges
_MOST = 256  # entries read of any list

Ioctl = Callable[[int, int, bytearray], object]


def list_devices(dev: Path = Path("/dev"), sys: Path = Path("/sys/class/video4linux")) -> dict[str, str]:
    """Path -> name of the cameras that are plugged in. One camera may have several."""
    numbers = sorted(int(path.name[5:]) for path in dev.glob("video[0-9]*") if path.name[5:].isdigit())
    devices = {}
    for number in numbers:
        try:
            label = (sys / f"video{number}" / "name").read_text().strip()
        except OSError:
            label = "?"
        devices[str(dev / f"video{number}")] = label
    return devices


def list_modes(device: str, ioctl: Ioctl = fcntl.ioctl) -> list[str]:
    """Modes of `device`, as ``MJPG 640x480 at 15, 30 Hz``; none when it cannot be asked."""
    try:
        handle = os.open(device, os.O_RDWR | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        return [
            f"{code} {width}x{height}{_rates(ioctl, handle, pixel_format, width, height)}"
            for code, pixel_format in _formats(ioctl, handle)
            for width, height in _sizes(ioctl, handle, pixel_format)
        ]
    finally:
        os.close(handle)


def _formats(ioctl: Ioctl, handle: int) -> Iterator[tuple[str, int]]:
    for entry in _entries(ioctl, handle, _ENUM_FORMATS, _FORMATS_BYTES, (4, _CAPTURE)):
        code = bytes(entry[44:48])
        yield code.decode("ascii", "replace").strip(), *struct.unpack("<I", code)


def _sizes(ioctl: Ioctl, handle: int, pixel_format: int) -> Iterator[tuple[int, int]]:
    for entry in _entries(ioctl, handle, _ENUM_SIZES, _SIZES_BYTES, (4, pixel_format)):
        kind, width, height = struct.unpack_from("<III", entry, 8)
        if kind == _DISCRETE:
            yield width, height


def _rates(ioctl: Ioctl, handle: int, pixel_format: int, width: int, height: int) -> str:
    rates = []
    asked = (4, pixel_format, width, height)
    for entry in _entries(ioctl, handle, _ENUM_INTERVALS, _INTERVALS_BYTES, asked):
        kind, numerator, denominator = struct.unpack_from("<III", entry, 16)
        if kind == _DISCRETE and numerator:
            rates.append(f"{denominator / numerator:g}")
    return f" at {', '.join(rates)} Hz" if rates else ""


def _entries(ioctl: Ioctl, handle: int, request: int, size: int, asked: tuple[int, ...]) -> Iterator[bytearray]:
    """Entries 0, 1, ... of a list, until the kernel says there is no more. `asked`: offset, then 32-bit numbers."""
    for index in range(_MOST):
        entry = bytearray(size)
        struct.pack_into("<I", entry, 0, index)
        struct.pack_into(f"<{len(asked) - 1}I", entry, asked[0], *asked[1:])
        try:
            ioctl(handle, request, entry)
        except OSError:
            return
        yield entry
