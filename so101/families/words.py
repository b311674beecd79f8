"""What a task says, in words and numbers, without building its model."""

from __future__ import annotations

from typing import Any

from so101.families.declaration import FamilyTask, Goal
from so101.families.scene import slot_names

_JOINTS, _POSE, _TWIST = 6, 7, 6


def goal_in_words(goal: Goal) -> str:
    """One sentence part, lengths in mm: "brick at least 50 mm above desk"."""
    kind, said = goal.term
    if kind == "near":
        return f"{said.subject} within {_mm(said.radius_m)} of {said.target}"
    if kind == "above":
        return f"{said.subject} at least {_mm(said.margin_m)} above {said.target}"
    if kind == "at_region":
        return f"{said.site} in {said.region}"
    if kind == "on_region":
        return f"{said.subject} on {said.region}"
    if kind == "at_point":
        return f"{said.site} within {_mm(said.radius_m)} of a drawn point"
    if kind == "seated":
        return f"{said.subject} stands in an opening of {said.target}"
    if kind == "negated":
        return f"not ({goal_in_words(said)})"
    return {"all_of": " and ", "any_of": " or "}[kind].join(goal_in_words(part) for part in said)


def _mm(length_m: float) -> str:
    return f"{1e3 * length_m:g} mm"


def observation_sizes(task: FamilyTask) -> dict[str, int]:
    """Words of each group of the observation, in order."""
    slots = len(slot_names(task.family))
    sizes = {
        "qpos": _JOINTS + _POSE * slots,
        "qvel": _JOINTS + _TWIST * slots,
        "active": slots,
        "goal": 9,
        "site": 3,
        "target": 3,
        "target_minus_site": 3,
        "previous_action": _JOINTS,
    }
    return {group: sizes[group] for group in task.family.declaration.observation}


def task_facts(task: FamilyTask) -> dict[str, Any]:
    """All of it, as JSON values."""
    family, control = task.family.declaration, task.family.declaration.control
    present = tuple(task.declaration.place) if family.workshop_task is None else slot_names(task.family)
    sizes = observation_sizes(task)
    return {
        "name": task.name,
        "family": task.family.name,
        "language": task.language,
        "goal": goal_in_words(task.goal),
        "control_hz": round(1.0 / control.control_dt, 3),
        "horizon_steps": control.horizon,
        "horizon_s": round(control.horizon * control.control_dt, 3),
        "physics_steps_per_control": control.frame_skip,
        "observation_words": sum(sizes.values()),
        "observation": sizes,
        "objects": {
            name: f"in {place.region}" + (", turned at random" if place.yaw else "")
            for name, place in task.declaration.place.items()
        }
        or {name: "as the task of task.yaml places it" for name in present},
        "absent": [name for name in slot_names(task.family) if name not in present],
        "reward": family.reward.mode,
        "cameras": list(family.cameras) or list(task.family.config.cameras.names),
        "gymnasium_id": f"so101/{task.name}-v0",
    }
