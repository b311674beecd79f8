"""What the checks by a real LeRobot share: their options, a side environment to run in, how figures are told."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def run_check(
    description: str,
    *,
    synthetic_dataset: Callable[[Path], Path],
    side_environment: Callable[[Path], Path],
    outside: Callable[[Path, Path, Path], dict],
    inside: Callable[[Path], dict],
) -> int:
    """The whole program; returns its exit code.

    Args:
        synthetic_dataset: makes a dataset in a scratch folder.
        side_environment: folder -> its Python, made when absent.
        outside: (dataset, Python, scratch folder) -> figures, "ok" among them; starts this program with --inside.
        inside: dataset -> figures, in the side environment.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, help="dataset folder; a synthetic one when not given")
    parser.add_argument("--venv", type=Path, help="side environment, made when absent; a temporary one when not given")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # runs in the side environment
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(inside(arguments.dataset)))
        return 0
    with tempfile.TemporaryDirectory(prefix="lerobot_side_") as scratch:
        dataset = (arguments.dataset or synthetic_dataset(Path(scratch))).resolve()
        python = side_environment((arguments.venv or Path(scratch) / "venv").resolve())
        figures = outside(dataset, python, Path(scratch))
    for key, value in figures.items():
        print(f"{key:32} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if figures["ok"] else 1
