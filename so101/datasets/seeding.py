"""The seeds stage: seeds from the scripted operator, from an HDF5 file, or from recordings of real arms.

A real recording carries joints and nothing else. It becomes a seed when the scene inferred from it (`inference`) and
its motion work in the twin with physics: the object is grasped, carried, and passes the task's strict test at the
end. Small offsets of the arm's zeros, the height of the pinch and the place of the container are searched; what was
assumed stands in the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from scipy.signal import savgol_filter

from so101.config import Config
from so101.datasets.inference import (
    Fingers,
    Grasp,
    NotUsable,
    correct_height,
    find_grasp,
    fit_offsets,
    footprint_m,
    offset_spread,
    place_objects,
)
from so101.datasets.recordings import Recording, read_recording
from so101.datasets.seeds import SeedDemo
from so101.datasets.seeds_hdf5 import read_seeds, write_seeds
from so101.datasets.unit_detection import UnitDecision, clamped, detect_recording_units, to_radians
from so101.errors import DataError, InsufficientDemosError
from so101.files import write_json
from so101.geometry import pose_from_pos_quat
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.workers import map_unordered
from so101.sim.bake import baked_model
from so101.sim.mujoco_sim import MujocoSimulator
from so101.tasks.operator import operator_seeds
from so101.tasks.success import judge

STAGE = "seeds"
HDF5_SUFFIXES = (".hdf5", ".h5")


def make_seeds(
    config: Config, run: RunFolder, reporter: Reporter, workers: int, source: Path | str | None = None
) -> StageResult:
    """Write `run.seeds` and `run.seeds_report`, demonstrations of the active task or of its `seed_task`; a finished
    pair is left as it is.

    Args:
        source: None for the scripted operator, an .hdf5 of seeds, or a recording (LeRobot folder, CSV file or
            folder).

    Raises:
        DataError: the source cannot be read, or its units are open (the text asks the question).
        InsufficientDemosError: nothing in it became a seed; the report is written all the same.
    """
    config = config.of_seeds
    config = config.without_randomisation  # people teach in the world as it is
    if run.seeds.exists() and run.seeds_report.exists():
        seeds = read_seeds(run.seeds, config)
        reporter.start(STAGE, len(seeds), len(seeds))
        return StageResult(STAGE, len(seeds), {"kept": len(seeds), "resumed": True})
    if source is None:
        seeds = operator_seeds(config, reporter, workers)
        report = _report("operator", config, [_kept(seed) for seed in seeds], [])
    elif Path(source).suffix.lower() in HDF5_SUFFIXES:
        seeds = read_seeds(source, config)
        reporter.start(STAGE, len(seeds), len(seeds))
        report = _report(Path(source).name, config, [_kept(seed) for seed in seeds], [])
    else:
        seeds, report = import_recordings(config, Path(source), reporter, workers)
    if not seeds:
        write_json(run.seeds_report, report)
        raise InsufficientDemosError(
            f"{source}: {report['text']}. The details are in {run.seeds_report}; another table height or search can be "
            "set under teleop.replay"
        )
    write_seeds(run.seeds, seeds, config, _simulator(config.model_dump_json()).fk)
    write_json(run.seeds_report, report)
    reporter.message(report["text"])
    return StageResult(
        STAGE, len(seeds), {key: report[key] for key in ("source", "kept", "of", "causes", "assumptions")}
    )


def _kept(seed: SeedDemo) -> dict[str, Any]:
    return {
        "name": seed.name,
        "source": seed.source,
        "kept": True,
        "cause": "",
        "frames": seed.num_frames,
        **seed.attrs,
    }


def _report(
    source: str, config: Config, candidates: list[dict[str, Any]], assumptions: list[str], **more: Any
) -> dict[str, Any]:
    kept = sum(candidate["kept"] for candidate in candidates)
    causes = dict(Counter(candidate["cause"] for candidate in candidates if not candidate["kept"]).most_common())
    text = f"{kept} of {len(candidates)} became usable seeds"
    if causes:
        text += "; the others: " + ", ".join(f"{cause} {count}" for cause, count in causes.items())
    return {
        "source": source,
        "task": config.task.name,
        "kept": kept,
        "of": len(candidates),
        "causes": causes,
        "text": text,
        "assumptions": assumptions,
        "candidates": candidates,
        **more,
    }


# --- recordings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """One recording made ready for replay; a picklable job.

    q, jaw_command: (T, 6) and (T,) rad at the control rate, without offsets. offsets: (6,) rad of its calibration.
    spread: (6,) rad the search is bounded by. objects: given poses (7,), empty when they are inferred. clamped:
    joints at the end of their range when the jaw closed, whose true angle is not in the file.
    """

    index: int
    name: str
    q: np.ndarray
    leader: np.ndarray
    grasp: Grasp
    offsets: np.ndarray
    spread: np.ndarray
    objects: dict[str, np.ndarray]
    clamped: tuple[str, ...]


def import_recordings(
    config: Config, source: Path, reporter: Reporter, workers: int
) -> tuple[list[SeedDemo], dict[str, Any]]:
    """Turn the recordings of `source` into seeds of the task in use.

    Returns:
        the usable seeds in order of the recordings, and the report.
    """
    recordings = read_recording(source, config)
    decisions = detect_recording_units(recordings, config)
    reporter.start(STAGE, len(recordings), unit="recordings")
    candidates, failures, calibrations = prepare(config, recordings, decisions)
    results: dict[int, dict[str, Any]] = dict(failures)
    for _ in failures:
        reporter.advance(1)
    seeds: dict[int, SeedDemo] = {}
    config_json = config.model_dump_json()
    for index, entry, seed in map_unordered(
        _try_candidate, candidates, workers=workers, initializer=_set_config, initargs=(config_json,)
    ):
        results[index] = entry
        if seed is not None:
            seeds[index] = seed
        reporter.advance(1, f"{len(seeds)} usable")
    report = _report(
        source.name,
        config,
        [results[index] for index in sorted(results)],
        _assumptions(config, recordings, decisions, calibrations),
        unit=decisions[0].unit,
        unit_evidence=list(decisions[0].evidence),
        calibrations=calibrations,
    )
    return [seeds[index] for index in sorted(seeds)], report


def prepare(
    config: Config, recordings: Sequence[Recording], decisions: Sequence[UnitDecision]
) -> tuple[list[Candidate], dict[int, dict[str, Any]], list[dict[str, Any]]]:
    """Find the grasp of each recording and the zero offsets of each calibration.

    Returns:
        candidates; report entries of those without a usable grasp, by index; one entry a calibration.
    """
    task, hz = config.task.active, config.scene.physics.control_hz
    simulator = _simulator(replay_config(config).model_dump_json())
    failures: dict[int, dict[str, Any]] = {}
    found: dict[tuple[int | None, ...], list[tuple[int, np.ndarray, np.ndarray, Grasp, tuple[str, ...]]]] = {}
    for index, (recording, decision) in enumerate(zip(recordings, decisions, strict=True)):
        try:
            if not _inferable(config) and not set(task.objects) <= set(recording.objects):
                raise NotUsable(
                    f"start poses of {', '.join(task.objects)} not in the file (only a block's is inferred)"
                )
            q = _resample(to_radians(recording.state, decision, config), recording.fps, hz)
            leader = _resample(to_radians(recording.action, decision, config), recording.fps, hz)
            grasp = find_grasp(q[:, -1], leader[:, -1], recording.has_action, hz, config)
        except NotUsable as cause:
            failures[index] = {"name": recording.name, "kept": False, "cause": str(cause)}
            continue
        at_close = min(round(grasp.close * recording.fps / hz), recording.num_frames - 1)
        ends = clamped(recording.state, decision)[at_close]
        stuck = tuple(name for name, is_clamped in zip(config.robot.joint_names, ends, strict=True) if is_clamped)
        found.setdefault(decision.spans_ticks, []).append((index, q, leader, grasp, stuck))
    candidates, calibrations = [], []
    for spans, members in found.items():
        spread = offset_spread(spans, config)
        q_close = np.array([q[grasp.close] for _, q, _, grasp, _ in members])
        offsets = fit_offsets(simulator.kinematics, q_close, spread, config)
        heights = simulator.kinematics.fk(q_close + offsets)[:, 2, 3]
        calibrations.append(
            {
                "recordings": len(members),
                "spans_ticks": list(spans),
                "offsets_deg": _degrees(offsets),
                "pinch_height_mm": [round(float(heights.mean()) * 1e3, 1), round(float(heights.std()) * 1e3, 1)],
            }
        )
        for index, q, leader, grasp, stuck in members:
            recording = recordings[index]
            candidates.append(
                Candidate(index, recording.name, q, leader, grasp, offsets, spread, recording.objects, stuck)
            )
    return sorted(candidates, key=lambda candidate: candidate.index), failures, calibrations


def _inferable(config: Config) -> bool:
    """A block's pose follows from the pinch; the heading of a lying tube does not."""
    task = config.task.active
    return config.scene.props[task.objects[task.success.objects[0]].prop].symmetry_axis is None


