"""Does LeRobot of the v3.0 era take what ./twin merge --format v3.0 writes?

    .venv/bin/python benchmarks/lerobot_v3_compat.py                           a small synthetic merge
    .venv/bin/python benchmarks/lerobot_v3_compat.py --dataset MERGED          a merged dataset, v3.0

Installs lerobot 0.4.4 into a side environment (--venv FOLDER keeps it) that takes torch, pandas and av from this one.
Every k-th row is fetched through LeRobotDataset and compared with what our reader finds; frames are decoded by av at
the file and time that LeRobot asks its decoder for. Prints a table, writes --json FILE, ends with 1 when something
disagrees.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from lerobot_side import REPOSITORY, run_check

# without requirements: what loading a dataset imports follows, the rest comes from our environment
PACKAGES = (
    "lerobot==0.4.4", "datasets==4.8.5", "huggingface-hub<1", "torchvision==0.28.0", "accelerate", "deepdiff", "dill",
    "draccus", "einops", "fsspec", "jsonlines", "multiprocess", "tqdm", "xxhash",
)  # fmt: skip
STEP = 7  # rows between two that are fetched


def main() -> int:
    return run_check(
        __doc__,
        synthetic_dataset=synthetic_dataset,
        side_environment=side_environment,
        outside=outside,
        inside=inside,
    )


def synthetic_dataset(scratch: Path) -> Path:
    """Two sources of two episodes, merged."""
    sys.path.insert(0, str(REPOSITORY))
    from so101.datasets.merge_options import SourceSpec
    from tests.datasets.merging import make_source, merge, small_config

    config = small_config()
    specs = [
        SourceSpec(make_source(scratch / name, config, lengths, first=first), 1.0, name)
        for name, lengths, first in (("a", (104, 20), 2), ("b", (31, 57), 50))
    ]
    merge(config, scratch / "merged", *specs, format="v3.0")
    return scratch / "merged"


def side_environment(folder: Path) -> Path:
    """Python of the side environment, which is made when it does not have lerobot."""
    python = folder / "bin" / "python"
    probe = "import importlib.metadata as m; m.version('lerobot'), m.version('accelerate')"
    if not python.exists() or subprocess.run([python, "-c", probe], capture_output=True).returncode:
        print(f"installing lerobot 0.4.4 into {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "ours.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        install = [python, "-m", "pip", "install", "-q", "--no-deps", *PACKAGES]
        subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
    return python


def outside(dataset: Path, python: Path, scratch: Path) -> dict:
    """LeRobot's look at it, in the side environment."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(scratch / "hf")}  # local files only
    environment |= {"PYTHONPATH": str(REPOSITORY)}
    command = [python, __file__, "--inside", "--dataset", dataset]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(result.stdout.strip().splitlines()[-1])


def inside(root: Path) -> dict:
    """In the side environment: fetch rows through LeRobot, compare with our own reader."""
    dataset_class = lerobot_dataset()
    import numpy as np

    from so101.datasets.clips import decode_clip
    from so101.datasets.lerobot_source import read_source

    theirs, ours = dataset_class("local/merged", root=root, video_backend="pyav"), read_source(root)
    first, rows, frames, wrong = 0, 0, 0, 0
    for episode in ours.episodes:
        pictures = {key: list(decode_clip(clip)) for key, clip in episode.clips.items()}
        for row in range(0, episode.length, STEP):
            item = theirs[first + row]
            place = (int(item["episode_index"]), int(item["frame_index"]), item["task"])
            same = place == (episode.index, row, episode.tasks[row])
            for key, column in episode.columns.items():
                same = same and np.array_equal(item[key].numpy(), column[row])
            for key, shown in pictures.items():
                picture = item[key].numpy().transpose(1, 2, 0) * 255
                same = same and np.abs(picture - shown[row]).max() < 0.5
                frames += 1
            rows, wrong = rows + 1, wrong + (not same)
        first += episode.length
    counts = theirs.num_episodes == len(ours.episodes) and len(theirs) == ours.num_frames
    stats = set(theirs.meta.stats) == set(ours.info["features"])
    figures = {"episodes": theirs.num_episodes, "frames": len(theirs), "rows_fetched": rows, "pictures_fetched": frames}
    return {**figures, "rows_wrong": wrong, "counts_agree": counts, "ok": counts and stats and wrong == 0}


def lerobot_dataset():
    """LeRobotDataset, without the operators that torchvision registers for another build of torch, and with our
    decoder: it shows the frame at the time it is asked for, or fails when none is within the tolerance."""
    import av
    import torch

    torch.set_num_threads(1)
    library = torch.library.Library("torchvision", "DEF")
    register = torch.library.register_fake
    torch.library.register_fake = lambda name, *rest, **more: (
        (lambda function: function) if str(name).startswith("torchvision::") else register(name, *rest, **more)
    )
    import lerobot.datasets.lerobot_dataset as module

    decoded: dict[str, list] = {}

    def decode(path, timestamps, tolerance_s, *_, **__):
        if str(path) not in decoded:
            with av.open(str(path)) as container:
                decoded[str(path)] = [(f.time, f.to_ndarray(format="rgb24")) for f in container.decode(video=0)]
        images = []
        for wanted in timestamps:
            time, image = min(decoded[str(path)], key=lambda pair: abs(pair[0] - wanted))
            if abs(time - wanted) > tolerance_s:
                raise ValueError(f"{path}: no frame at {wanted} s, the nearest is at {time}")
            images.append(torch.from_numpy(image).permute(2, 0, 1).float() / 255)
        return torch.stack(images)

    module.decode_video_frames = decode
    module.LeRobotDataset.library = library  # it ends with the object
    return module.LeRobotDataset


if __name__ == "__main__":
    sys.exit(main())
