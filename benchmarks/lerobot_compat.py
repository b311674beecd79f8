"""Does the real LeRobot of the v2.1 era take our dataset?

    .venv/bin/python benchmarks/lerobot_compat.py                          a small synthetic dataset
    .venv/bin/python benchmarks/lerobot_compat.py --dataset RUN/dataset    a dataset of a run

Installs lerobot 0.3.3 into a side environment (--venv FOLDER keeps it), loads the dataset there, fetches every frame at
its timestamp with LeRobot's decoders, and records the same frames with LeRobot itself to compare statistics and files.
Prints a table, writes --json FILE, ends with 1 when something disagrees.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from lerobot_side import REPOSITORY, run_check

# lerobot 0.3.3 wants torch < 2.8 and installs wandb, rerun and more that loading a dataset never touches; so it goes in
# without its requirements, and what it does import follows, held to the bounds that matter.
INSTALLS = (
    ["torch==2.14.1", "torchvision==0.29.1"],
    ["--no-deps", "lerobot==0.3.3", "torchcodec==0.17.0"],
    [
        "datasets==3.6.0",  # 4.x writes and returns other column types
        "huggingface-hub>=0.34.2,<1",
        "av",
        "deepdiff>=7.0.1,<9",
        "draccus==0.10.0",
        "einops",
        "gymnasium>=0.29.1,<1",
        "jsonlines",
        "packaging",
        "termcolor",
    ],
)
TOLERANCE = 1e-5  # of statistics, relative to their size; LeRobot sums float32


def main() -> int:
    return run_check(
        __doc__,
        synthetic_dataset=synthetic_dataset,
        side_environment=side_environment,
        outside=outside,
        inside=inside,
    )


# in our own environment


def synthetic_dataset(scratch: Path) -> Path:
    """Three episodes through our encoder and dataset stage, so large that LeRobot samples frames and pixels."""
    sys.path.insert(0, str(REPOSITORY / "tests" / "datasets"))
    from synthetic import make_run

    from so101.config import load_config
    from so101.datasets.lerobot_v21 import write_dataset
    from so101.pipeline.progress import SilentReporter
    from so101.rendering.video import encode_video

    config = load_config(overrides=["skillgen.target_demos=3", "dataset.chunks_size=2"])
    run = make_run(
        scratch / "run",
        config,
        (104, 20, 17),
        (240, 320),
        encode=lambda path, frames, fps: encode_video(path, frames, config),
    )
    write_dataset(config, run, SilentReporter(), 1)
    return run.dataset


def side_environment(folder: Path) -> Path:
    """Python of the side environment, which is made when it cannot import lerobot."""
    python = folder / "bin" / "python"
    ready = (
        python.exists()
        and subprocess.run([python, "-c", "import lerobot.datasets"], capture_output=True).returncode == 0
    )
    if not ready:
        print(f"installing lerobot 0.3.3 into {folder} (minutes)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        for packages in INSTALLS:
            subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True, stderr=subprocess.DEVNULL)
        link_ffmpeg(folder)
    return python


def link_ffmpeg(folder: Path) -> None:
    """FFmpeg for torchcodec, LeRobot's default decoder, out of the av wheel.

    torchcodec looks for plain names (libavutil.so.60), the wheel has a hash in them; links give them both names.
    """
    (folder / "ffmpeg").mkdir(exist_ok=True)
    for library in folder.glob("lib/python*/site-packages/av.libs/*.so*"):
        plain = re.sub(r"-[0-9a-f]{8}\.so\.(\d+).*", r".so.\1", library.name)
        for name in {library.name, plain}:
            (folder / "ffmpeg" / name).symlink_to(library)


def outside(dataset: Path, python: Path, scratch: Path) -> dict:
    """Our own check, then LeRobot's in the side environment."""
    from so101.datasets.validate import validate_dataset

    faults = validate_dataset(dataset)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(scratch / "hf")}  # local files only
    environment |= {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    environment["LD_LIBRARY_PATH"] = str(python.parents[1] / "ffmpeg")
    command = [python, __file__, "--inside", "--dataset", dataset]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        return {"ok": False, "own_check_faults": faults, "error": "LeRobot failed on the dataset; see its output above"}
    figures = json.loads(result.stdout.strip().splitlines()[-1])
    ok = not faults and figures["frames_wrong"] == 0 and not figures["differences_to_a_lerobot_recording"]
    ok = ok and max(figures[key] for key in figures if key.startswith("stats_")) < TOLERANCE
    return {"ok": ok, "own_check_faults": faults, **figures}


# in the side environment: no import of ours


def inside(root: Path) -> dict:
    """Load, fetch every frame with each decoder, record the same frames again with LeRobot, compare."""
    import importlib.metadata

    import torch

    add_video_reader()
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    datasets = {name: LeRobotDataset("local/dataset", root=root, video_backend=name) for name in backends()}
    dataset = datasets["pyav"]
    steps = {"action": [k / dataset.fps for k in range(16)]}
    chunks = LeRobotDataset("local/dataset", root=root, video_backend="pyav", delta_timestamps=steps)
    batch = next(iter(torch.utils.data.DataLoader(chunks, batch_size=4, shuffle=False)))
    packages = ("lerobot", "torch", "torchvision", "torchcodec", "av", "datasets")
    figures = {
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "decoders": list(datasets),
        "episodes": dataset.num_episodes,
        "rows": len(dataset),
        "cameras": dataset.meta.camera_keys,
        "action_chunk_shape": list(batch["action"].shape),
        "task": batch["task"][0],
    }
    fetched = wrong = 0
    stats_recorded = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        recording = record_like(dataset, Path(scratch) / "recording")
        for episode in range(dataset.num_episodes):
            images = {
                key: decode(root / dataset.meta.get_video_file_path(episode, key)) for key in dataset.meta.camera_keys
            }
            rows = range(*(int(dataset.episode_data_index[end][episode]) for end in ("from", "to")))
            for frame_index, row in enumerate(rows):
                for item in (reader[row] for reader in datasets.values()):
                    for key in images:
                        image = (item[key] * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
                        wrong += int(abs(image.astype(int) - images[key][frame_index]).max() > 1)
                        fetched += 1
                frame = {key: item[key].numpy() for key in ("action", "observation.state")}
                recording.add_frame(frame | {key: images[key][frame_index] for key in images}, task=item["task"])
            recording.save_episode()
            ours, theirs = (d.meta.episodes_stats[episode] for d in (dataset, recording))
            stats_recorded = max(stats_recorded, difference(ours, theirs))
        differences = compare_files(root, recording.root)
    figures |= {
        "frames_fetched": fetched,
        "frames_wrong": wrong,
        "stats_episodes_vs_lerobot": stats_recorded,
        "stats_groot_vs_definition": groot_difference(root, dataset),
        "stats_groot_vs_lerobot": aggregate_difference(root, dataset),
        "differences_to_a_lerobot_recording": differences,
    }
    return figures


def backends() -> list[str]:
    """LeRobot's video backends that work here."""
    try:
        import torchcodec.decoders  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        print(f"torchcodec does not load ({str(error).splitlines()[0]}); only pyav is checked", file=sys.stderr)
        return ["pyav"]
    return ["torchcodec", "pyav"]


def add_video_reader() -> None:
    """torchvision 0.29 no longer has `io.VideoReader`, which LeRobot's "pyav" backend reads with; this stands in for
    the part that LeRobot uses: seek to the key frame before a time, then iterate over {data (3, H, W) uint8, pts s}."""
    import av
    import torch
    import torchvision

    class VideoReader:
        def __init__(self, path: str, stream: str) -> None:
            self.container = av.open(path)

        def seek(self, time_s: float, keyframes_only: bool = False) -> None:
            self.container.seek(int(time_s * av.time_base), any_frame=False, backward=True)

        def __iter__(self):
            for frame in self.container.decode(video=0):
                image = torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1)
                yield {"data": image, "pts": float(frame.pts * frame.time_base)}

    if not hasattr(torchvision.io, "VideoReader"):
        torchvision.io.VideoReader = VideoReader
    if not hasattr(torchvision, "set_video_backend"):
        torchvision.set_video_backend = lambda backend: None


def decode(path: Path) -> list:
    """All frames in order, (H, W, 3) uint8."""
    import av

    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def record_like(dataset, root: Path):
    """An empty LeRobot recording with the features of `dataset`; videos stay PNG, encoders are not the question."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot.datasets.utils import DEFAULT_FEATURES

    features = {key: dict(feature) for key, feature in dataset.features.items() if key not in DEFAULT_FEATURES}
    for feature in features.values():
        feature.pop("info", None)
    return LeRobotDataset.create(
        "local/recording",
        dataset.fps,
        features,
        root=root,
        robot_type=dataset.meta.robot_type,
        batch_encoding_size=10**6,
    )


def compare_files(ours: Path, theirs: Path) -> list[str]:
    """What differs between our files and a LeRobot recording of the same frames, apart from statistics."""
    import pyarrow.parquet as pq

    differences = []
    ours_info, theirs_info = (json.loads((root / "meta/info.json").read_text()) for root in (ours, theirs))
    for info in (ours_info, theirs_info):
        for feature in info["features"].values():
            feature.pop("info", None)  # LeRobot writes it when it encodes
        for key in ("chunks_size", "total_chunks"):  # LeRobot knows 1000 only
            info.pop(key)
    for key in sorted(set(ours_info) | set(theirs_info)):
        if ours_info.get(key) != theirs_info.get(key):
            differences.append(f"info.json {key}: {ours_info.get(key)} / {theirs_info.get(key)}")
    for name in ("episodes.jsonl", "tasks.jsonl"):
        rows = [
            [json.loads(line) for line in (root / "meta" / name).read_text().splitlines()] for root in (ours, theirs)
        ]
        if rows[0] != rows[1]:
            differences.append(f"{name}: {rows[0]} / {rows[1]}")
    tables = [[pq.read_table(path, partitioning=None) for path in sorted((root / "data").rglob("*.parquet"))]
              for root in (ours, theirs)]  # fmt: skip
    for number, (a, b) in enumerate(zip(*tables, strict=True)):
        if not a.schema.equals(b.schema, check_metadata=True):
            differences.append(f"parquet schema of episode {number}: {a.schema} / {b.schema}")
        elif not a.equals(b):
            differences.append(f"parquet values of episode {number}")
    return differences


def groot_difference(root: Path, dataset) -> float:
    """stats.json against GR00T's definition, written down again with numpy on the columns LeRobot loaded."""
    import numpy as np

    written, worst = json.loads((root / "meta/stats.json").read_text()), 0.0
    for key in ("action", "observation.state", "timestamp"):
        rows = np.stack([value.numpy() for value in dataset.hf_dataset[:][key]]).reshape(len(dataset), -1).astype(float)
        expected = {
            "mean": rows.mean(0),
            "std": rows.std(0),
            "min": rows.min(0),
            "max": rows.max(0),
            "q01": np.quantile(rows, 0.01, axis=0),
            "q99": np.quantile(rows, 0.99, axis=0),
        }
        worst = max(worst, difference({key: written[key]}, {key: expected}))
    return worst


def aggregate_difference(root: Path, dataset) -> float:
    """stats.json against what LeRobot aggregates from the episodes."""
    written = json.loads((root / "meta/stats.json").read_text())
    shared = {key: {s: written[key][s] for s in ("mean", "std", "min", "max")} for key in written}
    return difference(shared, {key: {s: dataset.meta.stats[key][s] for s in shared[key]} for key in shared})


def difference(ours: dict, theirs: dict) -> float:
    """Largest difference of two {feature: {statistic: array}}, relative to the size of the values (at least 1)."""
    import numpy as np

    worst = 0.0
    if set(ours) != set(theirs):
        raise SystemExit(f"features differ: {sorted(ours)} / {sorted(theirs)}")
    for key in ours:
        if set(ours[key]) != set(theirs[key]):
            raise SystemExit(f"statistics of {key} differ: {sorted(ours[key])} / {sorted(theirs[key])}")
        for name in ours[key]:
            a, b = np.asarray(ours[key][name], float), np.asarray(theirs[key][name], float)
            if a.shape != b.shape:
                raise SystemExit(f"{key}.{name}: shapes {a.shape} / {b.shape}")
            worst = max(worst, float(np.max(np.abs(a - b)) / max(1.0, np.max(np.abs(b)))))
    return worst


if __name__ == "__main__":
    sys.exit(main())
