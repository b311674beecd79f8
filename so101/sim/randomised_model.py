"""How a model takes on the physics of a draw (`so101.sim.randomisation`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from so101.config import Config
from so101.config.scene import PropConfig
from so101.errors import SimulationError
from so101.geometry import make_pose, pose_to_pos_quat, rotation_about_axis
from so101.geometry.frames import base_from_world
from so101.sim.bake import T_world_base, add_prop
from so101.sim.servo import set_servo

_UP = np.array([0.0, 0.0, 1.0])

# Fields of a model that a draw may change; what MuJoCo derives from them is computed by mj_setConst.
_FIELDS = (
    "body_mass", "body_inertia", "body_ipos", "body_iquat", "body_pos", "body_quat", "body_gravcomp",
    "geom_size", "geom_rbound", "geom_aabb", "geom_friction", "dof_damping", "dof_armature", "dof_frictionloss",
    "actuator_gainprm", "actuator_biasprm", "actuator_delay",
)  # fmt: skip
# Of those, what depends on the shape and mass of a prop.
_BODY_FIELDS = ("body_mass", "body_inertia", "body_ipos", "body_iquat")
_GEOM_FIELDS = ("geom_size", "geom_rbound", "geom_aabb")


def resized(prop: PropConfig, draw: Mapping[str, float]) -> PropConfig:
    """`prop` with the mass, sliding friction and diameter of a draw."""
    change = draw.get("diameter_change_m", 0.0) / 2
    geoms = [
        geom.model_copy(update={"size_m": [geom.size_m[0] + change, *geom.size_m[1:]]}) if geom.is_round else geom
        for geom in prop.geoms
    ]
    friction = (draw.get("friction", prop.contact.friction[0]), *prop.contact.friction[1:])
    contact = prop.contact.model_copy(update={"friction": friction})
    return prop.model_copy(update={"geoms": geoms, "contact": contact, "mass_kg": draw.get("mass_kg", prop.mass_kg)})


class ModelRandomiser:
    """Writes draws into copies of a nominal model.

    Args:
        nominal: baked from `config`; never changed.
    """

    def __init__(self, config: Config, nominal: mujoco.MjModel) -> None:
        self._config, self._nominal = config, nominal
        self._objects = config.objects
        self._scratch = mujoco.MjData(nominal)
        self._body_nodes = int((nominal.body_bvhadr + nominal.body_bvhnum).max())  # the rest belongs to meshes
        self._jaws = [nominal.geom(box.name).id for box in config.robot.jaw_boxes]

    def apply(self, model: mujoco.MjModel, physics: Mapping[str, Any]) -> None:
        """Make `model`, a copy of the nominal one, what it would be if baked with the values of `physics`. What it was
        before does not matter.

        Raises:
            SimulationError: the draw belongs to another scene, task or randomisation.
        """
        for field in _FIELDS:
            getattr(model, field)[:] = getattr(self._nominal, field)
        model.bvh_aabb[: self._body_nodes] = self._nominal.bvh_aabb[: self._body_nodes]
        self._set_joints(model, physics.get("joints", {}))
        if "jaw_friction" in physics:
            model.geom_friction[self._jaws, 0] = physics["jaw_friction"]
        for name, draw in physics.get("objects", {}).items():
            self._set_object(model, name, draw)
        for name, draw in physics.get("statics", {}).items():
            self._set_static(model, name, draw)
        for name in (*physics.get("racked", {}), *physics.get("distractors", {})):
            model.body_gravcomp[self._body(name)] = 0.0
        mujoco.mj_setConst(model, self._scratch)
        model.stat.meaninertia = model.dof_M0.mean()  # scales the solver's tolerance; left alone by mj_setConst

    def _set_joints(self, model: mujoco.MjModel, values: Mapping[str, list[float]]) -> None:
        longest = max(values.get("delay_s", [0.0]))
        kept = (int(model.actuator_history[:, 0].min()) - 1) * model.opt.timestep
        if longest > max(kept, 0.0):
            raise SimulationError(
                f"cannot delay commands by {longest:g} s as drawn: this model keeps those of {max(kept, 0):g} s; use "
                "the scene.randomisation that the draw was made with, or raise robot.max_delay_s"
            )
        for joint in range(len(self._config.robot.joints)):
            set_servo(model, joint, {key: column[joint] for key, column in values.items()})

    def _set_object(self, model: mujoco.MjModel, name: str, draw: Mapping[str, float]) -> None:
        body = self._body(name)
        first, count = int(model.body_geomadr[body]), int(model.body_geomnum[body])
        geoms = slice(first, first + count)
        if "friction" in draw:
            model.geom_friction[geoms, 0] = draw["friction"]
        prop = self._config.scene.props[self._objects[name].prop]
        if "diameter_change_m" in draw:  # MuJoCo's compiler knows inertia and bounding boxes
            alone = mujoco.MjSpec()
            add_prop(alone, name, resized(prop, draw), np.eye(4))
            part = alone.compile()
            for field in _BODY_FIELDS:
                getattr(model, field)[body] = getattr(part, field)[1]
            for field in _GEOM_FIELDS:
                getattr(model, field)[geoms] = getattr(part, field)
            adr, num = int(model.body_bvhadr[body]), int(model.body_bvhnum[body])
            there = int(part.body_bvhadr[1])
            model.bvh_aabb[adr : adr + num] = part.bvh_aabb[there : there + num]
        elif "mass_kg" in draw:
            ratio = draw["mass_kg"] / self._nominal.body_mass[body]
            model.body_mass[body] = draw["mass_kg"]
            model.body_inertia[body] *= ratio

    def _set_static(self, model: mujoco.MjModel, name: str, draw: Mapping[str, float]) -> None:
        body = self._body(name)
        position = np.array(self._config.scene.static_positions_m[name]) + [draw["x_m"], draw["y_m"], 0.0]
        T_world_static = make_pose(rotation_about_axis(_UP, draw["yaw_rad"]), position)
        pose = pose_to_pos_quat(base_from_world(T_world_base(self._config), T_world_static))
        model.body_pos[body], model.body_quat[body] = pose[:3], pose[3:]

    def _body(self, name: str) -> int:
        body = mujoco.mj_name2id(self._nominal, mujoco.mjtObj.mjOBJ_BODY, name)
        if body < 0:
            known = ", ".join((*self._objects, *self._config.scene.statics))
            raise SimulationError(
                f"a draw is about {name!r}, which this scene does not have; it has {known}: use the task and the "
                "scene.randomisation that the draw was made with"
            )
        return body
