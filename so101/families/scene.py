"""The MuJoCo model of a family: the stock arm as the family sets it up, statics, slots, cameras."""

from __future__ import annotations

import mujoco
import numpy as np

from so101.config import Config
from so101.errors import SimulationError, did_you_mean
from so101.families.declaration import Body, Family, Slot
from so101.sim.bake import (
    ARM_BITS,
    COLLISION_GROUP,
    GEOMS,
    PROP_BITS,
    VISUAL_GROUP,
    apply_contact,
    bake,
    bake_collisions,
    bake_servos,
    robot_mjcf_path,
    set_options,
    volume_m3,
)

TOUCH = "touch/{slot}/{body}"  # contact sensors: does the slot touch that body of the hand
GROUND = "ground"  # drawn under everything, without contact
EXTENT_M = 1.0  # parked slots far away would otherwise move the clipping planes


def hand_bodies(family: Family) -> tuple[str, str]:
    """The bodies of the fixed and of the moving jaw."""
    fixed, moving = family.config.robot.hull_free_bodies
    return fixed, moving


def slot_names(family: Family) -> tuple[str, ...]:
    """Free objects of the family, in the order of the observation."""
    declared = family.declaration
    if declared.workshop_task is None:
        return tuple(declared.slots)
    return tuple(workshop(family).task.active.objects)


def workshop(family: Family) -> Config:
    """The configuration of the pipeline for a family that borrows its scene."""
    config = family.config
    task = config.task.model_copy(update={"name": family.declaration.workshop_task})
    return config.without_randomisation.model_copy(update={"task": task})


def build(family: Family, *, looks: bool = False) -> mujoco.MjSpec:
    """The spec of a family's model; `looks`: with visual meshes, cameras and lights, which physics does without.

    Raises:
        SimulationError: a site, box, joint or camera names a part that the model does not have.
    """
    spec = _workshop_spec(family, looks) if family.declaration.workshop_task else _declared_spec(family, looks)
    for slot in slot_names(family):
        for body in hand_bodies(family):
            # intprm: what is asked (1: whether it was found), reduction, number of contacts
            spec.add_sensor(
                name=TOUCH.format(slot=slot, body=body), type=mujoco.mjtSensor.mjSENS_CONTACT,
                objtype=mujoco.mjtObj.mjOBJ_BODY, objname=slot, reftype=mujoco.mjtObj.mjOBJ_BODY, refname=body,
                intprm=[1, 0, 1],
            )  # fmt: skip
    return spec


_compiled: dict[tuple[str, bool], mujoco.MjModel] = {}


def compiled(family: Family, *, looks: bool = False) -> mujoco.MjModel:
    """The model, shared within the process: not to be written to.

    Raises:
        SimulationError: as `build`.
    """
    key = (family.digest + (family.declaration.model_dump_json() if looks else ""), looks)
    if key not in _compiled:
        while len(_compiled) >= 8:
            del _compiled[next(iter(_compiled))]
        _compiled[key] = build(family, looks=looks).compile()
    return _compiled[key]


def _workshop_spec(family: Family, looks: bool) -> mujoco.MjSpec:
    spec = bake(workshop(family), looks=looks)
    spec.option.enableflags &= ~int(mujoco.mjtEnableBit.mjENBL_SLEEP)  # what sleeps is not in the state
    return spec


def _declared_spec(family: Family, looks: bool) -> mujoco.MjSpec:
    declared, config = family.declaration, family.config
    spec = mujoco.MjSpec.from_file(str(robot_mjcf_path()))
    spec.modelname = family.name
    set_options(spec.option, declared.control.timestep_s, declared.physics)
    try:
        bake_collisions(spec, config, declared.arm.jaw_contact)
        bake_servos(spec, config)
    except (AttributeError, KeyError) as error:
        raise SimulationError(f"the stock SO-101 model lacks a part that robot.yaml names ({error})") from error
    _set_up_arm(spec, family)
    for name, static in declared.statics.items():
        _add_body(spec, name, static, static.position_m)
    for number, (name, slot) in enumerate(declared.slots.items()):
        x, y, z = declared.park.position_m
        _add_body(spec, name, slot, (x + number * declared.park.step_m, y, z))
    spec.stat.extent = EXTENT_M
    spec.stat.center = (0.25, 0.0, 0.1)
    if looks:
        _add_looks(spec, family)
    else:
        for geom in list(spec.geoms):
            if geom.type == mujoco.mjtGeom.mjGEOM_MESH and geom.classname.name == "visual":
                spec.delete(geom)
    return spec


def _part(spec: mujoco.MjSpec, family: Family, key: str, body: str) -> mujoco.MjsBody:
    if body == "world":
        return spec.worldbody
    found = spec.body(body)
    if found is None:
        known = [each.name for each in spec.bodies if each.name]
        raise SimulationError(
            f"families/{family.name}: {key} names the body {body!r}; the model has {', '.join(known)}"
            f"{did_you_mean(body, known)}"
        )
    return found


