"""Messages no GR00T peer should send, made from good ones. Seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgpack


def bad_messages(good: Sequence[bytes], count: int, seed: int = 0) -> Iterator[bytes]:
    """`count` messages, most of them malformed; a mutation of a good one may by chance be good still."""
    draw = random.Random(seed)
    kinds = (_noise, _truncated, _flipped, _spliced, _claims, _deep, _wrong_types, _arrays, _other_generation, _padded)
    for number in range(count):
        yield kinds[number % len(kinds)](draw, draw.choice(good))


def _noise(draw, message):
    return draw.randbytes(draw.choice((0, 1, 5, 64, 2048)))


def _truncated(draw, message):
    return message[: draw.randrange(len(message) + 1)]


def _flipped(draw, message):
    changed = bytearray(message)
    for _ in range(draw.randrange(1, 9)):
        changed[draw.randrange(min(len(changed), 400))] = draw.randrange(256)
    return bytes(changed)


def _spliced(draw, message):
    at, length = draw.randrange(len(message)), draw.randrange(1, 64)
    return message[:at] + draw.randbytes(draw.randrange(64)) + message[at + length :]


def _claims(draw, message):
    """A length of gigabytes somewhere."""
    code = draw.choice((b"\xc6", b"\xdb", b"\xdd", b"\xdf", b"\xc9"))
    return message[: draw.randrange(min(len(message), 200))] + code + draw.choice((b"\xff" * 4, b"\x7f\xff\xff\xff"))


def _deep(draw, message):
    return draw.choice((b"\x91", b"\x81\xa1a")) * draw.choice((17, 1000, 30_000)) + b"\xc0"


def _wrong_types(draw, message):
    anything = draw.choice((None, 1, -1.5, "text", b"bin", [], {}, [[]], True, 2**64 - 1, {"error": "x"}))
    request = draw.choice(
        (
            anything,
            {"endpoint": anything},
            {"endpoint": "get_action", "data": anything},
            {"endpoint": "get_action", "data": {"observation": anything, "options": anything}},
            {"endpoint": "get_action", "data": {"observation": {"video": anything, "state": {}, "language": anything}}},
            {"endpoint": "reset", "data": {"options": anything, "more": anything}},
            {"endpoint": "reset", "data": {"options": {"episode_index": anything}}},
            {"endpoint": "x" * draw.choice((1, 70_000)), "data": anything},
            {"endpoint": "ping", "api_token": anything},
        )
    )
    return msgpack.packb(request)


def _arrays(draw, message):
    head = draw.choice(
        (
            "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (99999999999, 99999999999), }",
            "{'descr': '<U9', 'fortran_order': False, 'shape': (), }",
            "(" * 500,
            "{}",
        )
    ).encode()
    file = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + draw.randbytes(8)
    file = draw.choice((file, b"PK\x03\x04" + file, draw.randbytes(20)))
    array = {"__ndarray_class__": draw.choice((True, False, None)), draw.choice(("as_npy", "npy")): file}
    old = {b"nd": True, b"type": draw.choice(("|O", "<f4", "O8", 4)), b"kind": b"O", b"shape": [2**62], b"data": file}
    return msgpack.packb({"endpoint": "get_action", "data": draw.choice((array, old, [array], {"observation": old}))})


def _other_generation(draw, message):
    """Pickles of N1 (w0), the reply of a dead server, HTTP, another library's header."""
    return draw.choice(
        (b"\x80\x04\x95\x0c\x00.", b"ERROR", b"GET / HTTP/1.1\r\n\r\n", b"\x92\x63\xa4Ping", b"\x92\x01")
    )


def _padded(draw, message):
    return message + draw.randbytes(draw.choice((1, 100, 100_000)))
