import subprocess
import sys

import hypothesis.extra.numpy as arrays
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto import PROTOCOL_VERSION
from proto.codec import MAX_FRAMES, decode, encode
from proto.errors import BadMessage, TooLarge, UnknownType, UnknownVersion
from proto.messages.base import Message
from proto.messages.common import Heartbeat, Ok, Ping, Pong

from .fuzz import bad_frames
from .sample import Sample, sample

NUMBERS = st.one_of(
    arrays.boolean_dtypes(), arrays.integer_dtypes(), arrays.unsigned_integer_dtypes(), arrays.floating_dtypes()
)


@given(arrays.arrays(NUMBERS, arrays.array_shapes(min_dims=0, min_side=0, max_dims=4, max_side=4)), st.booleans())
def test_decode_inverts_encode_for_any_array_of_numbers(array, transposed):
    array = array.T if transposed else array
    if array.dtype.itemsize > 8:  # long double: its bytes differ between machines
        return
    back = decode(encode(sample(image=array))).image
    assert back.shape == array.shape
    assert back.dtype == array.dtype.newbyteorder("<")
    np.testing.assert_array_equal(back, array)


def test_equal_messages_give_equal_bytes():
    one, two = (encode(sample(number=3, arrays={"q": np.zeros(6)})) for _ in range(2))
    assert [bytes(frame) for frame in one] == [bytes(frame) for frame in two]


def test_arrays_are_neither_copied_on_the_way_out_nor_in():
    message = sample()
    frames = encode(message)
    assert np.shares_memory(np.frombuffer(frames[2], np.uint8), message.image)
    received = bytes(frames[2])
    back = decode([*frames[:2], received]).image
    assert np.shares_memory(back, np.frombuffer(received, np.uint8))
    assert not back.flags.writeable


def test_the_frames_are_as_documented():
    header, body, image = encode(sample(number=7))
    assert msgpack.unpackb(header) == [PROTOCOL_VERSION, "Sample"]
    assert msgpack.unpackb(body) == {"image": [0, "|u1", [4, 5, 3]], "number": 7, "arrays": {}}
    assert bytes(image) == bytes(range(60))


@pytest.mark.parametrize("array", [np.array([None]), np.array(["a"]), np.array([1j]), np.zeros(2, "f4,i4")])
def test_what_is_no_number_does_not_travel(array):
    with pytest.raises(TypeError, match="only numbers and booleans travel"):
        encode(sample(image=array))


def framed(name, body, *more, version=PROTOCOL_VERSION):
    return [msgpack.packb((version, name)), msgpack.packb(body), *more]


@pytest.mark.parametrize(
    ("frames", "error", "text"),
    [
        ([], BadMessage, "2 to 66 frames"),
        ([b""] * (MAX_FRAMES + 3), BadMessage, "got 67"),
        ([b"", b""], BadMessage, "the first frame is no header"),
        (framed("Ping", {}, version=99), UnknownVersion, "protocol version 99, this side speaks 1"),
        (framed("Pang", {}), UnknownType, "unknown message type 'Pang'"),
        (framed("Pong", {}), BadMessage, "Pong: Object missing required field `service`"),
        (framed("Pong", {"service": "x", "uptime_s": -1.0}), BadMessage, ">= 0"),
        (framed("Ping", {"extra": 1}), BadMessage, "unknown field `extra`"),
        (framed("Ping", {}, b"stray"), BadMessage, "1 array frames, the body names 0"),
        (framed("Sample", {"image": [0, "|u1", [3]]}, b"ab"), BadMessage, "needs 3 bytes, its frame has 2"),
        (framed("Sample", {"image": [0, "|O", [1]]}, b"ab"), BadMessage, "dtype '|O'"),
        (framed("Sample", {"image": [0, "<f4", [0] * 9]}, b""), TooLarge, "9 dimensions, at most 8"),
        (framed("Sample", {"image": [1, "|u1", [1]]}, b"a"), BadMessage, "frame 1 is not there"),
        (framed("Sample", {"image": [0, "|u1", [2**62, 2**62]]}, b"a"), BadMessage, "its frame has 1"),
    ],
)
def test_each_fault_is_named(frames, error, text):
    with pytest.raises(error) as caught:
        decode(frames)
    assert type(caught.value) is error
    assert text in str(caught.value)


def test_a_frame_serves_one_array():
    image = [0, "|u1", [1]]
    with pytest.raises(BadMessage, match="used twice"):
        decode(framed("Sample", {"image": image, "arrays": {"again": image}}, b"a"))


def test_the_limit_counts_all_frames():
    frames = encode(sample())
    size = sum(memoryview(frame).nbytes for frame in frames)
    assert isinstance(decode(frames, size), Sample)
    with pytest.raises(TooLarge, match=f"message of {size} bytes, at most {size - 1}"):
        decode(frames, size - 1)


def test_no_bytes_make_decode_raise_anything_else():
    good = [encode(sample(arrays={"q": np.zeros(6)})), encode(Pong(service="x", uptime_s=1.0)), encode(Ping())]
    refused = 0
    for frames in bad_frames(good, 10_000, seed=1):
        try:
            decode(frames, 1 << 20)
        except BadMessage:
            refused += 1
    assert refused > 9_000  # the rest are mutations that happen to be messages


def test_messages_that_hold_nothing():
    for message in (Ping(), Ok(), Heartbeat()):
        assert decode(encode(message)) == message


def test_two_messages_cannot_share_a_name():
    with pytest.raises(TypeError, match="two messages are called Ping"):
        type("Ping", (Message,), {"__module__": "elsewhere"})


def test_the_wire_needs_nothing_of_the_robot():
    code = "import proto.sockets, sys; print({'so101', 'mujoco', 'torch', 'services'}.intersection(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
