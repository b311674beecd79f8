"""Section 14 of what is known of GR00T's protocol, point by point (1, 2, 5, 10 also in tests/proto/groot), with a peer
that shares no code with ours: its clients against our server, our client against its servers."""

import logging

import msgpack
import numpy as np
import pytest

from proto.errors import RemoteError, RequestTimeout
from proto.groot import ModalityConfig, encode
from services.policy import PolicyClient
from tests.proto.groot.peer import (
    PeerClient,
    PeerPolicy,
    PeerSerialiser,
    PeerServer,
    peer_observation,
    peer_observation_w1,
)

from .fakes import StatePolicy, served

PING = bytes.fromhex("81a8656e64706f696e74a470696e67")
PONG = bytes.fromhex("82a6737461747573a26f6ba76d657373616765b15365727665722069732072756e6e696e67")
STEPS = np.arange(16, dtype=np.float32)[:, None]


def assert_follows(action, observation):
    """Row k of the action is the state + k."""
    for key, state in observation["state"].items():
        np.testing.assert_array_equal(action[key], state + STEPS[None])
        assert action[key].dtype == np.float32


# Their client, our server


def test_1_ping_and_kill_are_the_golden_bytes():
    with served(StatePolicy(), allow_kill=True) as server:
        with PeerClient(server.endpoint) as client:
            assert client.raw(PING) == PONG
            assert client.raw(msgpack.packb({"endpoint": "kill"})) == b"\xc0"
        server._thread.join(10)
        assert not server._thread.is_alive()


@pytest.mark.parametrize(("wire", "early"), [("w2", False), ("w3", False), ("w3", True)])
def test_3_an_unmodified_client_gets_action_and_info(wire, early):
    observation = peer_observation(batch=2)
    with served(StatePolicy()) as server, PeerClient(server.endpoint, wire, early) as client:
        reply = client.call("get_action", {"observation": observation, "options": None})
        assert isinstance(reply, list) and len(reply) == 2 and reply[1] == {"number": 1}
        assert_follows(reply[0], observation)
        assert client.call("reset", {"options": None}) == {"resets": 1}


def test_3_an_unmodified_n15_client_gets_a_flat_map():
    observation = peer_observation_w1()
    policy = StatePolicy()
    with served(policy) as server, PeerClient(server.endpoint, "w1") as client:
        reply = client.call("get_action", observation)
        assert set(reply) == {"action.single_arm", "action.gripper"}
        state = observation["state.single_arm"].astype(np.float32)
        np.testing.assert_array_equal(reply["action.single_arm"], state + STEPS)
        assert reply["action.gripper"].shape == (16, 1)
        assert client.call("get_modality_config")["video"].fields["modality_keys"] == ["front", "wrist"]
    (asked, _), *_ = policy.asked
    assert asked["video"]["front"].shape == (1, 1, 48, 64, 3)
    assert asked["language"] == {"annotation.human.task_description": [["Pick up the vial"]]}


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"endpoint": "fly"}, "Unknown endpoint: fly"),
        ({"endpoint": "get_acton"}, "did you mean 'get_action'?"),
        ({"endpoint": 7}, "Unknown endpoint: 7"),
        ([], "a request is a map with endpoint and data, got list"),
        ({"endpoint": "get_action", "data": None}, "data must be a map of observation, options, got nil"),
        ({"endpoint": "get_action", "data": {"options": None}}, "data.observation is missing"),
        ({"endpoint": "get_action", "data": {"foo": 1}}, "unexpected keyword argument 'foo'"),
        (
            {"endpoint": "get_action", "data": {"observation": None}},
            "observation must be a map of video, state, languag",
        ),
        ({"endpoint": "reset", "data": {"options": []}}, "options must be a map or nil, got list"),
        ({"endpoint": "kill"}, "kill is not allowed"),
    ],
)
def test_4_a_wrong_request_is_told_why_and_the_next_one_served(request_, text):
    with served(StatePolicy()) as server, PeerClient(server.endpoint) as client:
        reply = msgpack.unpackb(client.raw(msgpack.packb(request_)))
        assert set(reply) == {"error"} and text in reply["error"]
        assert_follows(client.get_action(peer_observation())[0], peer_observation())