def _set_up_arm(spec: mujoco.MjSpec, family: Family) -> None:
    arm, joints = family.declaration.arm, family.config.robot.joint_names
    spec.body("base").pos = arm.base_position_m
    for name, site in arm.sites.items():
        _part(spec, family, f"arm.sites.{name}.body", site.body).add_site(
            name=name, pos=site.position_m, group=COLLISION_GROUP
        )
    for box in arm.boxes:
        geom = _part(spec, family, f"arm.boxes.{box.name}.body", box.body).add_geom(
            name=box.name, type=mujoco.mjtGeom.mjGEOM_BOX, pos=box.center_m, size=box.half_size_m, mass=0.0,
            group=VISUAL_GROUP if box.visible else COLLISION_GROUP, rgba=arm.color_rgba or (0.8, 0.8, 0.8, 1.0),
            **ARM_BITS,
        )  # fmt: skip
        apply_contact(geom, family.config.scene.arm_contact)
    if arm.gripper_site not in [site.name for site in spec.sites]:
        known = [site.name for site in spec.sites]
        raise SimulationError(
            f"families/{family.name}: arm.gripper_site is {arm.gripper_site!r}; the model has {', '.join(known)}"
        )
    for name, limits in arm.joint_limits_rad.items():
        if name not in joints:
            raise SimulationError(
                f"families/{family.name}: arm.joint_limits_rad names {name!r}; joints: {', '.join(joints)}"
            )
        spec.joint(name).range = limits
    if arm.servos == "robot":
        return
    servos = arm.servos
    for name in joints:
        joint, actuator = spec.joint(name), spec.actuator(name)
        joint.damping[:] = 0.0
        joint.damping[0] = servos.damping_nm_s_per_rad
        joint.frictionloss = servos.friction_nm
        joint.armature = servos.armature_kg_m2
        actuator.set_to_position(kp=servos.stiffness_nm_per_rad, kv=servos.velocity_gain_nm_s_per_rad)
        actuator.forcerange = (-servos.force_limit_nm, servos.force_limit_nm)
        actuator.delay, actuator.nsample = 0.0, 0


def _add_body(spec: mujoco.MjSpec, name: str, body: Body, position_m: tuple[float, float, float]) -> None:
    added = spec.worldbody.add_body(name=name, pos=position_m)
    if isinstance(body, Slot):
        added.add_freejoint(name=name)
    volume = sum(volume_m3(geom.type, geom.size_m) for geom in body.geoms if geom.collide)
    for geom in body.geoms:
        shape = added.add_geom(
            name=f"{name}/{geom.name}", type=GEOMS[geom.type], size=(list(geom.size_m) + [0.0, 0.0])[:3],
            pos=geom.placed_m, quat=(np.cos(geom.ring_rad / 2), 0.0, 0.0, np.sin(geom.ring_rad / 2)), rgba=geom.rgba,
            group=VISUAL_GROUP if geom.visible else COLLISION_GROUP,
            **(PROP_BITS if geom.collide else {"contype": 0, "conaffinity": 0}),
        )  # fmt: skip
        if isinstance(body, Slot):
            shape.density = body.mass_kg / volume if geom.collide else 0.0
        apply_contact(shape, body.contact)


def _add_looks(spec: mujoco.MjSpec, family: Family) -> None:
    from so101.sim.meshes import apply_visual_meshes

    declared = family.declaration
    apply_visual_meshes(spec, family.config)
    for name, camera in declared.cameras.items():
        x, y = np.array(camera.xyaxes[:3]), np.array(camera.xyaxes[3:])
        quat = np.zeros(4)
        mujoco.mju_mat2Quat(quat, np.column_stack([x, y, np.cross(x, y)]).ravel())
        _part(spec, family, f"cameras.{name}.body", camera.body).add_camera(
            name=name, pos=camera.position_m, quat=quat, fovy=camera.fovy_deg,
            resolution=(declared.picture.width_px, declared.picture.height_px),
        )  # fmt: skip
    looks, visual = declared.looks, spec.visual
    visual.headlight.ambient = [looks.ambient] * 3
    visual.headlight.diffuse = [looks.diffuse] * 3
    visual.headlight.specular = [0.0] * 3
    visual.global_.offwidth, visual.global_.offheight = 1280, 960
    visual.map.znear, visual.map.zfar = 0.005, 20.0
    visual.map.shadowclip = 0.8  # arm, desk and tower
    visual.quality.shadowsize = looks.shadow_map_px
    visual.quality.offsamples = 0  # pictures are drawn larger and averaged where they must be smooth
    for light in list(spec.lights):
        spec.delete(light)
    spec.worldbody.add_light(
        name="sun", type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=(0, 0, 3), dir=(0.2, -0.15, -0.97),
        diffuse=[looks.sun] * 3, ambient=[0.0] * 3, specular=[0.0] * 3, castshadow=True,
    )  # fmt: skip
    spec.add_texture(
        name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, builtin=mujoco.mjtBuiltin.mjBUILTIN_FLAT,
        rgb1=looks.background_rgb, rgb2=looks.background_rgb, width=8, height=48,
    )  # fmt: skip
    spec.worldbody.add_geom(
        name=GROUND, type=mujoco.mjtGeom.mjGEOM_BOX, size=(2.0, 2.0, 0.01), pos=(0.0, 0.0, -0.03), contype=0,
        conaffinity=0, group=VISUAL_GROUP, rgba=(*(0.8 * np.array(looks.background_rgb)), 1.0),
    )  # fmt: skip
    if declared.arm.color_rgba is not None:
        for material in spec.materials:
            motor = material.name.startswith(family.config.render.motor_mesh_prefix)
            material.rgba = family.config.robot.motor_color_rgba if motor else declared.arm.color_rgba
            material.specular, material.shininess = 0.1, 0.1
