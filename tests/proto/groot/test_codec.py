import io

import hypothesis.extra.numpy as arrays
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.errors import BadMessage, TooLarge
from proto.groot import ActionConfig, Limits, ModalityConfig, decode, encode

from .peer import CONFIG_FIELDS, PeerConfig, PeerSerialiser, peer_observation

NUMBERS = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(endianness="?"),
    arrays.unsigned_integer_dtypes(endianness="?"),
    arrays.floating_dtypes(endianness="?"),
)
ARRAYS = arrays.arrays(NUMBERS, arrays.array_shapes(min_dims=0, min_side=0, max_dims=5, max_side=4))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40), inner, max_size=20),
    max_leaves=40,
).filter(lambda value: "__ndarray_class__" not in str(value) and "nd" not in str(value))
ACTION = ModalityConfig(
    tuple(range(16)), ("arm", "jaw"), action_configs=(ActionConfig("RELATIVE"), ActionConfig(state_key="jaw"))
)


@given(VALUES)
def test_plain_values_read_and_write_as_msgpack_does(value):
    assert encode(value) == msgpack.packb(value)
    assert decode(msgpack.packb(value)).value == value


def test_1_golden_bytes():
    ping = bytes.fromhex("81a8656e64706f696e74a470696e67")
    pong = bytes.fromhex("82a6737461747573a26f6ba76d657373616765b15365727665722069732072756e6e696e67")
    assert encode({"endpoint": "ping"}) == ping and decode(ping).value == {"endpoint": "ping"}
    assert encode({"status": "ok", "message": "Server is running"}) == pong
    assert encode(None) == b"\xc0" and decode(b"\xc0").value is None


@given(ARRAYS, st.booleans())
def test_2_an_array_is_the_file_numpy_saves_and_comes_back(array, transposed):
    array = array.T if transposed else array
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    message = encode(array)
    assert message == msgpack.packb({"__ndarray_class__": True, "as_npy": file.getvalue()})
    if array.dtype.itemsize > 8:  # long double: its bytes differ between machines
        with pytest.raises(BadMessage):
            decode(message)
        return
    back = decode(message).value
    assert back.dtype == array.dtype and back.shape == array.shape
    assert back.tobytes() == array.tobytes() and back.flags.aligned


@pytest.mark.parametrize("wire", ["w1", "w2", "w3"])
def test_2_messages_of_both_sides_are_the_same_bytes_and_read_alike(wire):
    peer = PeerSerialiser(wire)
    message = {"endpoint": "get_action", "data": {"observation": peer_observation(), "options": None}}
    ours = encode(message, wire)
    assert ours == peer.pack(message)
    for found in (peer.unpack(ours), decode(peer.pack(message)).value):
        np.testing.assert_equal(found, message)


def test_2_strided_arrays_and_numpy_scalars_travel():
    strided = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::3]
    found = decode(encode({"a": strided, "b": np.float32(0.5), "c": np.bool_(True), "d": np.int64(-7)})).value
    np.testing.assert_array_equal(found["a"], strided)
    assert (found["b"], found["c"], found["d"]) == (0.5, True, -7)