def changed(group, key, value):
    observation = peer_observation()
    if value is None:
        del observation[group][key]
    else:
        observation[group][key] = value
    return observation


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        (changed("video", "front", None), "video.front is missing (video has: wrist)"),
        (changed("state", "gripper", None), "state.gripper is missing (state has: single_arm)"),
        (changed("language", "annotation.human.task_description", None), "description is missing (language has: nothi"),
        ({}, "video is missing (sent: nothing); state is missing"),
        (
            changed("video", "wrist", np.zeros((1, 1, 4, 4, 3), np.float32)),
            "video.wrist has dtype float32, expected uint8 (B, 1, H, W, 3) RGB",
        ),
        (
            changed("video", "wrist", np.zeros((1, 4, 4, 3), np.uint8)),
            "video.wrist has shape (1, 4, 4, 3), expected ui",
        ),
        (
            changed("video", "wrist", np.zeros((1, 2, 4, 4, 3), np.uint8)),
            "has shape (1, 2, 4, 4, 3), expected uint8 (B, 1",
        ),
        (
            changed("state", "gripper", np.zeros((1, 1, 1))),
            "state.gripper has dtype float64, expected float32 (B, 1, 1)",
        ),
        (changed("state", "single_arm", np.zeros((1, 5), np.float32)), "single_arm has shape (1, 5), expected float32"),
        (
            changed("state", "single_arm", np.zeros((1, 1, 6), np.float32)),
            "has shape (1, 1, 6), expected float32 (B, 1, 5)",
        ),
        (
            changed("state", "gripper", np.full((1, 1, 1), np.nan, np.float32)),
            "state.gripper holds values that are not f",
        ),
        (changed("state", "gripper", [[[1.0]]]), "state.gripper must be an array float32 (B, 1, 1), got a list of 1"),
        (
            changed("language", "annotation.human.task_description", "pick"),
            "must be a list of B lists of one text, got a t",
        ),
        (changed("language", "annotation.human.task_description", ["pick"]), "lists of one text, got a list of a text"),
        (changed("state", "gripper", np.zeros((3, 1, 1), np.float32)), "state.single_arm has 1, state.gripper has 3"),
    ],
)
def test_4_a_wrong_observation_is_told_key_dtype_and_shape(observation, text):
    policy = StatePolicy()
    with served(policy) as server, PeerClient(server.endpoint) as client:
        with pytest.raises(RuntimeError) as caught:
            client.get_action(observation)
        assert text in str(caught.value)
        assert not policy.asked
        assert_follows(client.get_action(peer_observation())[0], peer_observation())


@pytest.mark.parametrize("message", [b"", b"\x80\x04\x95.", b"\xc1", b"\xdf\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n"])
def test_4_an_undecodable_frame_is_answered(message):
    with served(StatePolicy()) as server, PeerClient(server.endpoint) as client:
        assert set(msgpack.unpackb(client.raw(message))) == {"error"}
        assert client.raw(PING) == PONG


def test_4_a_wrong_token_is_refused_everywhere_and_logged(caplog):
    with served(StatePolicy(), token="open sesame", allow_kill=True) as server:
        for token in (None, "wrong", "open sesame "):
            for endpoint in ("ping", "get_modality_config", "get_action", "reset", "kill", "stats", "fly"):
                with PeerClient(server.endpoint, token=token) as client:
                    with pytest.raises(RuntimeError, match="Server error: Unauthorized: Invalid API token"):
                        client.call(endpoint)
        with PeerClient(server.endpoint, token="open sesame") as client:
            assert client.call("ping")["status"] == "ok"
            assert client.call("stats")["unauthorized"] == 21
    refused = [r for r in caplog.records if "refused: wrong or no API token" in r.getMessage()]
    assert len(refused) == 21 and "open sesame" not in caplog.text


def test_4_what_the_policy_raises_is_told():
    policy = StatePolicy()
    policy.fail = ZeroDivisionError("no parking")
    with served(policy) as server, PeerClient(server.endpoint) as client:
        with pytest.raises(RuntimeError, match="Server error: no parking"):
            client.get_action(peer_observation())
        policy.fail = AssertionError()
        with pytest.raises(RuntimeError, match="Server error: AssertionError"):  # never an empty text
            client.get_action(peer_observation())
        policy.fail = None
        assert_follows(client.get_action(peer_observation())[0], peer_observation())


@pytest.mark.parametrize("setting", ["w2", "w3"])
def test_5_modality_configs_are_what_a_client_constructs(setting):
    with served(StatePolicy(), wire=setting) as server, PeerClient(server.endpoint, setting) as client:
        configs = client.call("get_modality_config")
    assert {name: config.fields["modality_keys"] for name, config in configs.items()} == {
        "video": ["front", "wrist"],
        "state": ["single_arm", "gripper"],
        "action": ["single_arm", "gripper"],
        "language": ["annotation.human.task_description"],
    }
    assert configs["action"].fields["delta_indices"] == list(range(16))
    assert [c["rep"] for c in configs["action"].fields["action_configs"]] == ["RELATIVE", "ABSOLUTE"]
    assert configs["video"].fields["delta_indices"] == configs["state"].fields["delta_indices"] == [0]


def test_7_a_policy_that_breaks_its_word_is_an_error():
    class Wrong(StatePolicy):
        def get_action(self, observation, options=None):
            action, info = super().get_action(observation, options)
            return {"single_arm": action["single_arm"].astype(float), "extra": action["gripper"]}, info

    with served(Wrong()) as server, PeerClient(server.endpoint) as client:
        with pytest.raises(RuntimeError) as caught:
            client.get_action(peer_observation())
    assert "single_arm has dtype float64, expected float32 (B, 16, 5)" in str(caught.value)
    assert "gripper must be an array float32 (B, 16, 1), is nil" in str(caught.value)