def _resample(values: np.ndarray, fps: float, hz: float) -> np.ndarray:
    """(T, 6) at `fps` to the control rate, linearly; unchanged when they are equal."""
    if abs(fps - hz) < 1e-3 * hz:
        return values
    times = np.arange(0, (len(values) - 1) / fps + 1e-9, 1.0 / hz)
    recorded = np.arange(len(values)) / fps
    return np.column_stack([np.interp(times, recorded, column) for column in values.T])


def _degrees(angles: np.ndarray) -> list[float]:
    return [round(float(a), 2) for a in np.degrees(angles)]


def _assumptions(
    config: Config,
    recordings: Sequence[Recording],
    decisions: Sequence[UnitDecision],
    calibrations: Sequence[dict[str, Any]],
) -> list[str]:
    s = config.teleop.replay
    shown = sum(any(span is not None for span in decision.spans_ticks) for decision in decisions)
    lines = [
        f"units: {decisions[0].unit} ({decisions[0].evidence[0]})",
        f"joint ranges read off the servo ticks in {shown} of {len(recordings)} recordings, nominal ranges of "
        f"robot.yaml elsewhere; calibrations met: {len(calibrations)}",
        f"table top {s.table_height_m * 1e3:.0f} mm over the robot base; the hand {s.pinch_height_m * 1e3:.0f} mm "
        f"over it when the jaw closes",
        "zero offsets of lift, elbow and wrist fitted per calibration and searched per recording within "
        + ", ".join(f"{a:.1f}" for a in np.degrees(s.max_spreads * np.array(s.zero_spread_rad)[1:4]))
        + " degrees (more for joints that were not swept fully)",
        "object upright between the jaws where they closed; container upright, square to the base, under the hand "
        "where they opened",
    ]
    if s.follow == "measured":
        lines.append("the twin's arm follows the measured joints; commands are those its own servos need for that")
    return lines


