import threading

import msgpack
import numpy as np
import pytest
import zmq

from proto.errors import RemoteError, RequestTimeout
from proto.groot import encode
from services.policy import PolicyClient, PolicyServer
from so101.policies import Modality
from tests.proto.groot.peer import PeerClient, peer_observation

from .fakes import MODALITY, SETTINGS, StatePolicy, served, wait_until

SMALL = peer_observation(height=2, width=2)
REQUEST = encode({"endpoint": "get_action", "data": {"observation": SMALL}})


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


def dealer(context, endpoint, **options):
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    for name, value in options.items():
        setattr(socket, name, value)
    socket.connect(endpoint)
    return socket


def ask_later(client):
    """Ask on a thread; the result is in the list returned, once it ended."""
    found = []

    def ask():
        try:
            found.append(client.get_action(SMALL))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, found


def test_a_busy_policy_keeps_nobody_from_a_ping():
    policy = StatePolicy()
    policy.gate.clear()
    with (
        served(policy) as server,
        PolicyClient(endpoint=server.endpoint) as a,
        PolicyClient(endpoint=server.endpoint) as b,
    ):
        thread, found = ask_later(a)
        wait_until(lambda: policy.asked)
        assert b.ping() and b.modality.horizon == 16
        with pytest.raises(RemoteError, match="kill is not allowed"):
            b.kill()
        assert not found
        policy.gate.set()
        thread.join(20)
        assert found[0][1] == {"number": 1}


def test_a_request_past_its_deadline_is_told_and_not_computed():
    policy = StatePolicy()
    policy.gate.clear()
    with served(policy, deadline_ms=50) as server:
        with PolicyClient(endpoint=server.endpoint) as first, PolicyClient(endpoint=server.endpoint) as second:
            thread, found = ask_later(first)
            wait_until(lambda: policy.asked)
            with pytest.raises(RemoteError, match="ms for the policy, longer than the deadline of 50 ms; not computed"):
                second.get_action(SMALL)  # answered although the policy still thinks about the other
            policy.gate.set()
            thread.join(20)
            assert found[0][1] == {"number": 1}
            assert len(policy.asked) == 1 and second.stats()["expired"] == 1


def test_a_client_that_asks_anew_is_not_answered_twice():
    """Our client keeps its name over connections: what it no longer waits for is not computed."""
    policy = StatePolicy()
    policy.gate.clear()
    with served(policy) as server, PolicyClient(endpoint=server.endpoint) as other:
        thread, found = ask_later(other)
        wait_until(lambda: policy.asked)
        with PolicyClient(endpoint=server.endpoint, timeout_ms=60) as client:
            for _ in range(3):
                with pytest.raises(RequestTimeout):
                    client.get_action(SMALL)
            client.timeout_ms = 20_000
            again, answer = ask_later(client)
            wait_until(lambda: server.counters.superseded == 3)
            policy.gate.set()
            again.join(20)
            thread.join(20)
        assert len(policy.asked) == 2 and answer[0][1] == {"number": 2}


def test_a_late_reply_is_never_taken_for_another():
    policy = StatePolicy()
    policy.gate.clear()
    with served(policy) as server, PolicyClient(endpoint=server.endpoint, timeout_ms=60) as client:
        with pytest.raises(RequestTimeout, match="no answer to get_action within 60 ms"):
            client.get_action(SMALL)
        wait_until(lambda: policy.asked)
        policy.gate.set()
        client.timeout_ms = 20_000
        for number in range(2, 6):
            observation = {**SMALL, "state": {k: np.full_like(v, number) for k, v in SMALL["state"].items()}}
            action, info = client.get_action(observation)
            assert info == {"number": number} and action["gripper"][0, 0, 0] == number


def test_a_dealer_that_floods_is_served_its_newest(context):
    policy = StatePolicy()
    policy.gate.clear()
    with served(policy) as server:
        flood = dealer(context, server.endpoint, rcvtimeo=20_000)
        with PolicyClient(endpoint=server.endpoint) as client:
            flood.send(REQUEST)
            wait_until(lambda: policy.asked)
            for _ in range(20):
                flood.send(REQUEST)
            thread, found = ask_later(client)
            wait_until(lambda: server.counters.superseded == 19 and server._queue.length == 2)
            policy.gate.set()
            thread.join(20)
            replies = []
            while len(replies) + server.counters.dropped < 21:  # it reads nothing meanwhile: not all replies find room
                replies.append(msgpack.unpackb(flood.recv()))
    assert all("superseded" in reply["error"] for reply in replies if isinstance(reply, dict))
    assert isinstance(replies[-1], list) and replies[-1][1]["number"] in (2, 3)  # the newest was computed
    assert len(policy.asked) == 3 and isinstance(found[0], tuple)


