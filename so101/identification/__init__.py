"""Servo models from recordings: commands through the twin, compared with the joints that really followed them."""

from so101.identification.comparison import Comparison, compare
from so101.identification.fit import PARAMETERS, Fit, fit_servos, servos_of
from so101.identification.pieces import Piece, choose, read_pieces
from so101.identification.plot import write_plot
from so101.identification.replay import ServoReplay
from so101.identification.rig_file import write_rig

__all__ = [
    "PARAMETERS",
    "Comparison",
    "Fit",
    "Piece",
    "ServoReplay",
    "choose",
    "compare",
    "fit_servos",
    "read_pieces",
    "servos_of",
    "write_plot",
    "write_rig",
]
