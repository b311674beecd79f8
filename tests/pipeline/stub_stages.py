"""Stages with the real contract and no physics, so that the flow can be tested: each reads and writes the run folder,
writes one atomic file a demo, skips what is there, and gives the same bytes each time.

``python stub_stages.py ARGS`` is the command line of `./twin` with these stages. Environment: STUB_SLEEP_S a demo.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from so101.datasets.demo import Demo, demo_file_name, demo_index, list_demos, load_demo, save_demo
from so101.files import atomic_path, write_json, write_text
from so101.pipeline import stages as real
from so101.pipeline.progress import StageResult
from so101.pipeline.workers import map_unordered

SUCCESS_EVERY = 2  # of the attempts, and of those
VERIFIED_EVERY = 3  # one in so many is rejected


def _pause():
    time.sleep(float(os.environ.get("STUB_SLEEP_S", "0")))


def _demo(index: int) -> Demo:
    rng = np.random.default_rng(index)
    good = index % SUCCESS_EVERY == 0
    return Demo(
        index=index,
        seed=index,
        task="vial_to_rack",
        fps=30.0,
        q_target=rng.normal(size=(40, 6)),
        q=rng.normal(size=(40, 6)),
        objects={"vial": rng.normal(size=(40, 7))},
        physics_state=rng.normal(size=30),
        cause="" if good else "grasp_missed",
        strict=good,
    )


def make_seeds(config, run, reporter, workers, source=None):
    kept = 0 if source is not None and Path(source).name == "unusable.csv" else 5
    if not run.seeds_report.exists():
        if kept:
            write_text(run.seeds, f"seeds from {source}")
        write_json(run.seeds_report, [{"name": str(i), "kept": i < kept, "cause": ""} for i in range(5)])
    return StageResult("seeds", kept)


def _attempt(job):
    root, index = job
    _pause()
    demo = _demo(index)
    save_demo(Path(root) / ("failed" if demo.cause else "generated"), demo)
    return index


def generate(config, run, reporter, workers, target):
    limit = config.skillgen.max_attempts
    wanted, good = [], 0
    for index in range(limit):
        wanted.append(index)
        good += not _demo(index).cause
        if good == target and config.skillgen.generation_guarantee:
            break
    for folder in (run.generated, run.failed):  # as the real stage: only the shortest run of attempts remains
        for path in list_demos(folder):
            if demo_index(path) not in wanted:
                path.unlink()
    there = {demo_index(path) for folder in (run.generated, run.failed) for path in list_demos(folder)}
    jobs = [(str(run.root), index) for index in wanted if index not in there]
    reporter.start("generate", len(wanted), len(wanted) - len(jobs))
    for _ in map_unordered(_attempt, jobs, workers=workers):
        reporter.advance()
    return StageResult("generate", good, {"exhausted": len(wanted) == limit})


def filter_demos(config, run, reporter, workers):
    kept = [demo_index(path) for path in list_demos(run.generated)]
    write_json(run.filter_report, {"geometric": kept, "strict": kept, "kept": kept})
    return StageResult("filter", len(kept))


def smooth_demos(config, run, reporter, workers):
    kept = json.loads(run.filter_report.read_text())["kept"]
    for path in list_demos(run.smoothed):
        if demo_index(path) not in kept:
            path.unlink()
    for index in kept:
        if not (run.smoothed / demo_file_name(index)).exists():
            _pause()
            save_demo(run.smoothed, load_demo(run.generated / demo_file_name(index)))
    return StageResult("smooth", len(list_demos(run.smoothed)))


def verify_demos(config, run, reporter, workers):
    for path in [*list_demos(run.verified), *list_demos(run.rejected)]:
        if not (run.smoothed / path.name).exists():
            path.unlink()
    for path in list_demos(run.smoothed):
        if (run.verified / path.name).exists() or (run.rejected / path.name).exists():
            continue
        demo = load_demo(path)
        good = (demo.index // SUCCESS_EVERY) % VERIFIED_EVERY != 0
        _pause()
        save_demo(run.verified if good else run.rejected, demo if good else demo.replace(cause="dropped"))
    return StageResult("verify", len(list_demos(run.verified)))


def render_demos(config, run, reporter, workers):
    for path in list_demos(run.verified)[: config.skillgen.target_demos]:
        video = run.video(demo_index(path), "ego")
        if not video.exists():
            _pause()
            write_text(video, f"frames of {path.name}")
    return StageResult("render", len(list(run.videos.glob("*/*.mp4"))))


def write_dataset(config, run, reporter, workers):
    chosen = list_demos(run.verified)[: config.skillgen.target_demos]
    (run.dataset / "data/chunk-000").mkdir(parents=True, exist_ok=True)
    for episode, path in enumerate(chosen):
        with atomic_path(run.dataset / f"data/chunk-000/episode_{episode:06d}.parquet") as temporary:
            temporary.write_bytes(path.read_bytes())
    write_json(run.dataset / "meta/info.json", {"total_episodes": len(chosen)})
    return StageResult("dataset", len(chosen))


def write_report(config, run, reporter, workers):
    write_text(run.report / "index.html", f"{len(list_demos(run.verified))} verified")
    return StageResult("report", 1)


def install(setattr_item=dict.__setitem__) -> None:
    """Put the stubs in the table of stages."""
    for name, stage in list(real.STAGES.items()):
        function = stage.function.split(":")[1]
        setattr_item(real.STAGES, name, dataclasses.replace(stage, function=f"{__name__}:{function}"))


def tree_digest(folder: Path) -> dict[str, str]:
    """Relative path -> hash of every file below `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


if __name__ == "__main__":
    from so101.cli.app import main

    install()
    sys.exit(main())
