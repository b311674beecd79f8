"""`./real record` in a terminal, with two virtual arms: a leader in somebody's hand, and the follower of the rig."""

import os
import pty
import threading
import time

import numpy as np

from so101.config import load_config
from so101.datasets.demo import list_demos, load_demo
from so101.datasets.recordings import read_recording
from so101.datasets.rollouts import SessionFolder
from so101.datasets.validate import validate_dataset
from so101.robot.virtual import VirtualBus
from so101.robot.virtual.plant import KinematicPlant
from tests.system.real_program import RealProgram

CONFIG = load_config()
HOME = np.array([joint.home_rad for joint in CONFIG.robot.joints])


def wave(plant: KinematicPlant, stop: threading.Event) -> None:
    """A hand that turns the pan and opens and closes the jaw."""
    begun = time.monotonic()
    while not stop.wait(0.01):
        swing = np.sin(2.0 * (time.monotonic() - begun))
        plant.place(HOME + np.array([0.3 * swing, 0, 0, 0, 0, 0.3 + 0.3 * swing]))


def test_episodes_are_kept_or_thrown_away_by_key_and_end_as_a_dataset(tmp_path):
    keyboard, terminal = pty.openpty()
    plant, stop = KinematicPlant(CONFIG), threading.Event()
    hand = threading.Thread(target=wave, args=(plant, stop))
    session = SessionFolder(tmp_path / "runs/real/test")
    hand.start()
    try:
        with VirtualBus(CONFIG, plant=plant) as leader:
            arguments = ("--sim", "--arm", "--leader-port", leader.port, "--episodes", "2", "--name", "test")
            with RealProgram(tmp_path, *arguments, command="record", stdin=terminal) as real:
                for turn, key in enumerate((b"s", b"f", b"s")):
                    real.until(lambda turn=turn: real.said.count("press space") > turn)
                    os.write(keyboard, b" ")
                    real.until(lambda turn=turn: real.said.count("\nrecording") > turn)
                    time.sleep(1.5)  # of waving
                    os.write(keyboard, key)
                assert real.ends() == 0, real.said
    finally:
        stop.set()
        hand.join()
        os.close(keyboard)
        os.close(terminal)
    assert "arm released: home" in (session.services / "driver.log").read_text().splitlines()[-1]
    assert [path.stem for path in list_demos(session.episodes)] == ["demo_000000", "demo_000002"], "one thrown away"
    demo = load_demo(session.episodes / "demo_000002.npz")
    assert demo.num_frames > 15 and demo.meta["outcome"] == "success"
    assert np.ptp(demo.q_target[:, 0]) > 0.2, "the leader's movement is what was commanded"
    assert np.ptp(demo.q[:, 0]) > 0.1, "and the follower went with it"
    np.testing.assert_allclose(demo.q_target[:, 1:5], np.tile(HOME[1:5], (demo.num_frames, 1)), atol=0.01)
    assert validate_dataset(session.run.dataset) == []
    assert [episode.num_frames for episode in read_recording(session.run.dataset, CONFIG)][1] == demo.num_frames
