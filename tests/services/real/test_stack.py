"""Children here are small scripts that speak the real sockets, in the places of the real services."""

import sys
import time
from pathlib import Path

import pytest

import services.real.stack as stack_module
from proto.messages.common import Ok
from proto.messages.driver import GetState
from proto.sockets import Server
from proto.stopping import StopFlag
from services.health import PingCheck
from services.real.stack import ServiceDied, Stack
from services.supervisor import Spec, SupervisorError
from so101.config import load_config
from so101.robot.base import RobotError, TorqueLeftOn

SERVICE = """
import signal, sys, time
from proto.messages.common import Ok
from proto.messages.driver import GetState
from proto.sockets import Server
from proto.stopping import stop_on_signals
name, endpoint, mark, code = sys.argv[1:5]
with stop_on_signals() as stop:
    server = Server(endpoint, {GetState: lambda message: Ok()}, name=name)
    print(name, "serves", *sys.argv[5:], flush=True)
    server.serve(stop)
with open(mark, "a") as file:
    file.write(name + " ")
sys.exit(int(code))
"""


class Bench:
    """A stack whose services are scripts; `codes` are their exit codes, `argv` replaces one of them."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder, self.said, self.codes, self.argv = folder, [], {}, {}
        self.mark = folder / "ended"
        settings = [
            f"deploy.sockets.{n}.{e}=ipc://{folder}/{n}" for n in ("driver", "rig") for e in ("bind", "connect")
        ]
        self.config = load_config(overrides=[*settings, "deploy.supervisor.check_timeout_s=0.5"])
        monkeypatch.setattr(stack_module, "line_up", self.line_up)
        monkeypatch.setattr(stack_module, "health_check", lambda config, name: PingCheck(self.endpoint(name)))

    def endpoint(self, name: str) -> str:
        return f"ipc://{self.folder}/{name}"

    def line_up(self, config, state_dir, *, profile, arm, only, settings):
        def argv(name):
            arguments = [name, self.endpoint(name), str(self.mark), str(self.codes.get(name, 0)), profile, str(arm)]
            return self.argv.get(name, [sys.executable, "-c", SERVICE, *arguments, *settings])

        return [Spec(name, argv(name), health=PingCheck(self.endpoint(name)), required=False) for name in sorted(only)]

    def stack(self, *needs: str, sim=True, own=None) -> Stack:
        return Stack(
            self.config, needs=needs, state_dir=self.folder / "services", sim=sim, arm=True, own=own or {},
            settings=["--task", "x"], stop=StopFlag(), say=self.said.append,
        )  # fmt: skip


@pytest.fixture
def bench(tmp_path, monkeypatch):
    return Bench(tmp_path, monkeypatch)


def test_what_is_missing_is_started_and_stopped_the_driver_first(bench):
    with bench.stack("rig", "camera", "policy", "driver", own={"policy": ["--policy", "replay"]}) as stack:
        assert stack.found == [] and stack.trouble() is None
        stack.check()
        assert all(PingCheck(bench.endpoint(n)).problem(1) is None for n in ("rig", "camera", "policy", "driver"))
    assert bench.mark.read_text().split() == ["driver", "policy", "camera", "rig"]
    log = (bench.folder / "services" / "policy.log").read_text()
    assert log.startswith("policy serves sim True --task x --policy replay")


def test_what_answers_is_used_and_left_running(bench):
    with (
        Server(bench.endpoint("driver"), {GetState: lambda message: Ok()}, name="driver"),
        Server(bench.endpoint("rig"), {}, name="rig"),
    ):
        with bench.stack("rig", "camera", "driver") as stack:
            assert stack.found == ["rig", "driver"]
        assert bench.mark.read_text().split() == ["camera"]
        assert PingCheck(bench.endpoint("driver")).problem(1) is None
    assert "driver answers already and is used as it is" in bench.said[1]


def test_a_driver_without_a_rig_may_be_that_of_the_real_arm(bench):
    with Server(bench.endpoint("driver"), {}, name="driver"):
        with pytest.raises(RobotError, match="--sim: a driver answers at ipc://.*/driver, but no simulated rig does"):
            bench.stack("rig", "driver")
        with bench.stack("camera", "driver", sim=False) as stack:
            assert stack.found == ["driver"]
    assert not (bench.folder / "services" / "rig.log").exists()


def test_one_that_does_not_start_is_told_with_its_log_and_the_others_are_stopped(bench):
    bench.argv["policy"] = [sys.executable, "-c", "print('no checkpoint here'); raise SystemExit(3)"]
    with pytest.raises(SupervisorError, match="policy ended with exit code 3(.|\n)*no checkpoint here"):
        with bench.stack("rig", "policy", "driver"):
            pytest.fail("must not be entered")
    assert bench.mark.read_text().split() == ["rig"]


def test_one_that_dies_later_is_told_with_its_log_and_not_started_again(bench):
    with bench.stack("rig", "driver") as stack:
        stack._supervisor.processes[0].child.kill()
        while stack.trouble() is None:
            time.sleep(0.01)
        assert stack.trouble() == "rig killed by signal 9"
        with pytest.raises(ServiceDied, match="rig killed by signal 9(.|\n)*rig serves"):
            stack.check()
    assert bench.mark.read_text().split() == ["driver"]


def test_torque_that_was_left_on_is_said_loudly(bench):
    bench.codes["driver"] = TorqueLeftOn.exit_code
    with pytest.raises(TorqueLeftOn, match="TORQUE IS ON. Hold the arm(.|\n)*driver serves"):
        with bench.stack("rig", "driver"):
            pass
    assert bench.mark.read_text().split() == ["driver", "rig"], "the others are stopped all the same"


def test_a_driver_that_was_killed_may_have_left_torque_on(bench):
    with pytest.raises(TorqueLeftOn, match="killed by signal 9: TORQUE MAY BE ON(.|\n)*driver serves"):
        with bench.stack("rig", "driver") as stack:
            stack._supervisor.processes[1].child.kill()
            while stack.trouble() is None:
                time.sleep(0.01)
            raise RobotError("the driver service did not answer")  # what the client says then


def test_needing_nothing_starts_nothing(bench):
    with bench.stack() as stack:
        assert stack.trouble() is None
