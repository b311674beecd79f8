"""A servo bus without an arm: a serial port that speaks the STS protocol, with a plant behind it.

``with VirtualBus(config) as bus:`` and open ``bus.port`` as if it were ``/dev/ttyACM0``.
"""

from so101.robot.virtual.arm import BusState
from so101.robot.virtual.bus import VirtualBus, VirtualBusError
from so101.robot.virtual.calibration import made_calibration
from so101.robot.virtual.faults import Fault, FaultError
from so101.robot.virtual.plant import KinematicPlant, Plant

__all__ = [
    "BusState",
    "Fault",
    "FaultError",
    "KinematicPlant",
    "Plant",
    "VirtualBus",
    "VirtualBusError",
    "made_calibration",
]
