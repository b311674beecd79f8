"""An evaluation through the real server: expert and replay in the twin, killed, gone on with, served elsewhere."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from services.evaluation import worker
from services.evaluation.run import identity, run_evaluation
from services.evaluation.worker import Served
from services.policy.server import PolicyServer
from so101.config import load_config
from so101.datasets.demo import save_demo
from so101.datasets.videos import probe_video
from so101.errors import DataError, RunFolderError
from so101.evaluation.closed_loop.record import list_episodes, load_episode
from so101.pipeline.progress import SilentReporter
from so101.pipeline.session import lock_folder
from so101.policies import PolicyOptions, make_policy
from so101.policies.base import PolicyError

SETTINGS = [
    "task.name=vial_to_rack",
    "cameras.scale=0.125",
    "render.setting=fast",
    "training.tracking.enabled=false",
    "deploy.evaluation.videos.successes=1",
    "deploy.evaluation.videos.failures=1",
]
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def config():
    return load_config(overrides=SETTINGS)


@pytest.fixture(scope="module")
def demo(vial_runner, tmp_path_factory):
    """A demo that works, in a file."""
    found = next(demo for index in range(10) if (demo := vial_runner.run(index)).strict)
    return found, save_demo(tmp_path_factory.mktemp("demo"), found)


@pytest.fixture(scope="module")
def evaluated(config, demo, tmp_path_factory):
    """The demo replayed at its own placement, and at the next one, where it cannot work."""
    found, path = demo
    served = Served("replay", PolicyOptions(demo=path))
    root = tmp_path_factory.mktemp("eval") / "replay"
    seeds = range(found.seed, found.seed + 2)
    return run_evaluation(config, served, root, seeds, SilentReporter(), workers=1), served, seeds


def test_what_works_in_open_loop_works_through_server_and_client(evaluated):
    done, _, seeds = evaluated
    episode = done.episodes[0]
    assert [e.seed for e in done.episodes] == list(seeds)
    assert episode.strict and episode.stage == "released" and not episode.error
    assert (episode.latency_ms > 0).all() and len(episode.latency_ms) == len(episode.asked)
    assert episode.meta["server"]["infer_ms"]["p50"] < episode.latency_ms.max()


def test_what_it_leaves(evaluated):
    done, _, _ = evaluated
    summary = json.loads(done.folder.summary.read_text())
    assert summary["n"] == 2 and summary["policy"]["name"] == "replay"
    assert summary["strict"]["successes"] == sum(episode.strict for episode in done.episodes)
    assert done.folder.figure.read_bytes().startswith(b"\x89PNG")
    measured = json.loads(done.folder.metrics.read_text())
    assert [one["facts"]["seed"] for one in measured["rollouts"]] == [episode.seed for episode in done.episodes]
    assert summary["metrics"]["frame/path_length_m"] > 0.3 and "mse_share/gripper" in summary["metrics"]
    assert len(list(done.folder.pictures.glob("episode_*_joints.png"))) == 2
    videos = sorted(path.name for path in done.folder.videos.iterdir())
    assert videos[-1] == f"success_episode_{done.episodes[0].seed:07d}.mp4"
    frames = probe_video(done.folder.videos / videos[-1]).num_frames
    assert frames == len([*range(0, done.episodes[0].num_frames - 1, 3), 0])


def test_the_same_command_does_nothing_twice_and_more_episodes_are_added(config, evaluated):
    done, served, seeds = evaluated
    before = {path: path.stat().st_mtime_ns for path in list_episodes(done.folder.episodes)}
    again = run_evaluation(config, served, done.folder.root, seeds[:1], SilentReporter(), workers=1)
    assert again.made == 0 and again.summary["n"] == 1
    assert {path: path.stat().st_mtime_ns for path in list_episodes(done.folder.episodes)} == before


def test_two_commands_do_not_work_in_one_folder(config, evaluated):
    done, served, seeds = evaluated
    with lock_folder(done.folder), pytest.raises(RunFolderError, match="in use by another command .* with --out"):
        run_evaluation(config, served, done.folder.root, seeds, SilentReporter(), workers=1)


def test_a_server_that_runs_already_is_used(config, demo, tmp_path):
    found, path = demo
    policy = make_policy(config, "replay", PolicyOptions(demo=path))
    with PolicyServer(policy, "tcp://127.0.0.1:0", config.deploy.server, token="secret") as server:
        address = server.endpoint.removeprefix("tcp://")
        served = Served("replay", server=address, token="secret")
        with worker.Worker(config, served) as one:
            assert one.run(found.seed).strict
        assert server.counters.requests["get_action"] > 10


def test_a_server_that_is_gone_ends_the_evaluation_and_makes_no_failure_of_it(demo):
    found, path = demo
    quick = load_config(overrides=[*SETTINGS, "deploy.client.connect_timeout_ms=100", "deploy.client.timeout_ms=300"])
    policy = make_policy(quick, "replay", PolicyOptions(demo=path))
    server = PolicyServer(policy, "tcp://127.0.0.1:0", quick.deploy.server).start()
    with worker.Worker(quick, Served("replay", server=server.endpoint.removeprefix("tcp://"))) as one:
        assert one.client.modality.horizon
        server.close()
        with pytest.raises(PolicyError, match="(?s)does not answer any more.*the same command goes on"):
            one.run(found.seed)


def test_a_file_in_the_way_is_told_with_the_option(config, demo, tmp_path):
    (tmp_path / "file").touch()
    served = Served("replay", PolicyOptions(demo=demo[1]))
    with pytest.raises(RunFolderError, match="(?s)file: a file is in the way of a folder.*with --out"):
        run_evaluation(config, served, tmp_path / "file", range(1), SilentReporter(), workers=1)


def test_no_server_is_told(config):
    quick = load_config(overrides=[*SETTINGS, "deploy.client.connect_timeout_ms=100"])
    with pytest.raises(PolicyError, match="--server 127.0.0.1:9: no policy server answers there"):
        worker.Worker(quick, Served("replay", server="127.0.0.1:9")).__enter__()


def test_a_policy_is_told_from_another_by_what_it_serves(config, demo, tmp_path):
    found, path = demo
    other = save_demo(tmp_path, found.replace(q_target=found.q_target + 0.01))
    one, two = (identity(config, Served("replay", PolicyOptions(demo=p))) for p in (path, other))
    assert one["digest"] != two["digest"] and identity(config, Served("replay", PolicyOptions(demo=path))) == one
    with pytest.raises(DataError, match="no verified demo to replay"):
        identity(config, Served("replay", PolicyOptions(demo=tmp_path / "nothing")))
    nowhere = load_config(overrides=[*SETTINGS, f"deploy.server.models_dir={tmp_path}"])
    with pytest.raises(PolicyError, match="no such model folder"):
        identity(nowhere, Served("embedded"))


@pytest.mark.parametrize("setting", ["model_path=other", "embodiment_tag=GR1", "host=10.0.0.5"])
def test_a_checkpoint_of_groot_is_told_from_another_by_where_it_is(config, setting):
    other = load_config(overrides=[*SETTINGS, f"deploy.server.groot.{setting}"])
    assert identity(config, Served("groot")) != identity(other, Served("groot"))
    assert identity(config, Served("groot", server="a:1")) == identity(other, Served("groot", server="a:1"))


def test_a_killed_evaluation_goes_on_where_it_was(demo, tmp_path):
    """kill -9 while it is at work: what is written stays, the rest is done, and nothing is half-written."""
    out, n = tmp_path / "killed", 8
    command = [sys.executable, "-m", "services.cli", "eval", "--policy", "replay", "--demo", str(demo[1])]
    command += ["--seed", "3", "--workers", "2", "--episodes", str(n), "--out", str(out)]
    for assignment in [*SETTINGS, "deploy.evaluation.max_s=1.5", "deploy.evaluation.metrics=false"]:
        command += ["--set", assignment]
    command += ["--set", "deploy.evaluation.videos.failures=0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    deadline = time.monotonic() + PATIENCE_S
    while not list_episodes(out / "episodes") and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0].decode()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = {path: path.read_bytes() for path in list_episodes(out / "episodes")}
    assert kept and not (out / "summary.json").exists()
    finished = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert f"{n} episodes, {len(kept)} already there" in finished.stdout
    assert f"{n} episodes, seeds 3 to 10" in finished.stdout and "(Wilson 95 %:" in finished.stdout
    paths = list_episodes(out / "episodes")
    assert len(paths) == n and {path: path.read_bytes() for path in kept} == kept
    assert [load_episode(path).ended for path in paths] == ["time"] * n
