"""Packets are found in any stream of bytes."""

from __future__ import annotations

import numpy as np
import pytest

from so101.robot.virtual.packets import Packet, Parser, checksum, pack


def _random_packets(rng: np.random.Generator, count: int) -> list[Packet]:
    return [
        Packet(int(rng.integers(0, 255)), int(rng.integers(1, 256)), rng.bytes(int(rng.integers(0, 40))))
        for _ in range(count)
    ]


def _pieces(rng: np.random.Generator, data: bytes) -> list[bytes]:
    cuts = sorted(rng.integers(0, len(data) + 1, 30).tolist())
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_packed_is_found_however_the_bytes_arrive(seed):
    rng = np.random.default_rng(seed)
    packets, parser = _random_packets(rng, 20), Parser()
    stream = b"".join(pack(*packet) for packet in packets)
    found = [packet for piece in _pieces(rng, stream) for packet in parser.feed(piece)]
    assert found == packets
    assert parser.waiting == parser.skipped == 0


@pytest.mark.parametrize("seed", range(20))
def test_garbage_between_packets_is_skipped_and_counted(seed):
    rng = np.random.default_rng(seed)
    packets, parser, stream, garbage = _random_packets(rng, 20), Parser(), b"", 0
    for packet in packets:
        noise = bytes(rng.integers(0, 255, int(rng.integers(0, 30))).astype(np.uint8))  # no 0xff: no false header
        garbage += len(noise)
        stream += noise + pack(*packet)
    assert [packet for piece in _pieces(rng, stream) for packet in parser.feed(piece)] == packets
    assert parser.skipped == garbage


def test_a_packet_after_a_wrong_checksum_or_a_stray_header_is_found():
    good = pack(1, 1)
    wrong = good[:-1] + bytes([good[-1] ^ 1])
    for before in (wrong, b"\xff", b"\xff\xff", b"\xff\xff\xff", good[:3], b"\xff\xff\x01\x00"):
        parser = Parser()
        assert list(parser.feed(before + good)) == [Packet(1, 1, b"")], before
        assert parser.skipped == len(before)


def test_silence_ends_a_packet_that_never_comes():
    parser = Parser()
    assert list(parser.feed(b"\xff\xff\x01\x20")) == []  # announces 32 bytes
    parser.clear()
    assert list(parser.feed(pack(1, 1))) == [Packet(1, 1, b"")]


def test_the_makers_example_of_a_ping():
    assert pack(1, 1) == bytes.fromhex("ffff010201fb")
    assert checksum(bytes([1, 2, 1])) == 0xFB
