"""SE(3) and quaternions, the only place rotations are written. numpy here; the batched torch side is `se3_torch`."""

from so101.geometry.se3 import (
    align_about_axis,
    interpolate_pose,
    invert_pose,
    make_pose,
    pose_from_pos_quat,
    pose_to_pos_quat,
    quat_from_rotation,
    rotation_about_axis,
    rotation_angle,
    rotation_from_quat,
    rotation_from_rotation_vector,
    rotation_vector,
)

__all__ = [
    "align_about_axis",
    "interpolate_pose",
    "invert_pose",
    "make_pose",
    "pose_from_pos_quat",
    "pose_to_pos_quat",
    "quat_from_rotation",
    "rotation_about_axis",
    "rotation_angle",
    "rotation_from_quat",
    "rotation_from_rotation_vector",
    "rotation_vector",
]