# --- replay ----------------------------------------------------------------------------------------------------------


def replay_config(config: Config) -> Config:
    """`config` with its table top at `teleop.replay.table_height_m` over the base."""
    s, scene = config.teleop.replay, config.scene
    if s.table not in scene.statics:
        raise DataError(
            f"teleop.yaml: replay.table is {s.table!r}; scene.yaml has the statics {', '.join(scene.statics)}"
        )
    top = max(geom.position_m[2] + geom.size_m[2] for geom in scene.statics[s.table].geoms)
    x, y, _ = scene.static_positions_m[s.table]
    height = config.robot.base_position_m[2] + s.table_height_m - top
    positions = {**scene.static_positions_m, s.table: (x, y, height)}
    return config.model_copy(update={"scene": scene.model_copy(update={"static_positions_m": positions})})


@lru_cache(maxsize=4)
def _simulator(config_json: str) -> MujocoSimulator:
    return MujocoSimulator(Config.model_validate_json(config_json))


@lru_cache(maxsize=4)
def _fingers(config_json: str) -> Fingers:
    return Fingers(Config.model_validate_json(config_json))


_config: Config | None = None


def _set_config(config_json: str) -> None:
    global _config
    _config = Config.model_validate_json(config_json)


def _try_candidate(candidate: Candidate) -> tuple[int, dict[str, Any], SeedDemo | None]:
    """Worker: replay until it works. Returns index, report entry, the seed or None."""
    entry, seed = search(candidate, _config)
    return candidate.index, entry, seed


