"""Ten thousand messages that nobody should send: an error each, in words, and nothing else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proto.errors import BadMessage
from proto.groot import ActionConfig, ModalityConfig, decode, encode

from .fuzz import bad_messages
from .peer import peer_observation

REQUEST = {"endpoint": "get_action", "data": {"observation": peer_observation(height=4, width=4), "options": None}}
CONFIG = {"action": ModalityConfig((0, 1), ("arm",), action_configs=(ActionConfig(),))}
GOOD = [encode(message, wire) for message in (REQUEST, CONFIG, {"endpoint": "ping"}) for wire in ("w1", "w2", "w3")]


def test_ten_thousand_bad_messages_are_refused_in_words():
    refused = 0
    for message in bad_messages(GOOD, 10_000):
        try:
            decode(message)
        except BadMessage as error:
            refused += 1
            assert 10 < len(str(error)) < 500
    assert refused > 6000  # the rest is well formed, and for the server to refuse
    for message in GOOD:
        decode(message)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_an_error(message):
    try:
        decode(message)
    except BadMessage:
        pass


@given(st.binary(max_size=400))
def test_any_bytes_as_a_file_are_an_array_or_an_error(file):
    try:
        found = decode(encode({"__ndarray_class__": True, "as_npy": file})).value
    except BadMessage:
        return
    assert isinstance(found, np.ndarray)