def test_a_client_that_does_not_read_delays_nobody(context, tmp_path):
    """Its replies fill the socket's buffers; then they are dropped and counted."""
    large = Modality(MODALITY.video, MODALITY.state, MODALITY.action, MODALITY.language, horizon=50_000)
    with (
        served(StatePolicy(large), endpoint=f"ipc://{tmp_path}/policy") as server,
        PolicyClient(endpoint=server.endpoint) as client,
    ):
        slow = dealer(context, server.endpoint, rcvhwm=1, sndtimeo=20_000)
        for _ in range(60):
            slow.send(msgpack.packb({"endpoint": "get_modality_config"}))
            assert client.ping()
        wait_until(lambda: server.counters.requests["get_modality_config"] == 60)
        assert server.counters.dropped > 0
        assert client.stats()["dropped"] == server.counters.dropped


def test_a_quick_client_gets_every_reply_with_room_for_one():
    """ZeroMQ counts late what a peer has read; a reply must not be dropped for that."""
    with (
        served(StatePolicy(), high_water=1) as server,
        PolicyClient(endpoint=server.endpoint, timeout_ms=5000) as client,
    ):
        assert all(client.ping() for _ in range(500))
        assert server.counters.dropped == 0


def test_a_client_that_dies_delays_nobody(context):
    policy = StatePolicy()
    with served(policy) as server, PolicyClient(endpoint=server.endpoint) as client:
        policy.gate.clear()
        for number in range(5):
            dead = dealer(context, server.endpoint)
            dead.send(REQUEST)
            wait_until(lambda n=number: server.counters.requests["get_action"] == n + 1)
            dead.close(linger=0)
        policy.gate.set()
        assert client.get_action(SMALL)[1] == {"number": 6}
        wait_until(lambda: server.counters.dropped == 5)


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([b"", REQUEST, b"more"], "a message is one frame, got 2"),
        ([b"one", b"two"], "a message is one frame, got 2"),
        ([b"", b""], "truncated"),
        ([b""], "got 0"),
        ([b"x"] * 40, "got 40"),
    ],
)
def test_a_message_in_the_wrong_frames_is_answered(context, frames, text):
    with served(StatePolicy()) as server:
        socket = dealer(context, server.endpoint, rcvtimeo=20_000)
        socket.send_multipart(frames)
        assert text in msgpack.unpackb(socket.recv_multipart()[-1])["error"]
        assert PolicyClient(endpoint=server.endpoint).ping()


def test_a_full_queue_refuses():
    policy = StatePolicy()
    policy.gate.clear()
    with served(policy, max_queued=1) as server:
        clients = [PolicyClient(endpoint=server.endpoint) for _ in range(3)]
        thread, _ = ask_later(clients[0])
        wait_until(lambda: policy.asked)
        waiting, _ = ask_later(clients[1])
        wait_until(lambda: server._queue.length == 1)
        with pytest.raises(RemoteError, match="the server is busy: 1 requests"):
            clients[2].get_action(SMALL)
        assert clients[2].stats()["refused"] == 1 and clients[2].stats()["queued"] == 1
        policy.gate.set()
        thread.join(20)
        waiting.join(20)


def test_a_stop_tells_those_who_wait():
    policy = StatePolicy()
    policy.gate.clear()
    server = PolicyServer(policy, "tcp://127.0.0.1:0", SETTINGS).start()
    with PolicyClient(endpoint=server.endpoint) as first, PolicyClient(endpoint=server.endpoint) as second:
        thread, found = ask_later(first)
        wait_until(lambda: policy.asked)
        waiting, told = ask_later(second)
        wait_until(lambda: server._queue.length == 1)
        threading.Timer(0.1, policy.gate.set).start()
        server.close()
        thread.join(20)
        waiting.join(20)
    assert found[0][1] == {"number": 1}  # it was being computed
    assert "the server is stopping" in str(told[0])


def test_checks_can_be_left_out():
    class Any(StatePolicy):
        def get_action(self, observation, options=None):
            return super().get_action({"state": SMALL["state"]}, options)

    with served(Any(), strict=False) as server, PeerClient(server.endpoint) as client:
        action, _ = client.get_action(None, {"batch_size": 1})
        assert action["gripper"].shape == (1, 16, 1)


def test_a_taken_address_is_an_error_that_names_it():
    with served(StatePolicy()) as server:
        with pytest.raises(OSError, match=f"cannot bind {server.endpoint}: Address already in use"):
            PolicyServer(StatePolicy(), server.endpoint, SETTINGS)


def test_it_serves_on_ipc(tmp_path):
    with served(StatePolicy(), endpoint=f"ipc://{tmp_path}/policy") as server:
        assert PolicyClient(endpoint=server.endpoint).get_action(SMALL)[1] == {"number": 1}


def test_stats_count():
    with served(StatePolicy()) as server, PolicyClient(endpoint=server.endpoint) as client:
        client.get_action(SMALL)
        client.get_action(SMALL)
        with pytest.raises(RemoteError):
            client.request("nothing")
        stats = client.stats()
    assert stats["requests"] == {"get_action": 2, "malformed": 1, "stats": 1}
    assert (stats["errors"], stats["queued"], stats["policy"]) == (1, 0, "StatePolicy")
    assert 0 <= stats["queue_ms"]["p50"] <= stats["queue_ms"]["max"] and stats["infer_ms"]["last"] > 0
