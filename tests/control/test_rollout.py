import numpy as np
import pytest

from so101.cameras.base import CameraError
from so101.config import load_config
from so101.control.loop import ControlLoop
from so101.control.pilot import Choice, EpisodeEnd
from so101.control.rollout import run_rollout
from so101.control.rollout_log import read_log
from so101.datasets.demo import list_demos, load_demo
from so101.datasets.rollouts import SessionFolder
from tests.control.fakes import FakeArm, FakeCameras, FakeClock

SIZE = {"width_px": 64, "height_px": 48}
CONFIG = load_config(
    overrides=[
        "deploy.control.start_ease_s=0.2",
        *(f"cameras.{key}={value}" for key, value in SIZE.items()),
        *(f"cameras.cameras.{name}.{c}=24" for name in ("ego", "side", "top") for c in ("cx_px", "cy_px")),
    ]
)
HOME = np.array([joint.home_rad for joint in CONFIG.robot.joints])


class Pilot:
    """Turns the pan a little every tick, `ticks` times, then ends as told."""

    def __init__(self, ticks: int, end: Exception) -> None:
        self.ticks, self.end_by = ticks, end

    def begin(self, last, stats) -> None:
        self.target = np.array(last)

    def choose(self, look) -> Choice:
        if self.ticks == 0:
            raise self.end_by
        self.ticks -= 1
        self.target = self.target + np.array([0.01, 0, 0, 0, 0, 0])
        return Choice(self.target, "policy", record=True)

    def pause(self) -> None: ...

    def end(self) -> dict:
        return {}


def run(folder: SessionFolder, pilot: Pilot, cameras=None, **options):
    clock = FakeClock()
    cameras = cameras or FakeCameras(clock, ("ego", "side"))
    loop = ControlLoop(CONFIG, FakeArm(clock, HOME), cameras, pilot, moves=True, clock=clock)
    return run_rollout(
        CONFIG, loop, folder, cameras=("ego", "side"), start=HOME, seed=4, meta={"policy": "test"}, **options
    )


def test_a_rollout_leaves_log_demo_videos_and_plot_under_the_next_number(tmp_path):
    folder = SessionFolder(tmp_path)
    for index in range(2):
        rollout = run(folder, Pilot(20, EpisodeEnd("failure", "marked as a failure")))
        assert (rollout.index, rollout.result.outcome) == (index, "failure")
    demo = load_demo(rollout.demo)
    assert (demo.index, demo.seed, demo.task, demo.cause) == (1, 4, CONFIG.task.name, "failure")
    assert demo.meta["policy"] == "test" and demo.meta["reason"] == "marked as a failure"
    np.testing.assert_allclose(demo.q_target[:, 0] - HOME[0], 0.01 * np.arange(1, 21), atol=1e-9)
    recorded = [row for row in read_log(folder.log(1)) if row.phase == "policy"]
    np.testing.assert_allclose([row.target for row in recorded], demo.q_target, atol=1e-6)
    assert folder.run.video(1, "side").is_file() and rollout.plot == folder.plot(1) and rollout.plot.is_file()
    assert demo.meta["loop"]["ticks"] == len(read_log(folder.log(1)))


def test_what_is_not_to_be_kept_leaves_log_and_plot_only(tmp_path):
    folder = SessionFolder(tmp_path)
    pilot = Pilot(5, EpisodeEnd("failure", "thrown away"))
    rollout = run(folder, pilot, keep=lambda result: result.outcome == "success")
    assert rollout.demo is None and rollout.plot.is_file() and len(read_log(folder.log(0))) > 5
    assert list_demos(folder.episodes) == [] and not folder.run.video(0, "ego").exists()


def test_one_that_ends_before_it_begins_leaves_an_empty_log(tmp_path):
    folder, cameras = SessionFolder(tmp_path), FakeCameras(FakeClock(), ("ego", "side"))
    cameras.errors = {0: CameraError("side: no such device")}
    rollout = run(folder, Pilot(5, EpisodeEnd("success", "")), cameras)
    assert (rollout.result.outcome, rollout.result.reason) == ("aborted", "cameras: side: no such device")
    assert rollout.demo is None and rollout.plot is None and read_log(folder.log(0)) == []


def test_a_bug_in_the_middle_leaves_the_log_and_no_half_episode(tmp_path):
    folder = SessionFolder(tmp_path)
    with pytest.raises(ZeroDivisionError):
        run(folder, Pilot(5, ZeroDivisionError()))
    assert len([row for row in read_log(folder.log(0)) if row.phase == "policy"]) == 5
    assert not folder.run.video(0, "ego").parent.exists() and list_demos(folder.episodes) == []
