"""Everything that is not a run: workers, arm, cameras, policy, datasets, checkpoints, videos, health."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi import Path as InPath

from services.control import catalog, models
from services.control.api.common import Plane, errors

router = APIRouter(prefix="/api", tags=["resources"])


@router.get("/health", responses=errors())
def get_health(plane: Plane) -> models.Health:
    """The control plane itself; needs no token."""
    return plane.health()


@router.get("/options", responses=errors())
def get_options(plane: Plane) -> models.Options:
    """What a run can be started with."""
    config = plane.config
    return models.Options(
        tasks={name: task.language for name, task in config.task.tasks.items()},
        task=config.task.name,
        presets=config.skillgen.presets,
        recordings=catalog.find_recordings(plane.settings.runs.recordings),
        demos=config.skillgen.target_demos,
        cameras=list(config.cameras.names),
    )


@router.get("/workers", responses=errors())
def get_workers(plane: Plane) -> models.Service:
    """Generators and renderers, and what waits for them."""
    return plane.service("workers")


@router.get("/datasets", responses=errors())
def get_datasets(plane: Plane) -> list[models.Dataset]:
    """LeRobot datasets below the folders of deploy.control_plane.datasets, newest first."""
    return catalog.find_datasets(plane.settings.datasets)


@router.get("/checkpoints", responses=errors())
def get_checkpoints(plane: Plane) -> list[models.Checkpoint]:
    """Folders below deploy.server.models_dir, one a role."""
    return catalog.find_checkpoints(plane.models_dir)


@router.get("/videos", responses=errors(404, 422))
def get_videos(
    plane: Plane,
    run: Annotated[str, Query(description="Name of a run.", max_length=255)],
    demos: Annotated[int, Query(description="Of the newest so many demos.", ge=1, le=50)] = 2,
) -> list[models.Video]:
    """The newest videos of a run."""
    return catalog.latest_videos(run, plane.runs.folder_of(run), demos)


@router.get("/policy", responses=errors())
def get_policy(plane: Plane) -> models.Service:
    """The policy server and what it has counted."""
    return plane.service("policy")


@router.get("/cameras", responses=errors())
def get_cameras(plane: Plane) -> models.Service:
    """How each camera is doing."""
    return plane.service("cameras")


@router.get(
    "/cameras/{name}/frame.jpg",
    response_class=Response,
    responses={**errors(404, 422, 424), 200: {"description": "JPEG.", "content": {"image/jpeg": {}}}},
)
def get_frame(plane: Plane, name: Annotated[str, InPath(max_length=200)]) -> Response:
    """The newest picture of a camera."""
    return Response(plane.cameras.jpeg(name), media_type="image/jpeg", headers={"Cache-Control": "no-store"})


@router.get("/arm", responses=errors())
def get_arm(plane: Plane) -> models.Service:
    """The arm as its driver sees it."""
    return plane.service("arm")


@router.post("/arm/stop", responses=errors(409, 424))
def stop_arm(plane: Plane) -> models.Done:
    """Emergency stop: the arm stays where it is, whoever commands it."""
    return models.Done(text=plane.arm.stop())


@router.post("/arm/home", responses=errors(409, 424))
def send_arm_home(plane: Plane) -> models.Done:
    """Send the arm to its home pose and release it there. Refused while somebody commands it."""
    return models.Done(text=plane.arm.home())
