"""Success of the embedded policy against the number of demos, and against training time.

Each point is a training of its own (`./twin train --episodes N`, equally many steps) and an evaluation (`./twin eval`)
on the same held-out placements. Points of `--more` are roles that are trained already, for example those that
`keep_every_steps` left. What is done is not done again, so it may be stopped and started, and points may be added.

    .venv/bin/python benchmarks/success_curve.py --run runs/vials --out runs/curve
    .venv/bin/python benchmarks/success_curve.py --run runs/vials --out runs/curve --steps 500 --more policy
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def twin(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "services.cli", *map(str, arguments)], check=True, cwd=REPOSITORY)


def evaluated(arguments: argparse.Namespace, role: str, sets: list[str]) -> dict:
    """The summary of `./twin eval` of a role."""
    out = arguments.out / role
    quiet = ["deploy.evaluation.videos.failures=0", "deploy.evaluation.videos.successes=0"]
    quiet.append("deploy.evaluation.metrics=false")
    words = [word for assignment in [*quiet, *sets] for word in ("--set", assignment)]
    twin("eval", "--role", role, "--preset", "embedded", "--episodes", arguments.episodes, "--out", out, *words)
    return json.loads((out / "summary.json").read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--demos", type=int, nargs="*", default=[25, 50, 100, 200, 400])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--more", nargs="*", default=[], help="roles that are trained already")
    parser.add_argument("--role", default="d", help="roles are called this and the number of demos")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    arguments.run, arguments.out = arguments.run.resolve(), arguments.out.resolve()
    steps = f"training.embedded.max_steps={arguments.steps}"
    rows = []
    for demos in arguments.demos:
        role = f"{arguments.role}{demos}"
        words = [word for assignment in [steps, *arguments.set] for word in ("--set", assignment)]
        twin("train", "--run", arguments.run, "--role", role, "--episodes", demos, *words)
        rows.append((f"{demos} demos", demos, evaluated(arguments, role, arguments.set)))
    for role in arguments.more:
        rows.append((role, None, evaluated(arguments, role, arguments.set)))
    report(arguments, rows)


def report(arguments: argparse.Namespace, rows: list[tuple[str, int | None, dict]]) -> None:
    from so101.evaluation.statistics import wilson_interval
    from so101.files import write_json

    table = []
    for name, demos, summary in rows:
        n, successes = summary["n"], summary["strict"]["successes"]
        low, high = wilson_interval(successes, n)
        table.append({"name": name, "demos": demos, "n": n, "strict": successes, "low": low, "high": high})
        print(f"{name:>20}  {successes}/{n} = {successes / n:6.1%}  (Wilson 95 %: {low:.1%} to {high:.1%})")
    write_json(arguments.out / "curve.json", table)
    points = [row for row in table if row["demos"]]
    if points:
        draw(arguments.out / "curve.png", points, arguments.steps)


def draw(path: Path, points: list[dict], steps: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    shares = [point["strict"] / point["n"] for point in points]
    errors = [[s - p["low"] for s, p in zip(shares, points, strict=True)]]
    errors.append([p["high"] - s for s, p in zip(shares, points, strict=True)])
    axes.errorbar([point["demos"] for point in points], shares, errors, marker="o", capsize=4)
    axes.set(
        xscale="log", xlabel="demos", ylabel="strict success", ylim=(0, 1), title=f"{steps} steps each, Wilson 95 %"
    )
    axes.set_xticks([p["demos"] for p in points], [str(p["demos"]) for p in points], minor=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    print(path)


if __name__ == "__main__":
    main()
