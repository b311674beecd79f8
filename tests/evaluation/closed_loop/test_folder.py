import pytest

from so101.config import load_config
from so101.errors import RunFolderError
from so101.evaluation.closed_loop import run_episode, save_episode
from so101.evaluation.closed_loop.folder import EvalFolder, deciding_settings
from tests.evaluation.closed_loop.fakes import Ramp, StillWorld

POLICY = {"name": "embedded", "role": "policy", "digest": "0123456789abcdef"}


def configured(*overrides):
    return load_config(overrides=["task.name=vial_to_rack", *overrides])


@pytest.fixture(scope="module")
def episode():
    config = configured()
    return run_episode(config, StillWorld(config), Ramp(config, fails_at=1), seed=5)


@pytest.fixture
def folder(tmp_path, episode):
    """One that holds an episode."""
    made = EvalFolder(tmp_path / "policy")
    made.bind(configured(), POLICY)
    save_episode(made.episodes, episode)
    return made


def test_the_folder_of_something_else_is_not_touched(tmp_path):
    (tmp_path / "verified").mkdir()
    (tmp_path / "videos").mkdir()
    video = tmp_path / "videos/success_episode_0000001.mp4"
    video.touch()
    for fresh in (False, True):
        with pytest.raises(RunFolderError, match="holds verified but no eval.json: something else made it"):
            EvalFolder(tmp_path).bind(configured(), POLICY, fresh=fresh)
    assert video.exists() and not (tmp_path / "eval.json").exists()


def test_a_folder_that_was_only_locked_is_taken(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".eval.1.tmp.json").touch()
    EvalFolder(tmp_path).bind(configured(), POLICY)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [".lock", "eval.json"]


@pytest.mark.parametrize(
    "override",
    [
        "cameras.scale=0.5",
        "scene.physics.substeps=9",
        "deploy.control.execute_steps=4",
        "deploy.evaluation.max_s=9",
        "skillgen.start_noise_rad=0.1",
        "render.setting=shadows",
        "deploy.evaluation.stages.lift_m=0.05",
        "training.embedded.acting.noise=0.3",
        "task.tasks.vial_to_rack.language=Do it",
    ],
)
def test_what_changes_an_episode_decides(override):
    assert deciding_settings(configured(override)) != deciding_settings(configured())


@pytest.mark.parametrize(
    "override",
    [
        "deploy.evaluation.episodes=3",
        "deploy.evaluation.videos.failures=1",
        "deploy.evaluation.first_seed=5",
        "training.embedded.optimizer.learning_rate=0.002",
        "deploy.server.port=1234",
        "skillgen.target_demos=3",
        "training.tracking.enabled=false",
        "deploy.control.sessions=elsewhere",
        "task.tasks.cube_in_box.language=Other",
    ],
)
def test_what_changes_none_does_not(override):
    assert deciding_settings(configured(override)) == deciding_settings(configured())


def test_the_same_policy_and_settings_go_on(folder):
    folder.bind(configured("deploy.evaluation.episodes=3"), POLICY)
    assert folder.missing([4, 5, 6]) == [4, 6]


def test_another_checkpoint_is_refused_with_both_digests_and_the_ways_out(folder):
    with pytest.raises(RunFolderError) as caught:
        folder.bind(configured(), {**POLICY, "digest": "fedcba9876543210"})
    told = str(caught.value)
    assert 'policy.digest: "0123456789abcdef" in the folder, "fedcba9876543210" now' in told
    assert "--out" in told and "--fresh" in told


def test_other_settings_are_refused_by_name(folder):
    with pytest.raises(RunFolderError, match=r"deploy.control.execute_steps: 8 in the folder, 4 now"):
        folder.bind(configured("deploy.control.execute_steps=4"), POLICY)


def test_a_folder_without_episodes_takes_any_settings(tmp_path):
    folder = EvalFolder(tmp_path)
    folder.bind(configured(), POLICY)
    folder.bind(configured("deploy.control.execute_steps=4"), POLICY)


def test_fresh_removes_what_an_evaluation_made_and_nothing_else(folder):
    folder.videos.mkdir()
    ours = [folder.videos / "failure_episode_0000005.mp4", folder.summary, folder.figure]
    theirs = [folder.root / "notes.txt", folder.videos / "holiday.mp4", folder.episodes / "readme"]
    for path in (*ours, *theirs):
        path.write_text("x")
    folder.bind(configured("deploy.control.execute_steps=4"), POLICY, fresh=True)
    assert folder.missing([5]) == [5] and folder.record.is_file()
    assert not any(path.exists() for path in ours) and all(path.exists() for path in theirs)


def test_a_record_that_cannot_be_read_is_told(folder):
    folder.record.write_text("{")
    with pytest.raises(RunFolderError, match="eval.json: does not say .* --fresh"):
        folder.bind(configured(), POLICY)
