"""`./real cameras`."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
from PIL import Image

from so101.cameras.synthetic import frame_number

SOURCES = "cameras.sources={ego: {kind: synthetic}, side: {kind: v4l2, device: /dev/video97}, top: {kind: synthetic}}"


def run(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "services.cli", "real", "cameras", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "200"})


def test_a_table_and_a_picture_of_each(tmp_path):
    chosen = ("--set", SOURCES, "--camera", "ego", "--camera", "top")
    ended = run(*chosen, "--seconds", "0.3", "--save", str(tmp_path / "pictures"))
    assert ended.returncode == 0, ended.stderr
    for name in ("ego", "top"):
        (row,) = [line for line in ended.stdout.splitlines() if f" {name} " in line]
        assert "synthetic" in row and "640x480 at 30 Hz" in row and "live" in row and "none" in row
        image = np.asarray(Image.open(tmp_path / "pictures" / f"{name}.png"))
        assert image.shape == (480, 640, 3) and frame_number(image) is not None
    assert sorted(os.listdir(tmp_path / "pictures")) == ["ego.png", "top.png"]


def test_a_missing_device_is_told():
    ended = run("--set", SOURCES, "--camera", "side")
    assert ended.returncode == 9 and "error: camera side: /dev/video97 does not exist" in ended.stderr


def test_what_is_plugged_in_can_be_listed():
    ended = run("--list")
    assert ended.returncode == 0 and ended.stdout.strip()
