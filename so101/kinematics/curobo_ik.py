"""IK by cuRobo: many start joints at once, the best solution by our own measure.

cuRobo returns all it found; which of them is taken is decided here, so that both packages and any number of seeds
choose alike: free of self-collision, then within reach, then the least rotation error the hand cares about, where a
joint far from where it is now counts as well. The chosen one gets some Jacobian steps, which treat joints at their
limits exactly, where that brings it nearer. A solve starts from its own arguments and fixed start joints alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.stats import qmc

from so101.config import Config
from so101.config.ik import SolveEffort
from so101.geometry import pose_to_pos_quat, rotation_vector
from so101.kinematics import curobo_package as package
from so101.kinematics.arm import NUM_ARM_JOINTS, ArmKinematics
from so101.kinematics.curobo_robot import LinkSpheres, link_spheres, robot_description, self_collision_pairs
from so101.kinematics.jacobian_ik import IkResult, JacobianIk


class SelfCollision:
    """Whether spheres of links that are compared overlap by more than is allowed."""

    def __init__(self, config: Config, kinematics: ArmKinematics) -> None:
        settings = config.ik.curobo.self_collision
        self._enabled, self._overlap_m = settings.enabled, settings.allowed_overlap_m
        self._spheres: LinkSpheres = link_spheres(config.ik.curobo.spheres)
        self._pairs = self_collision_pairs(config)
        self._reach = self._spheres.radii[self._pairs].sum(1)
        self._body = kinematics.body_ids([name.removesuffix("_link") for name in self._spheres.link])
        self._kinematics = kinematics

    def centers(self, q: np.ndarray) -> np.ndarray:
        """(n, 3) sphere centres in base, m, of joints q (5,) rad."""
        position, rotation = self._kinematics.bodies(q, self._body)
        return position + np.einsum("nij,nj->ni", rotation, self._spheres.centers)

    def depth_m(self, q: np.ndarray) -> float:
        """How far the deepest pair overlaps beyond what is allowed; negative when free. q (5,) rad."""
        centers = self.centers(q)
        gap = np.linalg.norm(centers[self._pairs[:, 0]] - centers[self._pairs[:, 1]], axis=1) - self._reach
        return float(-gap.min() - self._overlap_m)

    def free(self, q: np.ndarray) -> bool:
        """Whether joints q (5,) rad are free of self-collision; always, when it is not looked at."""
        return not self._enabled or self.depth_m(q) <= 0.0


class CuroboIk:
    """`so101.kinematics.IkBackend` on cuRobo.

    Raises:
        ConfigError: cuRobo is missing, there twice, or another one.
    """

    def __init__(self, config: Config, kinematics: ArmKinematics | None = None) -> None:
        package.load()
        self.settings = config.ik.curobo
        self.kinematics = kinematics or ArmKinematics(config)
        self.self_collision = SelfCollision(config, self.kinematics)
        self._jacobian = JacobianIk(config, self.kinematics)
        self._robot = robot_description(config)
        self._solvers: dict[tuple[int, int, int], object] = {}
        self._lower, self._upper = self.kinematics.lower[:NUM_ARM_JOINTS], self.kinematics.upper[:NUM_ARM_JOINTS]
        halton = qmc.Halton(NUM_ARM_JOINTS, seed=self.settings.seed)
        most = max(effort.seeds for effort in (self.settings.goal, self.settings.near, self.settings.follow))
        self._starts = self._lower + (self._upper - self._lower) * halton.random(most)  # (most, 5)
        weights, self._in_ee = config.ik.jacobian.weights, config.ik.jacobian.rotation_frame == "ee"
        self._w_rot = np.array([weights.rot_x, weights.rot_y, weights.rot_z])

    def solve(self, q: np.ndarray, T_base_target: np.ndarray, iterations: int | None = None) -> IkResult:
        """The solution near q (5,) rad: the next pose of a path (`follow`), or, when `iterations` says that it is
        farther off, a pose in the neighbourhood (`near`)."""
        effort = self.settings.follow if iterations is None else self.settings.near
        return self._solve(self._seeds(np.asarray(q, float)[None], effort), T_base_target[None], effort)[0]

    def solve_from(
        self, starts: np.ndarray, T_base_target: np.ndarray, iterations: int | None = None
    ) -> Iterator[IkResult]:
        """The one best solution for a goal (4, 4): from starts (n, 5) rad, of which the first is where the arm is, and
        from fixed joints all over the range."""
        effort = self.settings.goal
        yield self._solve(self._seeds(np.asarray(starts, float), effort), T_base_target[None], effort)[0]

    def solve_batch(self, q: np.ndarray, T_base_targets: np.ndarray) -> list[IkResult]:
        """Goals (B, 4, 4) at once, each as `solve_from` from its q (B, 5) rad."""
        effort = self.settings.goal
        seeds = np.concatenate([self._seeds(row[None], effort) for row in np.asarray(q, float)])
        return self._solve(seeds, T_base_targets, effort)

    def candidates(self, seeds: np.ndarray, T_base_targets: np.ndarray, effort: SolveEffort) -> np.ndarray:
        """All solutions (B, S, 5) rad cuRobo finds for (B, 4, 4) from start joints (B, S, 5)."""
        solver = self._solver(effort, len(seeds))
        cfg = package.device()
        start = torch.as_tensor(seeds, dtype=cfg.dtype, device=cfg.device)
        result = solver.solve_pose(
            package.tool_goal(pose_to_pos_quat(T_base_targets)), seed_config=start, return_seeds=seeds.shape[1]
        )
        found = result.solution.detach().cpu().numpy().astype(float).reshape(seeds.shape)
        return np.clip(found, self._lower, self._upper)  # float32 rounds limits outwards

    def _solve(self, seeds: np.ndarray, T_base_targets: np.ndarray, effort: SolveEffort) -> list[IkResult]:
        results = []
        for rows, start, T in zip(self.candidates(seeds, T_base_targets, effort), seeds, T_base_targets, strict=True):
            q = self._choose(np.concatenate([rows, start[:1]]), start[0], T)
            found = self._jacobian.solve(q, T, 0)  # its errors
            finished = self._jacobian.solve(q, T, self.settings.polish_iterations)
            nearer = finished.position_error_m < found.position_error_m
            if nearer and (self.self_collision.free(finished.q) or not self.self_collision.free(q)):
                found = finished
            results.append(found._replace(iterations=effort.iterations + finished.iterations))
        return results

    def _choose(self, rows: np.ndarray, q_now: np.ndarray, T: np.ndarray) -> np.ndarray:
        """The best (5,) of joints (n, 5) for the target, seen from joints q_now (5,)."""
        s = self.settings
        T_found = self.kinematics.fk(rows)
        position = np.linalg.norm(T_found[:, :3, 3] - T[:3, 3], axis=1)
        turn = rotation_vector(T[:3, :3] @ np.swapaxes(T_found[:, :3, :3], 1, 2))  # base axes
        if self._in_ee:
            turn = np.einsum("nji,nj->ni", T_found[:, :3, :3], turn)
        cost = np.linalg.norm(self._w_rot * turn, axis=1)
        cost = cost + s.joint_distance_weight * np.abs(rows - q_now).max(1)
        beyond = np.maximum(position - s.reach_tolerance_m, 0.0)
        order = np.lexsort((cost, np.round(beyond / s.reach_tolerance_m)))
        return rows[next((k for k in order if self.self_collision.free(rows[k])), order[0])]

    def _seeds(self, starts: np.ndarray, effort: SolveEffort) -> np.ndarray:
        """(1, S, 5) start joints: the given ones first, then the fixed ones."""
        given = np.clip(starts[: effort.seeds, :NUM_ARM_JOINTS], self._lower, self._upper)
        return np.concatenate([given, self._starts[: effort.seeds - len(given)]])[None]

    def _solver(self, effort: SolveEffort, batch: int) -> object:
        key = (effort.seeds, effort.iterations, batch)
        if key not in self._solvers:
            self._solvers[key] = package.make_solver(self._robot, self.settings, effort, batch)
        return self._solvers[key]