def test_pictures_are_read_where_they_lie_and_cannot_be_written():
    message = encode({"image": np.arange(48, dtype=np.uint8).reshape(4, 4, 3)})
    image = decode(message).value["image"]
    assert np.shares_memory(image, np.frombuffer(message, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        image[0] = 1


@pytest.mark.parametrize("wire", ["w1", "w2", "w3"])
def test_5_a_modality_has_five_fields_and_upper_case_names(wire):
    found = PeerSerialiser(wire).unpack(encode({"action": ACTION}, wire))["action"]
    assert isinstance(found, PeerConfig) and set(found.fields) == CONFIG_FIELDS
    assert [config["rep"] for config in found.fields["action_configs"]] == ["RELATIVE", "ABSOLUTE"]
    assert found.fields["delta_indices"] == list(range(16))
    assert decode(encode(ACTION, wire)) == (ACTION, wire)


@pytest.mark.parametrize("wire", ["w1", "w2", "w3"])
def test_5_a_modality_of_the_peer_is_read(wire):
    found = decode(PeerSerialiser(wire).pack(PeerConfig(delta_indices=[-1, 0], modality_keys=["front"])))
    assert found == (ModalityConfig((-1, 0), ("front",)), wire)


def test_5_enumerations_are_read_in_lower_case_and_nothing_else():
    fields = {"delta_indices": [0], "modality_keys": ["arm"]}
    config = {"rep": "absolute", "type": "non_eef", "format": "default", "state_key": None}

    def message(**change):
        return msgpack.packb({"__ModalityConfig_class__": True, "as_json": fields | change})

    assert decode(message(action_configs=[config])).value.action_configs == (ActionConfig(),)
    with pytest.raises(BadMessage, match="rep is 'sideways'; it must be RELATIVE, DELTA, ABSOLUTE"):
        decode(message(action_configs=[config | {"rep": "sideways"}]))
    with pytest.raises(BadMessage, match="delta_indices must be a list of int"):
        decode(message(delta_indices=["0"]))
    with pytest.raises(BadMessage, match="a string, but no JSON"):
        decode(msgpack.packb({"__ModalityConfig_class__": True, "as_json": "{"}))


@pytest.mark.parametrize("wire", ["w2", "w3"])
@pytest.mark.parametrize("array", [np.array([{}, []], object), np.array(["text"]), np.zeros(2, complex)])
def test_10_nothing_but_numbers_is_written(array, wire):
    with pytest.raises(TypeError, match="only numbers and booleans can"):
        encode({"a": array}, wire)


def npy(header, data=b""):
    head = header.encode()
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + data


def w2(file):
    return msgpack.packb({"__ndarray_class__": True, "as_npy": file})


def saved(array, **more):
    file = io.BytesIO()
    np.save(file, array, **more)
    return file.getvalue()


def zipped(array):
    file = io.BytesIO()
    np.savez(file, a=array)
    return file.getvalue()


GOOD = saved(np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (saved(np.array([{}], object), allow_pickle=True), "is none of an array of numbers"),
        (zipped(np.zeros(3)), "starts with b'PK"),
        (b"", "starts with b''"),
        (b"\x93NUMPY\x09\x00" + GOOD[8:], "version 09.00"),
        (GOOD[:-1], r"shape \(2, 3\) and dtype float32 needs 24 bytes, 23 are there"),
        (GOOD + b"x", "needs 24 bytes, 25 are there"),
        (GOOD[:40], "a header of 118 bytes is not there"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"), "needs 7378697"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 30 + ",), }"), "out of all proportion"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0,0,0,0,0,0,0,0,0), }"), "9 dimensions, at most 8"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1 2,), }"), "is none of an array"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"), "is none of an array"),
        (npy("{'descr': '<f4', 'descr': '<f4', 'shape': (1,), }"), "is none of an array"),
        (npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }"), "is none of an array"),
        (npy("__import__('os')"), "is none of an array"),
        (npy("{'descr': '<f4'," + " " * 900 + "'fortran_order': False, 'shape': (1,)}!"), "is none of an array"),
        (npy(" " * 2000), "header of 2000 bytes, at most 1024"),
        ("text", "'as_npy' must be binary, got str"),
        (None, "'as_npy' must be binary, got NoneType"),
    ],
)
def test_10_a_file_that_is_no_array_of_numbers_is_refused(file, text):
    with pytest.raises(BadMessage, match=text):
        decode(w2(file))


def test_10_a_header_in_another_order_or_spacing_is_read():
    for header in (
        "{'shape': (2,), 'fortran_order': False, 'descr': '<i2'}",
        "{ 'fortran_order':False ,'shape' : (2 , ), 'descr':'<i2' , }  \n",
    ):
        np.testing.assert_array_equal(decode(w2(npy(header, b"\1\0\2\0"))).value, [1, 2])
    long = b"\x93NUMPY\x02\x00" + len(GOOD[10:128]).to_bytes(4, "little") + GOOD[10:]
    assert decode(w2(long)).value.shape == (2, 3)


