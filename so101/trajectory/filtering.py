"""The filter stage: which generated demos pass the loose (blog) and the strict test."""

from __future__ import annotations

from so101.config import Config
from so101.datasets.demo import list_demos, load_demo
from so101.errors import DataError
from so101.files import write_json
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.run_folder import RunFolder
from so101.tasks.success import judge


def filter_demos(config: Config, run: RunFolder, reporter: Reporter, workers: int) -> StageResult:
    """Judge every file of `generated/` with the task's tests as configured now; write `filter.json`.

    Raises:
        DataError: a file is no demo, or one of a task with other objects.
    """
    paths = list_demos(run.generated)
    success = config.task.active.success
    needed = {*success.objects, success.container}
    reporter.start("filter", len(paths))
    passed: dict[str, list[int]] = {"geometric": [], "strict": []}
    for path in paths:
        demo = load_demo(path)
        if absent := needed - set(demo.objects):
            raise DataError(
                f"{path}: made for task '{demo.task}', without {', '.join(sorted(absent))} that "
                f"'{config.task.name}' judges; delete it, or pass --task {demo.task}"
            )
        verdict = judge(config, demo.objects, demo.q)
        if verdict.geometric:
            passed["geometric"].append(demo.index)
        if verdict.strict:
            passed["strict"].append(demo.index)
        reporter.advance()
    report = {**passed, "kept": passed[config.skillgen.keep]}
    write_json(run.filter_report, report)
    return StageResult("filter", len(report["kept"]), {key: len(value) for key, value in report.items()})
