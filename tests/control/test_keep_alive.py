import threading

from so101.control.keep_alive import KeepAlive
from so101.robot.base import RobotError


class Arm:
    """Counts what it is told; fails every other time."""

    def __init__(self) -> None:
        self.held, self.twice = 0, threading.Event()

    def hold(self) -> None:
        self.held += 1
        if self.held > 2:
            self.twice.set()
        if self.held % 2:
            raise RobotError("lost")


def test_an_arm_is_told_to_hold_again_and_again_whatever_it_answers_and_not_any_more_at_the_end():
    arm = Arm()
    with KeepAlive(arm):
        assert arm.twice.wait(10)
    told = arm.held
    assert not [thread for thread in threading.enumerate() if thread.name == "hold"]
    assert arm.held == told


def test_in_a_dry_run_it_is_told_nothing():
    arm = Arm()
    with KeepAlive(arm, active=False):
        pass
    assert arm.held == 0
