"""Messages no peer should send: noise, mutations of good ones, other versions, sizes and shapes. Seeded."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

import msgpack

from proto import PROTOCOL_VERSION


def bad_frames(good: Sequence[Sequence[bytes]], count: int, seed: int = 0) -> Iterator[list[bytes]]:
    """`count` lists of frames, most of them malformed; a mutation of a good message may by chance be good still.

    Args:
        good: messages as `proto.codec.encode` gives them, to mutate.
    """
    draw = random.Random(seed)
    bases = [[bytes(frame) for frame in frames] for frames in good]
    kinds = (_noise, _truncated, _flipped, _reheaded, _reshaped, _extra, _missing, _deep, _huge_claims, _wrong_fields)
    for number in range(count):
        yield kinds[number % len(kinds)](draw, list(draw.choice(bases)))


def _noise(draw, frames):
    return [draw.randbytes(draw.choice((0, 1, 7, 64, 1024))) for _ in range(draw.randrange(0, 6))]


def _truncated(draw, frames):
    which = draw.randrange(len(frames))
    frames[which] = frames[which][: draw.randrange(len(frames[which]) + 1)]
    return frames


def _flipped(draw, frames):
    which = draw.randrange(len(frames))
    changed = bytearray(frames[which])
    for _ in range(draw.randrange(1, 9)):
        if changed:
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    frames[which] = bytes(changed)
    return frames


def _reheaded(draw, frames):
    version = draw.choice((0, PROTOCOL_VERSION + 1, -1, 2**63, "1", None, 1.5))
    name = draw.choice(("", "Nothing", "x" * 10_000, "Message", "__class__"))
    header = draw.choice(((version, "Ping"), (PROTOCOL_VERSION, name), (PROTOCOL_VERSION,), {}, [], [[[]]]))
    return [msgpack.packb(header), *frames[1:]]


def _reshaped(draw, frames):
    """Arrays that claim a shape, dtype or frame they do not have."""
    claim = draw.choice(
        (
            [0, "|O", [1]],
            [0, "<f8", [-1]],
            [0, "<f8", [2**62, 2**62]],
            [99, "|u1", [0]],
            [-1, "|u1", [1]],
            [0, "<U4", [1]],
            [0, "<f4", [1] * 50],
            [0, "x" * 9999, [1]],
            [0, "<f8,<i4", [1]],
            [True, "|u1", [True]],
            "array",
            None,
            [],
        )
    )
    try:
        body = msgpack.unpackb(frames[1])
    except ValueError:
        return _noise(draw, frames)
    for key in body:
        if draw.random() < 0.5:
            body[key] = claim
    return [frames[0], msgpack.packb(body), *frames[2:]]


def _extra(draw, frames):
    return [*frames, *[draw.randbytes(8) for _ in range(draw.choice((1, 3, 100)))]]


def _missing(draw, frames):
    del frames[draw.randrange(len(frames))]
    return frames


def _deep(draw, frames):
    return [frames[0], draw.choice((b"\x91", b"\x81\xa1a")) * draw.choice((100, 5000, 100_000)) + b"\xc0", *frames[2:]]


def _huge_claims(draw, frames):
    """Lengths of gigabytes in front of nothing."""
    mark = draw.choice((0xDB, 0xC6, 0xDD, 0xDF))  # str32, bin32, array32, map32
    return [frames[0], bytes([mark]) + struct.pack(">I", draw.choice((2**31, 2**32 - 1, 10**6))), *frames[2:]]


def _wrong_fields(draw, frames):
    name = draw.choice(("a", "code", "q_rad", "", "__init__"))
    value = draw.choice((None, 1e308, float("nan"), -(2**63), "x" * 5000, {}))
    return [frames[0], msgpack.packb({name: value}), *frames[2:]]
