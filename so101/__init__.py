"""SO-101 sim twin: a pure library about one arm, its physics, its data and its learning.

Shape letters used in every docstring: B environments or batch, T time (frames), J joints (6: five body joints and the
jaw), A arm joints (5, without the jaw), S subtasks, N anything local. Poses are ``T_A_B`` = pose of frame B in frame A,
(..., 4, 4). Frames: ``world``, ``base`` (robot base), ``ee`` (pinch point), ``obj``, ``cam``. Units are SI: m, rad, s,
kg; quaternions are w x y z.
"""

__version__ = "0.1.0"
