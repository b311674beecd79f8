"""The segments of all seeds, by what they handle: a subtask of the task may use any segment of the same role."""

from __future__ import annotations

from so101.config import Config
from so101.config.task import SubtaskConfig, TaskDefinition
from so101.datasets.seeds import SeedDemo
from so101.errors import DataError
from so101.kinematics import ArmKinematics
from so101.kinematics.servo_lead import ServoLead
from so101.skillgen.fk_replay import fk_replay
from so101.skillgen.subtasks import Segment, cut_segment

Role = tuple[str, str | None]


def role(task: TaskDefinition, subtask: SubtaskConfig) -> Role:
    """Props of the reference object and of the object in the jaw: segments of equal role serve each other."""
    return task.objects[subtask.object].prop, task.objects[subtask.held].prop if subtask.held else None


class SegmentPool:
    """Cuts seeds on demand and keeps the cuts.

    Raises:
        DataError: no seed has all the segments the task needs.
    """

    def __init__(self, config: Config, seeds: list[SeedDemo], kinematics: ArmKinematics) -> None:
        self._config = config
        self._task = config.task.active
        self._source_task = config.task.tasks[self._task.seed_task or config.task.name]
        lead = ServoLead(config, kinematics)
        self._paths = {seed.name: fk_replay(seed, kinematics, lead) for seed in seeds}
        self._segments: dict[tuple[str, int, int], Segment] = {}
        roles = [role(self._source_task, subtask) for subtask in self._source_task.subtasks]
        self._serving = [
            [i for i, other in enumerate(roles) if other == role(self._task, s)] for s in self._task.subtasks
        ]
        if unserved := [s.name for s, serving in zip(self._task.subtasks, self._serving, strict=True) if not serving]:
            raise DataError(
                f"task {config.task.name!r} takes its seeds from task {self._task.seed_task!r}, which has nothing like "
                f"the subtasks {', '.join(unserved)}; correct seed_task in task.yaml"
            )
        self.usable: list[SeedDemo] = []
        faults = []
        for seed in seeds:
            try:
                for subtask, serving in zip(self._task.subtasks, self._serving, strict=True):
                    for i in serving:
                        for offset in subtask.end_offset_frames:
                            self._segment(seed, i, offset)
                self.usable.append(seed)
            except DataError as error:
                faults.append(str(error))
        if not self.usable:
            raise DataError(
                "no seed can be cut into the task's subtasks:\n" + "\n".join(faults or ["there are no seeds"])
            )

    def candidates(self, index: int, end_offset: int) -> list[Segment]:
        """Segments of all usable seeds for subtask `index` of the task, ended `end_offset` frames after its signal."""
        return [self._segment(seed, i, end_offset) for seed in self.usable for i in self._serving[index]]

    def _segment(self, seed: SeedDemo, index: int, end_offset: int) -> Segment:
        key = (seed.name, index, end_offset)
        if key not in self._segments:
            settings = self._config.skillgen
            self._segments[key] = cut_segment(
                seed, self._paths[seed.name], self._source_task, index, end_offset, settings.segment,
                settings.gate.gripper_change_rad,
            )  # fmt: skip
        return self._segments[key]
