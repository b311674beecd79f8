"""The rig process: its messages over real sockets, its port, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scservo_sdk as sdk

from proto.codec import decode, encode
from proto.errors import BadMessage, RemoteError
from proto.messages.common import Ok
from proto.messages.rig import RigFault, RigMend, RigReset, RigState, RigTruth
from proto.sockets import Client, Server
from services.driver.rig import Rig
from services.wire import make_client, make_subscriber
from so101.config import load_config
from so101.geometry import pose_to_pos_quat
from so101.robot.virtual import VirtualBus
from so101.robot.virtual.pseudo_real import draw_rig
from so101.robot.virtual.twin_plant import TwinPlant
from so101.tasks.placement import nominal_placements

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def rig(vial_config):
    """A pseudo-real rig without a clock."""
    plant = TwinPlant(vial_config, draw_rig(vial_config, 3))
    with VirtualBus(vial_config, plant=plant, pacing=False, real_time=False) as bus:
        yield Rig(bus, plant)


@pytest.fixture
def client(rig):
    with Server("tcp://127.0.0.1:0", rig.handlers, name="rig") as server:
        with Client(server.endpoint, timeout_s=10) as client:
            yield client


def test_a_reset_puts_things_where_it_says_and_the_state_tells(rig, client, vial_config):
    nominal = nominal_placements(vial_config)
    wanted = {name: tuple((pose + [0.01, 0, 0, 0, 0, 0, 0]).tolist()) for name, pose in nominal.items()}
    q = (0.1, -0.5, 0.2, 1.0, 0.3, 0.4)
    state = client.request(RigReset(objects=wanted, q_rad=q))
    assert isinstance(state, RigState)
    assert state.q_rad == pytest.approx(q)
    assert all(state.objects[name] == pytest.approx(pose) for name, pose in wanted.items())
    assert state.looks == rig.plant.rig.looks and state.looks["cameras"]
    assert state.randomisation["physics"]["joints"] == rig.plant.rig.physics["joints"]
    assert client.request(RigReset(seed=5)).objects != state.objects


def test_the_physics_of_a_demo_is_taken_over_but_not_its_joints(rig, client):
    physics = {"objects": {"vial": {"mass_kg": 0.03}}, "joints": {"delay_s": [0.0] * 6}}
    state = client.request(RigReset(randomisation_json=f'{{"physics": {physics!r}}}'.replace("'", '"')))
    assert state.randomisation["physics"]["objects"] == physics["objects"]
    assert state.randomisation["physics"]["joints"] == rig.plant.rig.physics["joints"]


def test_the_verdict_is_that_of_the_task(rig, client, vial_seeds):
    seed = vial_seeds[0]
    objects = {name: tuple(pose_to_pos_quat(poses[-1]).tolist()) for name, poses in seed.objects.items()}
    q = tuple(seed.q[-1].tolist())
    client.request(RigReset())
    assert not client.request(RigTruth()).strict
    client.request(RigReset(objects=objects, q_rad=q))  # as it was at the end of a demonstration
    for servo in rig.bus.servos.values():
        servo.memory["torque_enable"] = 0
    rig.bus.advance(1.0)
    verdict = client.request(RigTruth())
    assert verdict.strict and verdict.geometric and verdict.figures["axis_distance_m"] < 0.01


def test_faults_come_and_go(rig, client):
    assert client.request(RigFault(kind="silent", ids=[3])) == Ok()
    assert rig.bus.faults.holds("silent", 3) and not rig.bus.faults.holds("silent", 2)
    rig.bus.unplug()
    assert client.request(RigMend(power_cycle=True)) == Ok()
    assert not rig.bus.faults.holds("silent", 3) and rig.bus.state().plugged


def test_what_cannot_be_is_answered_and_changes_nothing(rig, client):
    before = client.request(RigReset(seed=1))
    for request, text in (
        (RigFault(kind="sillent"), "cannot make fault 'sillent'"),
        (RigReset(objects={"cup": (0.0,) * 6 + (1.0,)}), "no object 'cup' in this scene"),
        (RigReset(objects={"vial": (0.0,) * 7}), "vial cannot be put at"),
        (RigReset(objects={"vial": (float("nan"),) * 7}), "objects"),
        (RigReset(q_rad=(float("inf"),) * 6), "q_rad"),
        (RigReset(randomisation_json="{"), "randomisation"),
        (RigReset(randomisation_json="[]"), "randomisation"),
        (RigReset(randomisation_json='{"physics": {"objects": {"cup": {}}}}'), "cup"),
        (RigReset(randomisation_json='{"physics": {"objects": {"vial": {"mass_kg": "x"}}}}'), "randomisation"),
    ):
        with pytest.raises(RemoteError, match=text):
            client.request(request)
    after = client.request(RigReset(objects=before.objects, q_rad=before.q_rad))
    assert after.objects == before.objects and np.isfinite(after.q_rad).all()


def test_fields_are_bounded_on_the_wire():
    far = {"vial": (1e30, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)}
    for wrong in (
        RigFault(kind="noise", probability=2.0),
        RigFault(kind="x" * 200),
        RigFault(kind="noise", ids=[999]),
        RigReset(objects=far),
    ):
        with pytest.raises(BadMessage):
            decode(encode(wrong))


def test_the_process_shows_a_port_and_states_and_ends_when_told(tmp_path):
    sockets = [
        f"deploy.sockets.{name}.{end}=ipc://{tmp_path}/{name}"
        for name in ("rig", "rig_state")
        for end in ("bind", "connect")
    ]
    config, link = load_config(overrides=sockets), tmp_path / "port"
    command = [sys.executable, "-m", "services.cli", "serve", "rig"]
    command += [part for setting in sockets for part in ("--set", setting)]
    process = subprocess.Popen(
        [*command, "--", "--port-link", str(link), "--pseudo-real", "3"], cwd=Path(__file__).parents[3]
    )
    try:
        with make_client(config, "rig", timeout_s=PATIENCE_S) as client, make_subscriber(config, "rig_state") as states:
            state = client.request(RigReset(seed=2))
            assert state.port == os.path.realpath(link)
            end = time.monotonic() + PATIENCE_S
            while (received := states.receive(1.0)) is None or not isinstance(received[1], RigState):
                assert time.monotonic() < end
            assert received[1].looks == draw_rig(config, 3).looks
            port = sdk.PortHandler(str(link))
            assert port.setBaudRate(1_000_000)
            assert sdk.PacketHandler(0).read2ByteTxRx(port, 1, 3)[0] == 777
            port.closePort()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
        assert not os.path.lexists(link)
    finally:
        process.kill()
        process.wait()
