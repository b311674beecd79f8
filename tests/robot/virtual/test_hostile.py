"""Nothing that comes over the wire or the socket stops the virtual rig."""

from __future__ import annotations

import gc
import os
import resource

import numpy as np
import pytest
import zmq

from proto.codec import encode
from proto.messages.common import Ping, Pong
from proto.messages.rig import RigFault, RigMend, RigReset, RigTruth
from proto.sockets import Client, Server
from services.driver.rig import Rig
from so101.robot.virtual import VirtualBus, packets
from so101.robot.virtual.packets import Packet, Parser
from so101.robot.virtual.servo import VirtualServo
from so101.robot.virtual.twin_plant import TwinPlant
from tests.proto.fuzz import bad_frames

COUNT = 10_000
FLAT_KIB = 20_000


def _grown_kib(before: int) -> int:
    gc.collect()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def test_ten_thousand_hostile_instructions_leave_a_servo_that_answers(vial_config):
    rng = np.random.default_rng(0)
    servo = VirtualServo({"id": 1}, vial_config.robot.virtual.servo, 2000.0)
    parser, answered = Parser(), 0
    for _ in range(COUNT):
        instruction = int(rng.choice([1, 2, 3, 4, 5, 6, 0x82, 0x83, int(rng.integers(256))]))
        good = packets.pack(int(rng.choice([1, 2, 0xFE])), instruction, rng.bytes(int(rng.integers(0, 30))))
        mangled = bytearray(good)
        if rng.random() < 0.3:
            mangled[int(rng.integers(len(mangled)))] ^= 1 << int(rng.integers(8))
        if rng.random() < 0.2:
            del mangled[int(rng.integers(len(mangled) + 1)) :]
        for packet in parser.feed(bytes(mangled)):
            answered += servo.handle(packet) is not None
        servo.motor.command(0.002)
        servo.motor.feel(2000.0, 0.0, 0.0, 0.002)
    parser.clear()
    assert answered > 100
    (packet,) = parser.feed(packets.pack(servo.id, packets.PING))
    assert servo.handle(packet) is not None
    assert servo.handle(Packet(servo.id, packets.READ, bytes([3, 2])))[5:7] == (777).to_bytes(2, "little")


@pytest.fixture(scope="module")
def rig(vial_config):
    plant = TwinPlant(vial_config)
    with VirtualBus(vial_config, plant=plant, pacing=False, real_time=False) as bus:
        yield Rig(bus, plant)


def test_ten_thousand_malformed_messages_leave_the_rig_as_it_was(rig):
    pose = (0.2, 0.1, 0.05, 1.0, 0.0, 0.0, 0.0)
    messages = (RigReset(objects={"vial": pose}), RigTruth(), RigFault(kind="noise"), RigMend(), Ping())
    good = [encode(message) for message in messages]
    with Server("tcp://127.0.0.1:0", rig.handlers, name="rig", max_message_bytes=1 << 20) as server:
        socket = zmq.Context.instance().socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(server.endpoint)
        with Client(server.endpoint, timeout_s=30) as client:
            before = None
            for number, frames in enumerate(bad_frames(good, COUNT)):
                socket.send_multipart([number.to_bytes(8, "little"), *frames])
                if number % 200 == 199:
                    assert isinstance(client.request(Ping()), Pong)
                    while socket.poll(0):
                        socket.recv_multipart()
                if number == COUNT // 5:
                    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            state = client.request(RigReset())
            assert set(state.objects) == set(rig.plant.config.objects)
        socket.close()
    assert _grown_kib(before) < FLAT_KIB
    assert os.path.lexists(rig.bus.port)