def search(candidate: Candidate, config: Config) -> tuple[dict[str, Any], SeedDemo | None]:
    """Replay `candidate` with the fitted offsets, then with ever other small changes, until it passes the strict
    test.

    Returns:
        its report entry and, when it worked, the seed.
    """
    s = config.teleop.replay
    simulator = _simulator(replay_config(config).model_dump_json())
    rng = np.random.default_rng([s.search_seed, candidate.index])
    causes: Counter[str] = Counter()
    for attempt in range(s.max_tries):
        wide = 0.0 if attempt == 0 else min(1.0, 0.25 + attempt / s.max_tries)
        draw = rng.normal(size=8)
        offsets = candidate.offsets.copy()
        offsets[1:4] += wide * s.search_spread_rad * draw[:3]
        height = s.table_height_m + s.pinch_height_m + wide * s.search_height_m * draw[3]
        q_close = candidate.q[candidate.grasp.close] + offsets
        offsets = offsets + correct_height(simulator.kinematics, q_close, height, candidate.spread)
        bound = s.max_spreads * candidate.spread
        offsets = np.clip(offsets, -bound, bound)
        try:
            take = replay(candidate, offsets, wide * np.array(s.search_shifts_m) * draw[4:], config, simulator)
        except NotUsable as cause:
            causes[str(cause)] += 1
            continue
        attrs = {
            "tries": attempt + 1,
            "offsets_deg": _degrees(offsets),
            "clamped_at_close": list(candidate.clamped),
            "tracking_error_deg": round(float(np.degrees(take.tracking_error_rad)), 2),
            "objects_given": sorted(candidate.objects),
        }
        seed = SeedDemo(
            name=f"demo_{candidate.index}",
            task=config.task.name,
            source=candidate.name,
            fps=config.scene.physics.control_hz,
            q_target=take.q_target,
            q=take.q,
            objects={name: pose_from_pos_quat(poses) for name, poses in take.objects.items()},
            signals={config.task.active.subtasks[0].signal or "grasped": take.grasped},
            attrs=attrs,
        )
        return {"name": candidate.name, "kept": True, "cause": "", "frames": seed.num_frames, **attrs}, seed
    entry = {
        "name": candidate.name,
        "kept": False,
        "cause": causes.most_common(1)[0][0],
        "tries": s.max_tries,
        "causes_of_tries": dict(causes.most_common()),
        "clamped_at_close": list(candidate.clamped),
    }
    return entry, None


@dataclass(frozen=True)
class Take:
    """What the twin did: commands, joints, object poses and signal, one row a frame."""

    q_target: np.ndarray
    q: np.ndarray
    objects: dict[str, np.ndarray]
    grasped: np.ndarray
    tracking_error_rad: float