def test_8_reset_needs_no_data_and_get_action_no_endpoint():
    policy, peer = StatePolicy(), PeerSerialiser()
    with served(policy) as server, PeerClient(server.endpoint) as client:
        assert client.call("reset") == {"resets": 1}
        reply = peer.unpack(client.raw(peer.pack({"data": {"observation": peer_observation()}})))
        assert_follows(reply[0], peer_observation())
        assert client.call("ping", {"anything": 1})["status"] == "ok"  # input that nobody asked for
    assert policy.resets == [None]


def test_9_kill_is_refused_unless_allowed():
    with served(StatePolicy()) as server, PeerClient(server.endpoint) as client:
        with pytest.raises(RuntimeError, match="kill is not allowed; start the server with --allow-kill"):
            client.call("kill")
        assert client.raw(PING) == PONG


def test_10_an_oversize_message_never_arrives_and_the_next_does():
    with served(StatePolicy(), max_message_bytes=50_000) as server:
        with PolicyClient(endpoint=server.endpoint, timeout_ms=300) as client:
            with pytest.raises(RequestTimeout):
                client.get_action(peer_observation(height=200, width=200))
            assert_follows(client.get_action(peer_observation())[0], peer_observation())


def test_10_object_arrays_and_archives_are_refused():
    pickled = (
        b"\x93NUMPY\x01\x00\x3b\x00" + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}    \n" + b"\x80\x04."
    )
    with served(StatePolicy()) as server, PeerClient(server.endpoint) as client:
        for file in (pickled, b"PK\x03\x04" + bytes(60)):
            state = {"__ndarray_class__": True, "as_npy": file}
            reply = client.raw(msgpack.packb({"data": {"observation": {"state": {"gripper": state}}}}))
            assert set(msgpack.unpackb(reply)) == {"error"}
        assert client.raw(PING) == PONG


def test_11_the_generation_of_a_client_is_logged_and_remembered(caplog):
    with caplog.at_level(logging.INFO, "services.policy.server"), served(StatePolicy()) as server:
        with PeerClient(server.endpoint, "w3", early=True) as client:
            client.get_action(peer_observation())
            config = client.call("get_modality_config")["video"]  # nothing in this request told the generation
            assert config.fields["modality_keys"] == ["front", "wrist"]
        with PeerClient(server.endpoint, "w1") as client:
            client.call("get_action", peer_observation_w1())
            assert client.call("stats")["generations"] == {"w3": 1, "w1": 1}
    told = [record.getMessage() for record in caplog.records if "speaks" in record.getMessage()]
    assert [text.split()[-1] for text in told] == ["w3", "w1"]


# Our client, their server


@pytest.mark.parametrize(
    ("wire", "theirs", "early"), [("w2", "w2", False), ("w2", "w3", False), ("w3", "w3", False), ("w3", "w3", True)]
)
def test_our_client_works_with_an_unmodified_server(wire, theirs, early):
    policy, observation = PeerPolicy(), peer_observation(batch=2)
    with PeerServer(policy, theirs, early) as server, PolicyClient(endpoint=server.endpoint, wire=wire) as client:
        assert client.ping()
        configs = client.get_modality_config()
        assert all(isinstance(config, ModalityConfig) for config in configs.values())
        assert client.modality.horizon == 16 and client.modality.relative == ("single_arm",)
        assert client.reset({"episode_index": 3}) == {} and policy.reset_options == [{"episode_index": 3}]
        action, info = client.get_action(observation, {"a": 1})
        assert_follows(action, observation)
        assert info == {} and policy.calls[0][1] == {"a": 1}


def test_our_client_works_with_an_unmodified_n15_server():
    policy, observation = PeerPolicy(), peer_observation()
    with PeerServer(policy, "w1") as server, PolicyClient(endpoint=server.endpoint, wire="w1") as client:
        assert client.ping() and client.reset() == {}
        assert client.modality.video == ("front", "wrist")
        action, info = client.get_action(observation)
        assert_follows(action, observation)
        assert info == {}
        np.testing.assert_equal(policy.calls[0][0], peer_observation_w1())


def test_our_client_checks_error_before_anything_else():
    with PeerServer(token="secret") as server:
        with PolicyClient(endpoint=server.endpoint) as client:
            with pytest.raises(RemoteError, match="Unauthorized: Invalid API token"):
                client.ping()
        with PolicyClient(endpoint=server.endpoint, api_token="secret") as client:
            with pytest.raises(RemoteError, match="'single_arm'"):
                client.get_action(changed("state", "single_arm", None))
            assert client.ping()


def test_a_w2_server_cannot_read_w3_and_says_so():
    with PeerServer(wire="w2") as server, PolicyClient(endpoint=server.endpoint, wire="w3") as client:
        with pytest.raises(RemoteError):
            client.get_action(peer_observation())


def test_our_messages_to_a_server_are_those_of_their_client():
    observation = peer_observation()
    ours = encode({"endpoint": "get_action", "data": {"observation": observation, "options": None}})
    assert ours == PeerSerialiser().pack(
        {"endpoint": "get_action", "data": {"observation": observation, "options": None}}
    )
