"""`--policy groot`: a GR00T server behind ours."""

import sys
import textwrap

import numpy as np
import pytest

from proto.errors import RemoteError
from services.policy import PolicyClient
from services.policy.groot import GrootPolicy
from services.policy.options import Parser, add_policy_options, apply
from so101.config import load_config
from so101.errors import ConfigError, DataError
from so101.policies import PolicyOptions
from so101.policies.base import PolicyError
from tests.ports import free_port
from tests.proto.groot.peer import PeerClient, PeerServer, peer_observation

from .fakes import served


def config_for(*overrides):
    return load_config(overrides=["deploy.client.connect_timeout_ms=1500", *overrides])


def upstream(endpoint, wire="w2"):
    port = endpoint.rpartition(":")[2]
    groot = "deploy.server.groot"
    return config_for(f"{groot}.host=127.0.0.1", f"{groot}.port={port}", f"{groot}.wire={wire}")


@pytest.mark.parametrize("wire", ["w1", "w2", "w3"])
def test_an_unmodified_server_is_served_again_with_checks(wire):
    observation = peer_observation()
    with PeerServer(wire=wire) as theirs:
        policy = GrootPolicy(upstream(theirs.endpoint, wire), PolicyOptions())
        with served(policy, token="open sesame") as ours:
            with PeerClient(ours.endpoint, token="open sesame") as client:
                action, _ = client.get_action(observation)
                np.testing.assert_array_equal(
                    action["gripper"][0, :, 0], observation["state"]["gripper"][0, 0] + np.arange(16)
                )
                assert client.call("reset") == {}
                with pytest.raises(RuntimeError, match=r"video.front is missing \(video has: wrist\)"):
                    client.get_action(peer_observation(cameras=("wrist",)))
            with PolicyClient(endpoint=ours.endpoint) as stranger, pytest.raises(RemoteError, match="Unauthorized"):
                stranger.get_action(observation)
        assert len(theirs.policy.calls) == 1  # what is wrong never gets there
        policy.close()


def test_what_the_server_behind_says_is_passed_on():
    with PeerServer() as theirs:
        policy = GrootPolicy(upstream(theirs.endpoint), PolicyOptions())
        observation = peer_observation()
        observation["state"]["gripper"] = np.zeros((1, 1, 2), np.float32)  # sizes are not told by a modality config
        with served(policy) as ours, PolicyClient(endpoint=ours.endpoint) as client:
            with pytest.raises(RemoteError, match="^state gripper$"):
                client.get_action(observation)
        policy.close()


def test_nobody_there_is_told_with_the_address():
    with pytest.raises(
        PolicyError, match=r"no GR00T server answered at tcp://127.0.0.1:1 within 1.5 s; start it, or corr"
    ):
        GrootPolicy(config_for("deploy.server.groot.host=127.0.0.1", "deploy.server.groot.port=1"), PolicyOptions())


def test_without_isaac_groot_it_says_how_to_go_on():
    with pytest.raises(PolicyError, match="Isaac-GR00T is not installed in this environment .no package gr00t"):
        GrootPolicy(config_for(), PolicyOptions())


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that stands for Isaac-GR00T: its server's options, and the peer behind them."""

    def install(body):
        package = tmp_path / "gr00t" / "eval"
        package.mkdir(parents=True)
        (tmp_path / "gr00t" / "__init__.py").touch()
        (package / "__init__.py").touch()
        (package / "run_gr00t_server.py").write_text(textwrap.dedent(body))
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(path for path in sys.path if path)}")

    yield install
    for name in [name for name in sys.modules if name.startswith("gr00t")]:
        del sys.modules[name]


def test_it_starts_and_ends_an_isaac_groot_that_is_installed(installed):
    installed("""
        import argparse, io, msgpack, numpy, zmq
        from tests.proto.groot.peer import PeerPolicy, PeerSerialiser
        parser = argparse.ArgumentParser()
        for name in ("model-path", "embodiment-tag", "device", "host", "port"):
            parser.add_argument(f"--{name}", required=True)
        chosen = parser.parse_args()
        assert (chosen.model_path, chosen.embodiment_tag, chosen.device) == ("here", "NEW_EMBODIMENT", "cpu")
        socket = zmq.Context().socket(zmq.REP)
        socket.bind(f"tcp://{chosen.host}:{chosen.port}")
        policy, peer = PeerPolicy(), PeerSerialiser()
        while True:
            endpoint = peer.unpack(socket.recv())["endpoint"]
            socket.send(peer.pack(policy.get_modality_config() if endpoint == "get_modality_config" else {}))
    """)
    groot = "deploy.server.groot"
    config = config_for(f"{groot}.port={free_port()}", f"{groot}.model_path=here", f"{groot}.device=cpu")
    policy = GrootPolicy(config, PolicyOptions())
    assert policy.modality.horizon == 16 and policy._process.poll() is None
    policy.close()
    assert policy._process.poll() is not None


def test_an_isaac_groot_that_ends_at_once_is_told(installed):
    installed("raise SystemExit(7)")
    with pytest.raises(PolicyError, match="Isaac-GR00T's server ended with exit code 7 before it answered"):
        GrootPolicy(config_for(f"deploy.server.groot.port={free_port()}"), PolicyOptions())


def test_a_folder_that_is_no_checkpoint_is_told_before_gr00t_starts(installed, tmp_path):
    installed("raise SystemExit(7)")
    (tmp_path / "out/checkpoint-2000").mkdir(parents=True)
    with pytest.raises(DataError, match="no GR00T checkpoint, .* missing; name one of its checkpoint-2000"):
        GrootPolicy(config_for(f"deploy.server.groot.model_path={tmp_path / 'out'}"), PolicyOptions())


def test_the_interpreter_that_has_gr00t_is_the_one_of_the_training(tmp_path):
    with pytest.raises(PolicyError, match=r"environment of /nowhere/python \(training.groot.python\)"):
        GrootPolicy(config_for("training.groot.python=/nowhere/python"), PolicyOptions())


def chosen(*arguments, overrides=()):
    parser = Parser()
    add_policy_options(parser)
    return apply(config_for(*overrides), parser.parse_args(arguments))[0].deploy.server


def test_the_option_model_is_the_checkpoint_that_gr00t_is_started_with():
    server = chosen("--policy", "groot", "--model", "outputs/groot/checkpoint-20000")
    assert server.groot.model_path == "outputs/groot/checkpoint-20000"
    assert server.groot.embodiment_tag == "NEW_EMBODIMENT"


def test_the_option_model_where_it_means_nothing():
    with pytest.raises(ConfigError, match="--model is the checkpoint of --policy groot, and embedded was chosen"):
        chosen("--policy", "embedded", "--model", "x")
    with pytest.raises(ConfigError, match="host is groot, a server that runs with a model of its own"):
        chosen("--policy", "groot", "--model", "x", overrides=["deploy.server.groot.host=groot"])