W3 = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2], b"data": bytes(8)}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({b"kind": b"O"}, "kind b'O'"),
        ({b"kind": b"V", b"type": [["a", "<f4"]]}, "kind b'V'"),
        ({b"type": "|O"}, r"dtype '\|O'"),
        ({b"type": "f4,f4"}, "dtype 'f4,f4'"),
        ({b"type": "(2,)f4"}, "dtype"),
        ({b"type": "nonsense"}, "dtype 'nonsense'"),
        ({b"type": 4}, "kind b''"),
        ({b"shape": [3]}, "needs 12 bytes, 8 are there"),
        ({b"shape": [-2]}, "shape must be a list of sizes"),
        ({b"shape": [True]}, "shape must be a list of sizes"),
        ({b"shape": [0] * 9}, "9 dimensions"),
        ({b"data": "text"}, "'data' must be binary"),
    ],
)
def test_10_a_w3_array_that_is_none_of_numbers_is_refused(change, text):
    with pytest.raises(BadMessage, match=text):
        decode(msgpack.packb(W3 | change))


def test_11_the_generation_of_a_message_is_told():
    state = {"a": np.zeros(2, np.float32)}
    assert decode(encode(state, "w2")).wire == decode(encode(state, "w1")).wire == "w2"  # their arrays are the same
    assert decode(encode(state, "w3")).wire == "w3"
    assert decode(encode({"endpoint": "ping"})).wire is None


def test_11_keys_of_a_w3_array_may_be_text_or_binary():
    for message in (W3, {key.decode(): value for key, value in W3.items()}):
        np.testing.assert_array_equal(decode(msgpack.packb(message)).value, np.zeros(2, np.float32))


def test_11_a_w3_scalar_is_a_number():
    scalar = decode(msgpack.packb({b"nd": False, b"type": "<f8", b"data": np.float64(2.5).tobytes()})).value
    assert scalar == 2.5 and scalar.dtype == np.float64


def nested(depth):
    return b"\x91" * depth + b"\xc0"


@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        (b"", BadMessage, "truncated: a value at byte 0"),
        (b"\xc1", BadMessage, "code 0xc1"),
        (b"\xd4\x01\x00", BadMessage, "extension types"),
        (b"\xc0\xc0", BadMessage, "1 bytes too many"),
        (b"\xdb\xff\xff\xff\xff", BadMessage, "text at byte 5 needs 4294967295 bytes, 0 are left"),
        (b"\xc6\xff\xff\xff\xff", BadMessage, "binary data at byte 5 needs 4294967295"),
        (b"\xdd\xff\xff\xff\xff", BadMessage, "4294967295 elements announced"),
        (b"\xdf\xff\xff\xff\xff", BadMessage, "8589934590 elements announced"),
        (b"\xd9\x02\xff\xff", BadMessage, "not UTF-8"),
        (b"\x81\x01\xc0", BadMessage, "map key of type int"),
        (b"\x81\x90\xc0", BadMessage, "map key of type list"),
        (b"\x82\xa1a\xc0\xa1a\xc0", BadMessage, "'a' stands twice"),
        (nested(17), TooLarge, "nested deeper than 16"),
        (nested(50_000), TooLarge, "nested deeper than 16"),
        (b"\xdd\x00\x01\x86\xa0" + b"\xc0" * 100_000, TooLarge, "more than 100000 values"),
    ],
)
def test_what_is_wrong_with_a_message_is_said(message, error, text):
    with pytest.raises(error, match=text):
        decode(message)


def test_limits_are_those_given():
    message = encode({"a": np.zeros((2, 2))})
    assert decode(message, Limits(bytes=len(message))).value["a"].shape == (2, 2)
    with pytest.raises(TooLarge, match=f"message of {len(message)} bytes, at most {len(message) - 1}"):
        decode(message, Limits(bytes=len(message) - 1))
    with pytest.raises(TooLarge, match="2 dimensions, at most 1"):
        decode(message, Limits(dimensions=1))
    assert decode(nested(16)).value is not None


@pytest.mark.parametrize("wire", ["w1", "w2", "w3"])
def test_every_truncation_is_an_error(wire):
    message = encode({"endpoint": "get_action", "data": peer_observation(height=2, width=2), "m": ACTION}, wire)
    for length in range(len(message)):
        with pytest.raises(BadMessage):
            decode(message[:length])
