"""How fast and how faithful is rendering?

    .venv/bin/python benchmarks/rendering.py                 about a minute on 2 cores
    .venv/bin/python benchmarks/rendering.py --json FILE     also writes the figures

Speed: camera frames a second, all workers together: drawing, reading back, converting, encoding into h264 files, as the
render stage does; making the workers is not counted. On a busy machine look at the processor time a frame instead.
Fixed and drawn looks (render.randomisation, with physics and extra bodies of scene.randomisation) are measured side by
side: in turns, so that both meet the same machine.
Fidelity: PSNR over RGB of the decoded videos (psnr_*_db, the least of all frames), and of the frames before encoding
(drawn), against frames drawn with the undecimated meshes, same lights and supersampling; per camera [least, mean].
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

import av
import numpy as np

from so101.config import Config, load_config
from so101.datasets.demo import Demo
from so101.geometry import invert_pose, make_pose, pose_from_pos_quat, pose_to_pos_quat, rotation_from_rotation_vector
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.workers import map_unordered
from so101.rendering.renderer import StateRenderer
from so101.rendering.stage import render_demo
from so101.rendering.video import encode_video
from so101.sim.bake import T_world_base, bake
from so101.sim.randomisation import draw_randomisation, extra_placements
from so101.tasks.placement import nominal_placements

SETTINGS = ("fast", "shadows")
RANDOMISED = ("scene.randomisation.enabled=true", "render.randomisation.enabled=true")
TURNS = 3
BARS = {"fps_fast": 100.0, "fps_shadows": 40.0, "psnr_fast_db": 34.0, "psnr_shadows_db": 34.0}
# Joint angles, rad: over the mat, at the vial, jaw closed, lifted, over the rack, jaw open.
WAYPOINTS = np.array(
    [
        [-0.15, -0.61, -0.07, 1.51, 1.57, 0.0],
        [-0.25, 0.05, 0.20, 1.30, 1.57, 0.9],
        [-0.25, 0.30, 0.10, 1.15, 1.57, 0.3],
        [-0.25, -0.30, 0.30, 1.10, 1.40, 0.3],
        [0.45, -0.10, 0.10, 0.90, 0.40, 0.3],
        [0.45, -0.10, 0.10, 0.90, 0.40, 1.0],
    ]
)
_renderer: StateRenderer | None = None


def synthetic_demo(config: Config, index: int, num_frames: int) -> Demo:
    """A smooth sweep through WAYPOINTS while the objects move and turn a little; no physics."""
    generator = np.random.default_rng(index)
    at = np.linspace(0, len(WAYPOINTS) - 1, num_frames)
    waypoints = WAYPOINTS + generator.normal(0, 0.04, WAYPOINTS.shape)
    q = np.stack([np.interp(at, range(len(WAYPOINTS)), column) for column in waypoints.T], axis=1)
    T_base_world = invert_pose(T_world_base(config))
    objects = {}
    randomisation = draw_randomisation(config, np.random.default_rng(index))
    extra = extra_placements(config, randomisation, nominal_placements(config))
    for name, placement in config.objects.items():
        T_base_obj = T_base_world @ pose_from_pos_quat([*placement.position_m, *placement.quat_wxyz])
        shift = np.linspace(0, 1, num_frames)[:, None] * generator.normal(0, 0.02, 3) * [1, 1, 0]
        turn = np.linspace(0, 1, num_frames)[:, None] * [0, 0, generator.normal(0, 0.3)]
        poses = T_base_obj @ make_pose(rotation_from_rotation_vector(turn), np.zeros(3))
        poses[:, :3, 3] += shift
        objects[name] = np.tile(extra[name], (num_frames, 1)) if name in extra else pose_to_pos_quat(poses)
    return Demo(
        index=index, seed=index, task=config.task.name, fps=config.cameras.fps_hz, q_target=q, q=q, objects=objects,
        physics_state=np.zeros(0), meta={"randomisation": randomisation},
    )  # fmt: skip


def start_worker(config: Config) -> None:
    global _renderer
    stop_worker()
    _renderer = StateRenderer(config)


def stop_worker() -> None:
    """Where there is one worker it is this process."""
    if _renderer is not None:
        _renderer.close()


def timed_job(job: tuple[Demo, RunFolder]) -> tuple[int, float, float, float]:
    """Render a demo; returns its index, start and end on the clock all processes share, and processor seconds."""
    demo, run = job
    start, processor = time.monotonic(), time.process_time()
    render_demo(demo, _renderer.config, run, _renderer)
    return demo.index, start, time.monotonic(), time.process_time() - processor


def measure_speed(config: Config, folder: Path, workers: int, seconds: float, assumed_fps: float) -> dict[str, float]:
    """Frames a second while every worker is busy: one short demo a worker warms up, then demos for about `seconds`."""
    run = RunFolder(folder)
    cameras = len(config.cameras.names)
    num_frames = 30
    demos = max(workers, round(seconds * assumed_fps / cameras / num_frames))
    jobs = [(synthetic_demo(config, i, 3), run) for i in range(workers)]
    jobs += [(synthetic_demo(config, i, num_frames), run) for i in range(workers, workers + demos)]
    done = map_unordered(timed_job, jobs, workers=workers, initializer=start_worker, initargs=(config,))
    spans = [span for index, *span in done if index >= workers]
    elapsed = max(end for _, end, _ in spans) - min(start for start, _, _ in spans)
    frames = demos * num_frames * cameras
    return {"fps": frames / elapsed, "frames": frames, "cpu_ms": 1e3 * sum(cpu for _, _, cpu in spans) / frames}


def compare_looks(config: Config, randomised: Config, folder: Path, workers: int, seconds: float, fps: float) -> dict:
    """Speed with fixed looks and with drawn ones, measured in turns; the sums of all turns."""
    totals = {}
    for name, variant in (("fixed", config), ("randomised", randomised)) * TURNS:
        speed = measure_speed(variant, folder / name, workers, seconds / TURNS, fps)
        frames, elapsed, cpu_ms = totals.get(name, (0, 0.0, 0.0))
        n = speed["frames"]
        totals[name] = frames + n, elapsed + n / speed["fps"], cpu_ms + n * speed["cpu_ms"]
    return {
        name: {"fps": frames / elapsed, "frames": frames, "cpu_ms": cpu_ms / frames}
        for name, (frames, elapsed, cpu_ms) in totals.items()
    }


def frames_of(config: Config, demo: Demo) -> dict[str, list[np.ndarray]]:
    """Camera -> frames at full size, before encoding."""
    with StateRenderer(config, bake(config).compile()) as renderer:
        pictures: dict[str, list[np.ndarray]] = {camera: [] for camera in config.cameras.names}
        for t in range(demo.num_frames):
            renderer.set_state(demo.q[t], {name: poses[t] for name, poses in demo.objects.items()})
            for camera in pictures:
                pictures[camera].append(renderer.render_state(camera))
    return pictures


def decoded(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def psnr_db(picture: np.ndarray, reference: np.ndarray) -> float:
    error = np.mean((picture.astype(float) - reference) ** 2)
    return float(10 * np.log10(255**2 / error)) if error else 99.0


def measure_fidelity(config: Config, folder: Path, num_states: int) -> dict[str, dict[str, list[float]]]:
    """Camera -> PSNR of each frame, `drawn` (before encoding) and `video` (decoded), and saves one pair of pictures."""
    demo = synthetic_demo(config, 0, num_states)
    stock = config.model_copy(
        update={
            "render": config.render.model_copy(
                update={"meshes": config.render.meshes.model_copy(update={"decimate": False})}
            )
        }
    )
    reference, ours = frames_of(stock, demo), frames_of(config, demo)
    result = {}
    for camera in config.cameras.names:
        path = folder / f"{config.render.setting}_{camera}.mp4"
        encode_video(path, ours[camera], config)
        pairs = {"drawn": ours[camera], "video": decoded(path)}
        result[camera] = {kind: [psnr_db(a, b) for a, b in zip(frames, reference[camera], strict=True)]
                          for kind, frames in pairs.items()}  # fmt: skip
        save_pictures(folder, f"{config.render.setting}_{camera}", reference[camera], pairs)
    return result


def save_pictures(folder: Path, name: str, reference: list[np.ndarray], pairs: dict[str, list[np.ndarray]]) -> None:
    from PIL import Image

    middle = len(reference) // 2
    row = [reference[middle], pairs["drawn"][middle], pairs["video"][middle]]
    Image.fromarray(np.concatenate(row, axis=1)).save(folder / f"{name}.png")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=6.0, help="how long to measure the speed of each setting")
    parser.add_argument("--states", type=int, default=6, help="states compared with the undecimated meshes")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the configuration")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--pictures", type=Path, help="keep pictures (undecimated, drawn, decoded) and videos here")
    arguments = parser.parse_args()
    figures: dict[str, object] = {"workers": arguments.workers, "machine": platform.processor() or platform.machine()}
    scratch = Path(tempfile.mkdtemp(prefix="so101_rendering_"))
    try:
        for setting in SETTINGS:
            config = load_config(overrides=[*arguments.set, f"render.setting={setting}"])
            randomised = load_config(overrides=[*RANDOMISED, *arguments.set, f"render.setting={setting}"])
            speeds = compare_looks(
                config, randomised, scratch / setting, arguments.workers, arguments.seconds, BARS[f"fps_{setting}"]
            )
            for looks, speed in speeds.items():
                key = setting if looks == "fixed" else f"{setting}_{looks}"
                figures[f"fps_{key}"] = round(speed["fps"], 1)
                figures[f"cpu_ms_per_frame_{key}"] = round(speed["cpu_ms"], 2)
                figures[f"frames_{key}"] = speed["frames"]
            fidelity = measure_fidelity(config, scratch, arguments.states)
            for kind, key in (("video", "psnr_{}_db"), ("drawn", "psnr_{}_drawn_db")):
                values = [value for camera in fidelity.values() for value in camera[kind]]
                figures[key.format(setting)] = round(min(values), 2)
                figures[key.format(setting) + "_mean"] = round(float(np.mean(values)), 2)
            for camera, kinds in fidelity.items():
                for kind, values in kinds.items():
                    least_and_mean = [round(min(values), 2), round(float(np.mean(values)), 2)]
                    figures[f"psnr_{setting}_{camera}_{kind}_db"] = least_and_mean
        if arguments.pictures:
            arguments.pictures.mkdir(parents=True, exist_ok=True)
            for path in scratch.glob("*.[pm][np][g4]"):
                shutil.copy(path, arguments.pictures)
    finally:
        stop_worker()
        shutil.rmtree(scratch)
    for key, value in figures.items():
        bar = f"   (bar {BARS[key]:g})" if key in BARS else ""
        print(f"{key:32} {value}{bar}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