def replay(
    candidate: Candidate, offsets: np.ndarray, shifts_m: np.ndarray, config: Config, simulator: MujocoSimulator
) -> Take:
    """One replay with physics.

    Args:
        offsets: (6,) rad added to the recorded joints.
        shifts_m: (4,) of object and container, see `place_objects`.

    Raises:
        NotUsable: it does not work; the text is the cause.
    """
    s, task = config.teleop.replay, config.task.active
    begin, start, close, release, end = candidate.grasp
    lower, upper = simulator.kinematics.lower, simulator.kinematics.upper
    q_real = candidate.q + offsets
    beyond = np.maximum(q_real - upper, lower - q_real)[close : release + 1, :5].max()
    if beyond > s.limit_excess_rad:
        raise NotUsable("out of reach")
    q_real = np.clip(q_real, lower, upper)
    T_open = simulator.fk(q_real[release])
    objects = {}
    if _inferable(config):
        approach = q_real[max(begin, start - s.approach_frames) : start + 1]
        objects = place_objects(
            config, simulator.kinematics, _fingers(config.model_dump_json()), approach, T_open, shifts_m
        )
    if objects:
        objects[task.success.container] = _clear_of_arm_and_object(config, objects, T_open)
    objects |= candidate.objects
    frames = slice(begin, end)
    arm = servo_commands(q_real[frames], config) if s.follow == "measured" else (candidate.leader + offsets)[frames]
    jaw = np.clip(candidate.leader[frames, -1] + offsets[-1], lower[-1], upper[-1])
    cut = s.settle_frames if end < len(candidate.q) else 0
    arm = np.concatenate([arm, np.repeat(arm[-1:], cut, axis=0)])
    jaw = np.concatenate([jaw, np.repeat(jaw[-1:], cut)])
    return _run(
        simulator,
        config,
        q_real[begin],
        objects,
        np.clip(arm[:, :5], lower[:5], upper[:5]),
        jaw,
        candidate.grasp,
        q_real[frames],
    )


def servo_commands(q: np.ndarray, config: Config) -> np.ndarray:
    """(T, 6) targets that make the twin's position servos move along q (T, 6) rad: the target leads by the torque of
    the motion (inverse dynamics: gravity, inertia, damping, friction) over the servo's stiffness."""
    s = config.teleop.replay
    hz = config.scene.physics.control_hz
    window = min(s.smoothing_window_frames, len(q) - 1 + len(q) % 2)
    if window <= s.smoothing_order:
        return q.copy()
    smooth, speed, acceleration = (
        savgol_filter(q, window, s.smoothing_order, deriv=order, delta=1 / hz, axis=0, mode="nearest")
        for order in range(3)
    )
    model = baked_model(config, looks=False, props=False)
    data = mujoco.MjData(model)
    joints = config.robot.joints
    stiffness = np.array([joint.stiffness_nm_per_rad for joint in joints])
    velocity_gain = np.array([joint.velocity_gain_nm_s_per_rad for joint in joints])
    limit = np.array([joint.force_limit_nm for joint in joints])
    targets = np.empty_like(q)
    for row in range(len(q)):
        data.qpos[:6], data.qvel[:6], data.qacc[:6] = smooth[row], speed[row], acceleration[row]
        mujoco.mj_inverse(model, data)
        torque = np.clip(data.qfrc_inverse[:6], -limit, limit)
        targets[row] = smooth[row] + (torque + velocity_gain * speed[row]) / stiffness
    delays_s = np.array([joint.delay_s for joint in joints])
    early = 0.5 + delays_s * hz  # frames: a command acts late, and for a whole frame: the best is the one of its middle
    frames = np.arange(len(q))
    return np.stack([np.interp(frames + early[j], frames, targets[:, j]) for j in range(len(joints))], axis=-1)


def _clear_of_arm_and_object(config: Config, objects: dict[str, np.ndarray], T_open: np.ndarray) -> np.ndarray:
    """The container's pose (7,), moved out of the robot's base and off the object's start, if the release still falls
    inside."""
    s, task = config.teleop.replay, config.task.active
    thing, container = task.success.objects[0], task.success.container
    half = footprint_m(config.scene.props[task.objects[container].prop])
    reach = half + footprint_m(config.scene.props[task.objects[thing].prop]) * np.sqrt(2) + s.object_gap_m
    pose = objects[container].copy()
    pose[0] = max(pose[0], s.base_clearance_m + half)
    gap = pose[:2] - objects[thing][:2]
    if np.abs(gap).max() < reach:  # square footprints: enough room along one axis
        axis = int(np.argmax(np.abs(gap)))
        pose[axis] = objects[thing][axis] + np.copysign(reach, gap[axis])
        pose[0] = max(pose[0], s.base_clearance_m + half)
        if np.abs(pose[:2] - objects[thing][:2]).max() < reach - 1e-9:
            raise NotUsable("released where it was grasped")
    if np.abs(pose[:2] - T_open[:2, 3]).max() > s.max_container_shift_m:
        raise NotUsable(
            "released where it was grasped" if np.abs(gap).max() < reach else "released inside the robot's base"
        )
    return pose


