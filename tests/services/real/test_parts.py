import threading

import pytest

from proto.messages.rig import STATE_TOPIC, RigState
from services.real.parts import check_same_arm
from services.wire import make_publisher
from so101.config import load_config
from so101.robot.base import RobotError


@pytest.fixture
def config(tmp_path):
    endpoint = f"ipc://{tmp_path}/rig"
    return load_config(
        overrides=[
            f"deploy.sockets.rig_state={{bind: '{endpoint}', connect: '{endpoint}'}}",
            "deploy.messages.timeout_s=2",
        ]
    )


@pytest.fixture
def rig_at_pts_7(config):
    """Tells again and again, as the rig does."""
    state = RigState(
        stamp_s=1.0, q_rad=(0.0,) * 6, objects={}, randomisation_json="{}", looks_json="{}", port="/dev/pts/7"
    )
    end = threading.Event()

    def tell():
        while not end.wait(0.05):
            publisher.send(STATE_TOPIC, state)

    with make_publisher(config, "rig_state") as publisher:
        thread = threading.Thread(target=tell)
        thread.start()
        yield
        end.set()
        thread.join()


def test_sim_takes_the_driver_of_the_rigs_own_servos(config, rig_at_pts_7):
    check_same_arm(config, "/dev/pts/7")


def test_sim_never_takes_the_driver_of_another_arm(config, rig_at_pts_7):
    with pytest.raises(RobotError, match=r"at /dev/ttyACM0, those of the simulated rig are at /dev/pts/7"):
        check_same_arm(config, "/dev/ttyACM0")


def test_a_rig_that_says_nothing_is_not_trusted(config):
    with pytest.raises(RobotError, match="does not tell where its arm is"):
        check_same_arm(config, "/dev/pts/7")
