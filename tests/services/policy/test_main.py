import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proto.errors import BindRefused, RemoteError
from services.cli.policy import main as policy_program
from services.policy import PolicyClient
from services.policy.main import check_guarded
from services.policy.main import main as serve_policy
from services.policy.options import Parser, add_policy_options, apply
from so101.config import load_config
from so101.datasets.demo import save_demo
from so101.errors import ConfigError
from tests.datasets.synthetic import make_demo
from tests.ports import free_port
from tests.proto.groot.peer import peer_observation

REPOSITORY = Path(__file__).resolve().parents[3]
CAMERAS = ("front", "wrist", "top")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return save_demo(tmp_path_factory.mktemp("demo"), make_demo(load_config(), 3, 40))


class Program:
    """`./policy` or `./twin serve policy` as a process of its own; `output` grows."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "services.cli", *arguments]
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.output, self._ready = [], threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.output.append(line)
            if "Server is ready and listening on" in line:
                self._ready.set()
        self._ready.set()

    def ready(self):
        assert self._ready.wait(60) and self.process.poll() is None, "".join(self.output)

    def wait(self):
        code = self.process.wait(60)
        self._reader.join(10)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.mark.parametrize("words", [["policy"], ["serve", "policy", "--"]])
def test_both_programs_serve_a_demo_until_sigterm(words, demo, tmp_path):
    port, token = free_port(), tmp_path / "token"
    token.write_text("open sesame\n")
    options = ["--policy", "replay", "--demo", str(demo), "--port", str(port), "--api-token-file", str(token)]
    with Program(*words, *options) as program:
        program.ready()
        with PolicyClient(port=port, api_token="open sesame", timeout_ms=20_000) as client:
            action, info = client.get_action(peer_observation(cameras=CAMERAS))
            assert action["single_arm"].shape == (1, 16, 5) and info["episode_length"] == 40
            assert client.reset({"step_index": 39})["source"] == str(demo)
            assert client.get_action(peer_observation(cameras=CAMERAS))[1]["done"]
        with PolicyClient(port=port, timeout_ms=20_000) as stranger, pytest.raises(RemoteError, match="Unauthorized"):
            stranger.ping()
        program.process.send_signal(signal.SIGTERM)
        assert program.wait() == 128 + signal.SIGTERM, "".join(program.output)
        assert "Traceback" not in "".join(program.output)


def test_kill_ends_the_program_and_is_answered(demo):
    port = free_port()
    with Program("policy", "--demo", str(demo), "--port", str(port), "--allow-kill", "--wire", "w3") as program:
        program.ready()
        with PolicyClient(port=port, timeout_ms=20_000) as client:
            client.kill()
        assert program.wait() == 0, "".join(program.output)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--prot", "1"], 2, "error: ./policy: no such option: --prot; did you mean '--port'?; ./policy --help lists"),
        (["--port"], 2, "argument --port: expected one argument"),
        (["--port", "x"], 2, "argument --port: invalid int value: 'x'"),
        (["--port", "99999"], 2, "port is 99999; input should be less than or equal to 65535"),
        (["--wire", "w9"], 2, "wire is 'w9'; input should be 'w2' or 'w3'"),
        (
            ["--policy", "reply"],
            2,
            "--policy reply: no such policy; policies: replay, expert, embedded, groot; did you m",
        ),
        (["--api-token", ""], 2, "--api-token is empty"),
        (["--api-token-file", "/nowhere"], 2, "/nowhere: the API token cannot be read"),
        (["--demo", "a", "--dataset", "b"], 2, "--demo and --dataset both say what to replay"),
        (["--demo", "/nowhere"], 3, "/nowhere: no verified demo to replay"),
        (["--host", "0.0.0.0"], 1, "tcp://0.0.0.0:5555 can be reached from the network, and without a token anyone"),
        (["--set", "deploy.server.prot=1"], 2, "unknown key 'server.prot'"),
        (["extra"], 2, "no such option: extra"),
    ],
)
def test_a_wrong_option_is_told_in_words(arguments, code, text, capsys):
    assert policy_program(arguments) == code
    assert text in capsys.readouterr().err


def test_serve_policy_says_its_own_name():
    with pytest.raises(ConfigError, match="./twin serve policy --: no such option: --demos; did you mean '--demo'"):
        serve_policy(load_config(), ["--demos", "x"])


def test_options_win_over_the_files_and_absent_ones_change_nothing(tmp_path):
    config = load_config()
    parser = Parser(prog="x")
    add_policy_options(parser)
    unchanged, options, token = apply(config, parser.parse_args([]))
    assert (unchanged, token) == (config, None)
    changed, options, token = apply(
        config,
        parser.parse_args(["--policy", "expert", "--no-strict", "--seed", "4", "--api-token", "t", "--role", "r"]),
    )
    server = changed.deploy.server
    assert (server.policy, server.strict, server.role, options.seed, token) == ("expert", False, "r", 4, "t")
    assert changed.deploy.client == config.deploy.client


def test_9_an_open_socket_off_loopback_needs_a_token_or_plain_words():
    for endpoint in ("tcp://0.0.0.0:5555", "tcp://*:5555", "tcp://[::]:5555", "tcp://192.168.0.2:5555"):
        with pytest.raises(BindRefused, match="without a token anyone there could use the policy"):
            check_guarded(endpoint, None, False)
        check_guarded(endpoint, "token", False)
        check_guarded(endpoint, None, True)
    for endpoint in ("tcp://127.0.0.1:5555", "tcp://localhost:5555", "tcp://[::1]:5555"):
        check_guarded(endpoint, None, False)
