"""Trajectory optimisation of a transit on cuRobo's differentiable kinematics.

The path is a cubic B-spline in joint space between fixed ends. Several starts, straight and raised in the middle, are
improved together by gradient descent until one keeps its distance: every sphere of the arm and of the held object from
every obstacle, along the whole path; and spheres of the arm from each other. Among those that do, the shortest and
smoothest wins.

cuRobo's own MotionPlanner is not used: in curobo-metal 1.0.1 its trajectory optimiser has no collision term (it returns
the straight line through the rack and reports success), and one objective that both packages share can be tested here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.interpolate import BSpline

from so101.config import Config
from so101.geometry import pose_from_pos_quat
from so101.kinematics import curobo_package as package
from so101.kinematics.arm import NUM_ARM_JOINTS, ArmKinematics
from so101.kinematics.boxes import RoundedBoxes, distance, fill_with_spheres
from so101.kinematics.curobo_robot import BASE, GRIPPER, link_spheres, robot_description, self_collision_pairs

_DEGREE = 3
_ACTIVE_M = 0.06  # pairs farther apart than this beyond the clearance are left out until the next look
_FINE = 4  # the finished path is looked at this much closer


class CuroboPlanner:
    """Plans in the base frame.

    Raises:
        ConfigError: cuRobo is missing, there twice, or another one.
    """

    def __init__(self, config: Config, kinematics: ArmKinematics) -> None:
        self.settings = config.ik.curobo.planner
        self._robot = package.make_kinematics(robot_description(config))
        self._device = package.device()
        self._arm = kinematics
        spheres = link_spheres(config.ik.curobo.spheres)
        at_rest = {BASE, *(f"{name}_link" for name in config.robot.contact_free_bodies)}
        self._moving = self._index([i for i, link in enumerate(spheres.link) if link not in at_rest])
        self._radii = self._tensor(spheres.radii)
        on_gripper = [i for i, link in enumerate(spheres.link) if link == GRIPPER]
        self._gripper, self._gripper_centers = self._index(on_gripper), spheres.centers[on_gripper]
        self._T_gripper_ee = pose_from_pos_quat([*config.robot.ee_position_m, *config.robot.ee_quat_wxyz])
        self_collision = config.ik.curobo.self_collision
        pairs = self_collision_pairs(config) if self_collision.enabled else np.zeros((0, 2), int)
        self._pairs = self._index(pairs)
        self._pair_reach = self._radii[self._pairs].sum(-1) - self_collision.allowed_overlap_m
        margin = self.settings.limit_margin_rad
        self._low = kinematics.lower[:NUM_ARM_JOINTS] + margin
        self._high = kinematics.upper[:NUM_ARM_JOINTS] - margin
        self._basis = _spline_basis(self.settings.control_points, self.settings.samples)
        self._fine_basis = _spline_basis(self.settings.control_points, _FINE * self.settings.samples)

    def plan(
        self,
        q_from: np.ndarray,
        q_to: np.ndarray,
        obstacles: RoundedBoxes,
        held: RoundedBoxes | None = None,
        T_ee_held: np.ndarray | None = None,
    ) -> np.ndarray | None:
        """(n, 5) joints [rad] from q_from (5,) to q_to (5,) evenly along a free path, or None when none was found.

        Args:
            obstacles: in base.
            held: the object in the hand, in its own frame, at T_ee_held (4, 4).
        """
        s = self.settings
        boxes = [self._tensor(a) for a in (obstacles.T[:, :3, 3], obstacles.T[:, :3, :3], obstacles.half)]
        boxes.append(self._tensor(obstacles.radius))
        carried = self._carried(held, T_ee_held)
        starts = self._starts(np.asarray(q_from, float), np.asarray(q_to, float))
        ends, free = self._tensor(starts[:, [0, -1]]), self._tensor(starts[:, 1:-1]).requires_grad_()
        low, high = self._tensor(self._low), self._tensor(self._high)
        basis = self._tensor(self._basis)
        optimiser = torch.optim.Adam([free], lr=s.step_rad)
        needed, self_needed = self._needed(ends[:1], boxes, carried, len(basis))

        def path(matrix: Any) -> Any:
            return torch.einsum("tk,skj->stj", matrix, torch.cat([ends[:, :1], free, ends[:, 1:]], 1))

        pairs: tuple[Any, ...] = ()
        for iteration in range(s.max_iterations + 1):
            if iteration % s.check_every == 0:
                with torch.no_grad():
                    q = path(basis)
                    gaps, self_gaps = self._gaps(q, boxes, carried)
                    short, self_short = gaps - needed, self_gaps - self_needed
                    clear = (short.amin((1, 2, 3)) >= 0) & (self_short.amin((1, 2)) >= 0)
                    for row in self._by_cost(q, clear):
                        fine = self._fine(path, row)
                        if self._is_free(fine, ends, boxes, carried):
                            return fine.cpu().numpy().astype(float)
                    pairs = (
                        *(short.amin((0, 1)) < _ACTIVE_M).nonzero(as_tuple=True),
                        (self_short.amin((0, 1)) < _ACTIVE_M).nonzero(as_tuple=True)[0],
                    )
            if iteration == s.max_iterations:
                return None
            optimiser.zero_grad()
            q = path(basis)
            penalty = self._penalty(q, boxes, carried, needed, self_needed, pairs)
            cost = self._bend(q) + s.collision_weight * penalty
            cost.sum().backward()
            optimiser.step()
            with torch.no_grad():
                free.copy_(torch.minimum(torch.maximum(free, low), high))
        return None

    def _starts(self, q_from: np.ndarray, q_to: np.ndarray) -> np.ndarray:
        """(S, K, 5) control points: straight in joint space, the hand raised in the middle by each of `lifts_m`."""
        s = self.settings
        share = _greville(s.control_points)
        straight = q_from + share[:, None] * (q_to - q_from)
        starts = []
        for lift in s.lifts_m:
            raised = straight.copy()
            for row, amount in zip(raised[1:-1], np.sin(np.pi * share[1:-1]) * lift, strict=True):
                J = self._arm.jacobian(row)[:3]  # vertical: the least joint motion that lifts the hand straight up
                row += J.T @ np.linalg.solve(J @ J.T + 1e-4 * np.eye(3), [0.0, 0.0, amount])
            starts.append(np.concatenate([raised[:1], np.clip(raised[1:-1], self._low, self._high), raised[-1:]]))
        return np.array(starts)

    def _carried(self, held: RoundedBoxes | None, T_ee_held: np.ndarray | None) -> tuple[Any, Any] | None:
        """The held object's spheres: weights (h, g) of the gripper's sphere centres that give theirs, and radii (h,).

        Any point of a rigid body is an affine combination of others. So no rotation of the tool frame is needed, whose
        way through a quaternion has no finite gradient everywhere in curobo-metal.
        """
        if held is None:
            return None
        centers, radii = fill_with_spheres(held, self.settings.held_sphere_spacing)
        T_gripper_held = self._T_gripper_ee @ T_ee_held
        in_gripper = centers @ T_gripper_held[:3, :3].T + T_gripper_held[:3, 3]
        weights = _homogeneous(in_gripper) @ np.linalg.pinv(_homogeneous(self._gripper_centers))
        return self._tensor(weights), self._tensor(radii)

    def _spheres(self, q: Any, carried: tuple[Any, Any] | None) -> tuple[Any, Any, Any]:
        """Centres (S, T, n, 3) of what must keep clear of obstacles, its radii (n,), and all of the arm's centres."""
        state = self._robot.compute_kinematics(
            package.joint_state(q.reshape(-1, NUM_ARM_JOINTS), self._robot.joint_names)
        )
        arm = state.robot_spheres.reshape(*q.shape[:2], -1, 4)[..., :3]
        centers, radii = arm[:, :, self._moving], self._radii[self._moving]
        if carried is not None:
            held = torch.einsum("hg,stgi->sthi", carried[0], arm[:, :, self._gripper])
            centers, radii = torch.cat([centers, held], 2), torch.cat([radii, carried[1]])
        return centers, radii, arm

    def _gaps(self, q: Any, boxes: list[Any], carried: tuple[Any, Any] | None) -> tuple[Any, Any]:
        """Distances of q (S, T, 5): (S, T, n, M) sphere to obstacle, and (S, T, p) sphere to sphere of the arm, m."""
        centers, radii, arm = self._spheres(q, carried)
        gaps = distance(centers.unsqueeze(3), *boxes) - radii[:, None]
        return gaps, self._self_gaps(arm, self._pairs, self._pair_reach)

    def _self_gaps(self, arm: Any, pairs: Any, reach: Any) -> Any:
        difference = arm[:, :, pairs[:, 0]] - arm[:, :, pairs[:, 1]]
        gaps = (difference.square().sum(-1) + 1e-12).sqrt() - reach
        return gaps if len(pairs) else gaps.new_full((*arm.shape[:2], 1), 1.0)

    def _needed(self, ends: Any, boxes: list[Any], carried: tuple[Any, Any] | None, samples: int) -> tuple[Any, Any]:
        """Least distances: (1, T, n, M) to obstacles, the clearance, near the ends no more than what they have plus a
        slope (an end may lie near what is approached or left; it is given); and (p,) between spheres of the arm, no
        more than the ends have."""
        s = self.settings
        with torch.no_grad():
            at_ends, self_at_ends = self._gaps(ends, boxes, carried)  # (1, 2, n, M), (1, 2, p)
            u = torch.linspace(0.0, 1.0, samples, dtype=ends.dtype, device=ends.device)[:, None, None]
            rising = torch.minimum(at_ends[:, :1] + s.end_slope_m * u, at_ends[:, 1:] + s.end_slope_m * (1 - u))
            own = (self_at_ends.amin((0, 1)) - 1e-6).clamp_max(s.self_clearance_m)
            return (rising - 1e-6).clamp_max(s.clearance_m), own

    def _penalty(
        self, q: Any, boxes: list[Any], carried: Any, needed: Any, self_needed: Any, pairs: tuple[Any, ...]
    ) -> Any:
        """(S,) mean over the path of the squared shortfalls of the pairs that are looked at, m^2."""
        spheres, obstacles, own = pairs
        centers, radii, arm = self._spheres(q, carried)
        gaps = distance(centers[:, :, spheres], *(a[obstacles] for a in boxes)) - radii[spheres]
        total = (needed[:, :, spheres, obstacles] - gaps).clamp_min(0.0).square().sum(-1)
        if len(own) and len(self._pairs):
            gaps = self._self_gaps(arm, self._pairs[own], self._pair_reach[own])
            total = total + (self_needed[own] - gaps).clamp_min(0.0).square().sum(-1)
        return total.mean(-1)

    def _bend(self, q: Any) -> Any:
        """(S,) length and bending of q (S, T, 5), both for a path of unit duration."""
        s, step = self.settings, q.shape[1] - 1
        first, second = q.diff(dim=1) * step, q.diff(n=2, dim=1) * step**2
        length, bending = first.square().sum(-1).mean(-1), second.square().sum(-1).mean(-1)
        return s.length_weight * length + s.smoothness_weight * bending

    def _by_cost(self, q: Any, clear: Any) -> list[int]:
        """Rows that are clear, the best first."""
        cost = torch.where(clear, self._bend(q), torch.inf)
        return cost.argsort(stable=True)[: int(clear.sum())].tolist()

    def _fine(self, path: Any, row: int) -> Any:
        """(n, 5) the path of one row, sampled closely."""
        return path(self._tensor(self._fine_basis))[row].detach()

    def _is_free(self, fine: Any, ends: Any, boxes: list[Any], carried: Any) -> bool:
        """Whether a closely sampled path (n, 5) is free: between the samples of the search nothing may have slipped
        through."""
        gaps, self_gaps = self._gaps(fine[None], boxes, carried)
        needed, self_needed = self._needed(ends[:1], boxes, carried, len(fine))
        slack = self.settings.clearance_m / 4
        return bool((gaps - needed).amin() >= -slack) and bool((self_gaps - self_needed).amin() >= -slack)

    def _tensor(self, values: Any) -> Any:
        return torch.as_tensor(np.asarray(values), dtype=self._device.dtype, device=self._device.device)

    def _index(self, values: Any) -> Any:
        return torch.as_tensor(np.asarray(values, int), device=self._device.device)


def _homogeneous(points: np.ndarray) -> np.ndarray:
    return np.column_stack([points, np.ones(len(points))])


def _knots(count: int) -> np.ndarray:
    inner = np.linspace(0.0, 1.0, count - _DEGREE + 1)
    return np.concatenate([[0.0] * _DEGREE, inner, [1.0] * _DEGREE])


def _greville(count: int) -> np.ndarray:
    """(K,) parameters at which control points on a line give a line at even speed."""
    knots = _knots(count)
    return np.array([knots[k + 1 : k + 1 + _DEGREE].mean() for k in range(count)])


def _spline_basis(count: int, samples: int) -> np.ndarray:
    """(samples, count) weights of the control points at even parameters from end to end."""
    return BSpline.design_matrix(np.linspace(0.0, 1.0, samples), _knots(count), _DEGREE).toarray()
