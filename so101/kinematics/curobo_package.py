"""Everything that depends on which `curobo` is installed, and the work-arounds; no other file knows.

Two packages provide the same Python module: NVIDIA's cuRobo 2 (CUDA) and curobo-metal (its API on torch, CPU or Apple
Metal). Their public names are equal; what differs is written here:

- NVIDIA's fused L-BFGS kernels keep a whole problem in registers: with few joints they have been seen to fail, and on
  sm_120 to need more registers than there are ("too many resources requested for launch"). The torch form of the same
  steps is chosen by configuration, and CUDA graphs, which capture those kernels, are off.
- curobo-metal refines solutions with a gradient descent that ignores the weights of the pose axes (version 1.0.1, its
  solver_ik.py): on five joints it trades position for rotation nobody can serve. Its Levenberg-Marquardt stage does
  honour them, so that stage gets all the iterations and the refinement is told that everything is good enough.
- NVIDIA multiplies an axis' error by its weight before squaring, curobo-metal the squared error.
- curobo-metal takes robots from files only, and pads every batch to the largest one configured.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from so101.config.ik import AxisWeights, CuroboConfig, SolveEffort
from so101.errors import ConfigError

METAL = "curobo-metal"
TOOL_FRAME = "ee"
_INSTALL = "`pip install curobo-metal` (CPU), or NVIDIA's cuRobo 2 by its own instructions (CUDA)"
_LBFGS = "content/configs/task/ik/lbfgs_ik.yml"
_NEVER_REACHED = 1.0e3  # m and rad: a tolerance everything meets
_ALWAYS_REFINE = 1.0e-9  # m and rad: a tolerance nothing meets


@cache
def installed_package() -> str:
    """Name of the distribution that provides `curobo`.

    Raises:
        ConfigError: none, two, or one with another API.
    """
    found = sorted({name.lower() for name in importlib.metadata.packages_distributions().get("curobo", [])})
    return choose_package(found, importlib.util.find_spec("curobo") is not None)


def choose_package(distributions: list[str], importable: bool) -> str:
    """The one distribution to use of those that provide `curobo`.

    Raises:
        ConfigError: none, or more than one: they overwrite each other's files.
    """
    if not importable:
        raise ConfigError(
            f"cuRobo was chosen (ik.yaml: backend, or skillgen.yaml: transit.planner) and is not installed; run "
            f"{_INSTALL}, or set ik.backend=jacobian and skillgen.transit.planner=interpolation"
        )
    if len(distributions) > 1:
        names = " and ".join(distributions)
        raise ConfigError(
            f"{names} are both installed and both provide the module 'curobo': they overwrite each other's files. Run "
            f"`pip uninstall {' '.join(distributions)}`, then install one of them: {_INSTALL}"
        )
    return distributions[0] if distributions else "curobo from a source tree"


def is_metal() -> bool:
    return installed_package() == METAL


def load() -> Any:
    """The classes of cuRobo used here, as attributes of one namespace.

    Raises:
        ConfigError: cuRobo cannot be used; says why and what to do.
    """
    name = installed_package()
    try:
        return _classes()
    except ImportError as error:
        raise ConfigError(
            f"{name} is installed, but its API is not that of cuRobo 2 ({error}); needed is {_INSTALL}"
        ) from error


@cache
def _classes() -> Any:
    from types import SimpleNamespace

    from curobo.inverse_kinematics import InverseKinematics, InverseKinematicsCfg
    from curobo.kinematics import Kinematics, KinematicsCfg
    from curobo.types import DeviceCfg, GoalToolPose, JointState, ToolPoseCriteria

    return SimpleNamespace(
        InverseKinematics=InverseKinematics,
        InverseKinematicsCfg=InverseKinematicsCfg,
        Kinematics=Kinematics,
        KinematicsCfg=KinematicsCfg,
        DeviceCfg=DeviceCfg,
        GoalToolPose=GoalToolPose,
        JointState=JointState,
        ToolPoseCriteria=ToolPoseCriteria,
    )


@cache
def device() -> Any:
    """cuRobo's DeviceCfg: the CPU for curobo-metal (its Metal kernels give no equal bits), CUDA for NVIDIA's."""
    import torch

    return load().DeviceCfg(device=torch.device("cpu" if is_metal() else "cuda:0"))


def axis_weights(weights: AxisWeights) -> list[float]:
    """Weights by name to cuRobo 2's vector: x, y, z, then the rotations. The only place that knows the order.

    (cuRobo 1's PoseCostMetric has the rotations first.) They are meant for squared errors, see the module's text.
    """
    vector = [weights.x, weights.y, weights.z, weights.rot_x, weights.rot_y, weights.rot_z]
    return vector if is_metal() else [math.sqrt(w) for w in vector]


def make_solver(robot: dict[str, Any], settings: CuroboConfig, effort: SolveEffort, batch: int) -> Any:
    """An InverseKinematics for `batch` targets from `effort.seeds` start joints each.

    Args:
        robot: the robot description, `so101.kinematics.curobo_robot.robot_description`.
    """
    curobo = load()
    with tempfile.TemporaryDirectory() as folder:
        config = curobo.InverseKinematicsCfg.create(
            write_robot(robot, Path(folder)),
            optimizer_configs=[_lbfgs(settings, effort)],
            num_seeds=effort.seeds,
            seed_solver_num_seeds=effort.seeds,
            max_batch_size=batch,
            position_tolerance=_ALWAYS_REFINE,
            orientation_tolerance=_ALWAYS_REFINE,
            self_collision_check=settings.self_collision.enabled and not is_metal(),  # there it has no part in a solve
            seed_position_weight=settings.position_gain,
            seed_orientation_weight=settings.rotation_gain,
            random_seed=settings.seed,
            use_cuda_graph=False,
            device_cfg=device(),
        )
        solver = curobo.InverseKinematics(config)
    if is_metal():
        stage = solver.seed_ik_solver.config
        stage.max_iterations, stage.inner_iterations = effort.iterations, 1
        solver.config.position_tolerance = solver.config.orientation_tolerance = _NEVER_REACHED
    solver.update_tool_pose_criteria(
        {
            TOOL_FRAME: curobo.ToolPoseCriteria(
                terminal_pose_axes_weight_factor=axis_weights(settings.weights), device_cfg=device()
            )
        }
    )
    return solver


def _lbfgs(settings: CuroboConfig, effort: SolveEffort) -> dict[str, Any]:
    """cuRobo's own L-BFGS settings without the fused kernels, with our iterations and weights."""
    values = yaml.safe_load(resources.files("curobo").joinpath(_LBFGS).read_text(encoding="utf-8"))
    optimizer = values["optimizer"]
    for key in optimizer:
        if key.startswith("use_cuda_kernel"):
            optimizer[key] = False
    optimizer["num_iters"] = effort.iterations
    optimizer["inner_iters"] = math.gcd(effort.iterations, optimizer["inner_iters"])  # must divide num_iters
    pose = values["rollout"]["cost_cfg"]["tool_pose_cfg"]
    pose["weight"][1] = pose["weight"][0] * settings.rotation_gain / settings.position_gain
    return values


def make_kinematics(robot: dict[str, Any]) -> Any:
    """A differentiable Kinematics: joints to the tool frame and all collision spheres."""
    curobo = load()
    with tempfile.TemporaryDirectory() as folder:
        config = curobo.KinematicsCfg.from_robot_yaml_file(write_robot(robot, Path(folder)), device_cfg=device())
        return curobo.Kinematics(config)


def write_robot(robot: dict[str, Any], folder: Path) -> str:
    """The description as files below `folder`; its path."""
    urdf = folder / "so101.urdf"
    urdf.write_text(robot["urdf"], encoding="utf-8")
    kinematics = {**robot["kinematics"], "urdf_path": str(urdf), "asset_root_path": str(folder)}
    path = folder / "so101.yml"
    path.write_text(yaml.safe_dump({"robot_cfg": {"kinematics": kinematics}}, sort_keys=False), encoding="utf-8")
    return str(path)


def joint_state(q: Any, names: list[str]) -> Any:
    """cuRobo's JointState of joints (n, 5), rad."""
    import torch

    cfg = device()
    tensor = q if isinstance(q, torch.Tensor) else torch.as_tensor(np.asarray(q), dtype=cfg.dtype, device=cfg.device)
    return load().JointState.from_position(tensor, joint_names=names)


def tool_goal(pos_quat: np.ndarray) -> Any:
    """cuRobo's goal for (B, 7) position m and quaternion w x y z of the tool frame in base."""
    import torch

    cfg = device()
    values = torch.as_tensor(pos_quat, dtype=cfg.dtype, device=cfg.device)
    return load().GoalToolPose(
        [TOOL_FRAME], values[:, :3].reshape(-1, 1, 1, 1, 3), values[:, 3:].reshape(-1, 1, 1, 1, 4)
    )
