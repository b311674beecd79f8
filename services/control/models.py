"""What the API takes and gives. Times are seconds since 1970 (`_s` of an event) or durations where the name says so."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from services.control.requests import NAME

_Text = Field(max_length=500)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorBody(_Model):
    """Why a request was not carried out."""

    code: str = Field(
        description="For programs: unauthorized, forbidden, not_found, conflict, invalid, not_running ..."
    )
    text: str = Field(description="For people: what is wrong and what to do.")


class ErrorReply(_Model):
    """The body of every answer with a status of 400 or more."""

    error: ErrorBody


class RunRequest(_Model):
    """A run to start; what is left out is as in `./twin run`."""

    name: str | None = Field(None, pattern=NAME, description="Folder of the run below the runs folder.")
    task: str | None = Field(None, max_length=200, description="A task of task.yaml.")
    preset: str | None = Field(None, max_length=200, description="A preset of skillgen.yaml.")
    seeds: str | None = Field(None, min_length=1, max_length=1000, description="Path of a recording to multiply.")
    demos: int | None = Field(None, ge=1, le=1_000_000, description="Verified demos wanted.")
    workers: int | None = Field(None, ge=1, le=1024, description="Worker processes; all CPUs when left out.")
    overrides: list[str] = Field([], max_length=100, description="SECTION.KEY=VALUE, as --set takes them.")


class Share(_Model):
    """`count` of `of`, with the 95 % Wilson interval of the share."""

    count: int
    of: int
    low: float
    high: float


class Cause(_Model):
    """A cause of failure and how often it was one."""

    cause: str
    share: Share


class Outcomes(_Model):
    """How the attempts on disk came out, most frequent causes first."""

    succeeded: Share = Field(description="Of all attempts.")
    verified: Share = Field(description="Of those replayed in open loop.")
    causes: list[Cause] = Field(description="Of failed attempts.")
    replay_causes: list[Cause] = Field(description="Of demos that failed when replayed.")


class Stage(_Model):
    """One stage of the pipeline."""

    name: str
    state: Literal["waiting", "running", "done"]
    done: int
    total: int
    unit: str
    rate_per_s: float | None = Field(description="Since the stage began.")
    eta_s: float | None = Field(description="Seconds left at that rate.")
    note: str


RunState = Literal["queued", "running", "stopping", "stopped", "finished", "failed", "idle"]


class Run(_Model):
    """One run."""

    id: str
    state: RunState = Field(description="`idle`: a run of the command line with nobody at work on it.")
    owner: Literal["control", "command line"]
    task: str | None
    preset: str | None
    seeds: str | None
    demos: int | None = Field(description="Verified demos wanted.")
    overrides: list[str]
    created_s: float | None
    began_s: float | None
    ended_s: float | None
    stages: list[Stage]
    messages: list[str] = Field(description="What the pipeline said last.")
    error: str = Field(description="Why it failed; empty otherwise.")
    crashes: int = Field(description="Times its process died and was started again.")
    actions: list[Literal["stop", "resume", "delete"]] = Field(description="What can be done now.")
    outcomes: Outcomes


class RunFile(_Model):
    """A file of a run."""

    path: str
    size_bytes: int
    url: str


class Video(_Model):
    """A video of a demo, one camera."""

    run: str
    demo: int
    camera: str
    url: str


class Results(_Model):
    """What a run made."""

    id: str
    outcomes: Outcomes
    dataset: Dataset | None
    report_url: str | None
    files: list[RunFile]


class Log(_Model):
    """The end of a run's log."""

    lines: list[str]
    truncated: bool = Field(description="There is more before.")


class Dataset(_Model):
    """A LeRobot dataset."""

    path: str
    episodes: int | None
    frames: int | None
    fps: float | None
    version: str
    robot: str
    features: list[str]
    size_bytes: int
    problem: str = Field(description="Why its description cannot be read; empty otherwise.")


class Checkpoint(_Model):
    """A checkpoint: a folder below the models folder."""

    role: str
    path: str
    files: int
    size_bytes: int
    modified_s: float


class Service(_Model):
    """A service seen from here, with what it says when it runs."""

    running: bool
    problem: str = Field(description="Why it counts as not running; empty otherwise.")
    values: dict[str, Any] = {}


class Options(_Model):
    """What a start form offers."""

    tasks: dict[str, str] = Field(description="Name and what the task says.")
    task: str = Field(description="Task of task.yaml in use.")
    presets: dict[str, dict[str, Any]]
    recordings: list[str]
    demos: int
    cameras: list[str]


class Health(_Model):
    """The control plane itself."""

    ok: bool
    uptime_s: float
    browsers: int = Field(description="Event streams open.")
    running: int
    queued: int
    broker: str | None = Field(description="Where generators and renderers connect; null: not here.")


class Done(_Model):
    """Carried out; `text` says what happened."""

    text: str


Results.model_rebuild()
