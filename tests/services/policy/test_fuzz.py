"""Ten thousand messages that nobody should send, at the socket: no crash, memory flat, the next good request served."""

import msgpack
import pytest
import zmq

from proto.groot import encode
from services.policy import PolicyClient
from tests.memory import STATM, resident_kib
from tests.proto.groot.fuzz import bad_messages
from tests.proto.groot.peer import peer_observation

from .fakes import StatePolicy, served

SMALL = peer_observation(height=4, width=4)
REQUEST = {"endpoint": "get_action", "data": {"observation": SMALL, "options": None}}
GOOD = [encode(REQUEST, wire) for wire in ("w2", "w3")] + [encode({"endpoint": "ping"})]

COUNT = 10_000
GROWTH_MB = 32  # of 10,000 messages; each kept message would be 250 MB, each kept array more


@pytest.mark.skipif(not STATM.exists(), reason="memory is read from /proc")
def test_ten_thousand_bad_messages_leave_the_server_as_it_was():
    policy = StatePolicy()
    with served(policy) as server, zmq.Context() as context, context.socket(zmq.REQ) as bad:
        bad.linger, bad.rcvtimeo = 0, 20_000
        bad.connect(server.endpoint)
        with PolicyClient(endpoint=server.endpoint) as client:
            before, refused = None, 0
            for number, message in enumerate(bad_messages(GOOD, COUNT, seed=1)):
                bad.send(message)
                reply = msgpack.unpackb(bad.recv())
                refused += isinstance(reply, dict) and set(reply) == {"error"} and 0 < len(reply["error"]) <= 2000
                if number % 1000 == 500:
                    assert client.get_action(SMALL)[0]["gripper"].shape == (1, 16, 1)
                    before = before or resident_kib() / 1024
            grown = resident_kib() / 1024 - before
            stats = client.stats()
    assert refused > 8000 and grown < GROWTH_MB
    assert stats["errors"] == refused and stats["queued"] == 0