def _run(
    simulator: MujocoSimulator,
    config: Config,
    q_start: np.ndarray,
    objects: dict[str, np.ndarray],
    arm: np.ndarray,
    jaw: np.ndarray,
    grasp: Grasp,
    q_real: np.ndarray,
) -> Take:
    s, task = config.teleop.replay, config.task.active
    thing = task.success.objects[0]
    begin, start, close, release, _ = grasp
    lower = simulator.kinematics.lower[-1]
    simulator.reset(0, q_start, objects)
    rest = objects[thing][2]
    rows_q, rows_target, grasped = [], [], []
    poses: dict[str, list[np.ndarray]] = {name: [] for name in simulator.object_names}
    hold: float | None = None
    bumped = False
    command = float(jaw[0])
    for row in range(len(arm)):
        frame = row + begin
        if frame > release and not any(grasped):
            break  # missed: the rest cannot change that
        touched = simulator.jaw_bodies & simulator.touching_bodies(0, thing)
        touching = touched == simulator.jaw_bodies
        bumped |= bool(touched) and frame < start
        rows_q.append(simulator.joint_positions(0))
        for name, values in poses.items():
            values.append(simulator.object_pose(0, name))
        lifted = poses[thing][-1][2] > rest + task.success.grasp_lift_m
        grasped.append(lifted and touching)
        if start <= frame <= release:
            if hold is None and touching:
                hold = max(float(rows_q[-1][-1]) - s.squeeze_rad, lower)
            closing = max(command - s.closing_speed_rad_s * simulator.control_dt, lower)
            if hold is not None:  # the recorded jaw may squeeze harder, never less
                command = max(closing, min(hold, float(jaw[row])))
            else:
                command = float(jaw[row]) if frame < close else min(float(jaw[row]), closing)
        else:
            command = float(jaw[row])
        target = np.append(arm[row], command)
        rows_target.append(target)
        simulator.step(0, target)
    take = Take(
        q_target=np.array(rows_target),
        q=np.array(rows_q),
        objects={name: np.array(values) for name, values in poses.items()},
        grasped=np.array(grasped),
        tracking_error_rad=_rms(np.array(rows_q)[: len(q_real), :5], q_real[:, :5]),
    )
    _judge(take, grasp, bumped, config)
    return take


def _rms(found: np.ndarray, wanted: np.ndarray) -> float:
    """Root mean square difference over the rows both have."""
    rows = min(len(found), len(wanted))
    return float(np.sqrt(np.mean((found[:rows] - wanted[:rows]) ** 2)))


def _judge(take: Take, grasp: Grasp, bumped: bool, config: Config) -> None:
    """Raise the cause when the take does not pass. bumped: a finger met the object before the jaw closed."""
    released = grasp.open - grasp.begin
    if not take.grasped[:released].any():
        raise NotUsable("fingers ran into the object on the way down" if bumped else "grasp missed in replay")
    held = np.flatnonzero(take.grasped)
    verdict = judge(config, take.objects, take.q)
    if verdict.strict:
        return
    if held[-1] < released - 3:
        raise NotUsable("slipped or dropped on the way")
    success = config.task.active.success
    if verdict.container_moved_m > success.container_push_m:
        raise NotUsable("container pushed away")
    if (
        verdict.speed_m_s >= success.strict.max_speed_m_s
        or verdict.angular_speed_rad_s >= success.strict.max_angular_speed_rad_s
    ):
        raise NotUsable("not at rest at the end")
    raise NotUsable("not in the container")
