"""Point 6 of the conformance list, and what else a client must do."""

import threading
import time

import pytest
import zmq

from proto.errors import BadMessage, RemoteError, RequestTimeout
from proto.groot import encode
from services.policy import PolicyClient
from so101.config import load_config
from tests.proto.groot.peer import peer_observation

SMALL = peer_observation(height=2, width=2)


class Scripted:
    """A REP socket that answers with what it is given; None: never."""

    def __init__(self, *replies):
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.bind("tcp://127.0.0.1:0")
        self.endpoint = self._socket.last_endpoint.decode()
        self.requests, self._replies, self._stop = [], list(replies), False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._stop:
            if self._socket.poll(20):
                *envelope, request = self._socket.recv_multipart()
                self.requests.append(request)
                reply = self._replies.pop(0)
                if reply is not None:
                    parts = reply if isinstance(reply, list) else [reply]
                    self._socket.send_multipart([*envelope, *parts])

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._stop = True
        self._thread.join()
        self._context.destroy(linger=0)


def test_6_a_timeout_rebuilds_the_socket_and_repeats_nothing():
    with (
        Scripted(None, encode([{}, {"n": 2}])) as server,
        PolicyClient(endpoint=server.endpoint, timeout_ms=50) as client,
    ):
        with pytest.raises(RequestTimeout, match=rf"{server.endpoint}: no answer to get_action within 50 ms"):
            client.get_action(SMALL)
        client.timeout_ms = 20_000
        assert client.get_action(SMALL) == ({}, {"n": 2})
        assert len(server.requests) == 2


def test_6_a_client_without_a_server_ends_in_time_and_leaves_nothing():
    began = time.monotonic()
    with PolicyClient("127.0.0.1", 1, timeout_ms=50) as client:
        assert client.ping() is False and client.ping(timeout_ms=60) is False
        assert client._connect().linger == 0
    assert time.monotonic() - began < 10  # a hang would be for ever


@pytest.mark.parametrize("timeout_ms", [0, -1, -1000, 0.5, None, True, "15000"])
def test_6_a_timeout_must_be_one(timeout_ms):
    with pytest.raises(ValueError, match="timeout_ms is .*; it must be a whole number"):
        PolicyClient(timeout_ms=timeout_ms)
    if timeout_ms is not None:  # None: the client's own
        with pytest.raises(ValueError, match="whole number"), PolicyClient() as client:
            client.ping(timeout_ms=timeout_ms)


def test_6_it_finds_a_server_that_comes_later(tmp_path):
    endpoint = f"ipc://{tmp_path}/later"
    with PolicyClient(endpoint=endpoint, timeout_ms=50) as client:
        assert client.ping() is False
        with zmq.Context() as context, context.socket(zmq.REP) as server:
            server.bind(endpoint)
            thread = threading.Thread(target=lambda: (server.recv(), server.send(encode({"status": "ok"}))))
            thread.start()
            assert client.ping(timeout_ms=20_000)
            thread.join()


@pytest.mark.parametrize(
    ("reply", "error", "text"),
    [
        (b"ERROR", RemoteError, "get_action failed; the server is too old to say why"),
        (encode({"error": "'front'"}), RemoteError, "^'front'$"),
        (encode({"error": ""}), RemoteError, "^$"),
        (encode({"action": 1}), BadMessage, "answered with dict, not"),
        (encode([{}, {}, {}]), BadMessage, "answered with list, not"),
        (b"\x80\x04\x95.", BadMessage, "reply to get_action cannot be read"),
        (b"", BadMessage, "cannot be read: truncated"),
        ([b"\xc0", b"\xc0"], BadMessage, "a reply is one frame, got 2"),
    ],
)
def test_a_reply_that_is_none_is_an_error(reply, error, text):
    with Scripted(reply, encode({"status": "ok"})) as server, PolicyClient(endpoint=server.endpoint) as client:
        with pytest.raises(error, match=text):
            client.get_action(SMALL)
        assert client.ping()  # the same connection goes on


def test_a_modality_that_is_none_is_an_error():
    with Scripted(encode({}), encode({"video": 1})) as server, PolicyClient(endpoint=server.endpoint) as client:
        with pytest.raises(BadMessage, match="no video, state, action, language modality .it sent: nothing"):
            client.modality  # noqa: B018
        with pytest.raises(BadMessage, match="it sent: video"):
            client.modality  # noqa: B018


def test_a_batch_is_nothing_for_n15():
    with (
        PolicyClient(wire="w1") as client,
        pytest.raises(BadMessage, match=r"batch of 1 for N1.5 \(w1\), got \(2, 1, 48"),
    ):
        client.get_action(peer_observation(batch=2))


def test_the_configuration_names_the_server():
    config = load_config(overrides=["deploy.client.host='::1'", "deploy.client.port=5999", "deploy.client.wire=w3"])
    client = PolicyClient.from_config(config, "token")
    assert (client.endpoint, client.timeout_ms, client.wire) == ("tcp://[::1]:5999", 15000, "w3")
