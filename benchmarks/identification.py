"""The servo model against real arms: RMSE and lag of each joint before and after the fit, and a step response.

    .venv/bin/python benchmarks/identification.py                  # the shipped robot.yaml, seconds
    .venv/bin/python benchmarks/identification.py --fit            # fits again from the former servos, minutes
    .venv/bin/python benchmarks/identification.py --json FILE

Before: `benchmarks/workshop_servos.yaml`. After: robot.yaml, or with --fit what `./twin identify` finds from those.
The recordings are looked for in ../shared/data beside the repository (--data FOLDER).
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from so101.cli.identify import error_table, parameter_table, to_json
from so101.cli.options import default_workers
from so101.cli.progress import make_reporter
from so101.config import Config, load_config
from so101.identification import Fit, Piece, ServoReplay, choose, compare, fit_servos, read_pieces, servos_of
from so101.identification.replay import Servos

HERE = Path(__file__).resolve().parent
FORMER = HERE / "workshop_servos.yaml"
EPISODES, HELD_OUT = [0, 1], [2, 3]
STEP_JOINT = 0  # the excerpt turns the shoulder
RESAMPLED_HZ = 100.0


def step_response(path: Path, config: Config, servos: dict[str, Servos]) -> dict[str, dict[str, float]]:
    """Rise (10 to 90 %), overshoot and final error of a recorded step and of the same step in the twin; RMSE with the
    first motion of both (3 % of the step) at the same time, since the recorded delay is that of another program."""
    with open(path, encoding="utf-8") as file:
        rows = [[float(value) for value in row[:3]] for row in list(csv.reader(file))[1:]]
    t, goal, position = np.array(rows).T
    size = goal[-1] - position[0]
    real = _figures(t, (position - position[0]) / size, size)
    frames = round((t[-1] - t[0]) * RESAMPLED_HZ)
    home = np.array([joint.home_rad for joint in config.robot.joints])
    command = np.tile(home, (frames, 1))
    command[:, STEP_JOINT] += size
    count = np.ones(command.shape, bool)
    piece = Piece(path.stem, RESAMPLED_HZ, command, np.tile(home, (frames, 1)), count, home[None], np.zeros(6))
    results = {"real SO-100": real}
    for label, values in servos.items():
        track = ServoReplay(config, 1).run(values, [piece])[0][:, STEP_JOINT]
        share = (track - home[STEP_JOINT]) / size
        clock = np.arange(frames) / RESAMPLED_HZ
        figures = _figures(clock, share, size)
        shifted = np.interp(t - real["start_s"] + figures["start_s"], clock, share)
        moving = t >= real["start_s"]
        figures["rmse_deg"] = float(
            np.degrees(np.sqrt(np.mean(((shifted - (position - position[0]) / size) * size)[moving] ** 2)))
        )
        results[label] = figures
    return results


def _figures(t: np.ndarray, share: np.ndarray, size: float) -> dict[str, float]:
    """Of a response `share` (0 at the start, 1 at the goal) at times t, s."""
    times = {level: float(np.interp(level, np.maximum.accumulate(share), t)) for level in (0.03, 0.1, 0.9)}
    return {
        "start_s": times[0.03],
        "rise_ms": 1e3 * (times[0.9] - times[0.1]),
        "overshoot_deg": float(np.degrees(max(share.max() - share[-1], 0.0) * abs(size))),
        "final_error_deg": float(np.degrees((share[-1] - 1) * size)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--fit", action="store_true", help="fit again instead of taking robot.yaml")
    parser.add_argument("--workers", type=int, default=default_workers())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console()
    former, config = load_config(rig=FORMER), load_config()
    names = config.robot.joint_names
    recording = read_pieces(options.data / "so101_record_test_4ep", former)
    fitted, held_out = choose(recording, EPISODES, "fit"), choose(recording, HELD_OUT, "held out")
    before = servos_of(former)
    if options.fit:
        with make_reporter(console) as reporter:
            fit = fit_servos(former, fitted, workers=options.workers, reporter=reporter)
    else:
        fit = Fit(servos_of(config), [{} for _ in names], [list(servo) for servo in servos_of(config)])
    console.print(parameter_table(names, fit))
    replay, max_lag = ServoReplay(former, options.workers), config.robot.identification.max_lag_frames
    figures = {
        "fitted": compare(replay, fitted, before, fit.servos, max_lag),
        "held out": compare(replay, held_out, before, fit.servos, max_lag),
    }
    for label, comparison in figures.items():
        console.print(error_table(label, names, comparison))
    steps = step_response(
        options.data / "so100_step_excerpt" / "shoulder_rotation_step_0p3rad.csv",
        former,
        {"twin before": before, "twin after": fit.servos},
    )
    table = Table("0.3 rad step of the shoulder", "rise ms", "overshoot deg", "final error deg", "RMSE deg")
    for label, row in steps.items():
        cells = [row[key] for key in ("rise_ms", "overshoot_deg", "final_error_deg")] + [row.get("rmse_deg")]
        table.add_row(label, *("" if cell is None else f"{cell:.2f}" for cell in cells))
    console.print(table)
    if options.json:
        report = to_json(names, fit, figures, "so101_record_test_4ep", EPISODES, HELD_OUT)
        options.json.write_text(json.dumps({**report, "step_response": steps}, indent=1) + "\n")


if __name__ == "__main__":
    main()
