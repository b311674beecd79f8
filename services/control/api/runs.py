"""/api/runs: start, list, stop, resume, delete; log, results, files."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from fastapi.responses import FileResponse

from services.control import catalog, models
from services.control.api.common import Plane, RunId, errors

router = APIRouter(prefix="/api/runs", tags=["runs"])

# Files of a run may come from a stranger's folder: shown, never run.
_FILE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data:; media-src 'self' data:; "
    "style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
}


@router.get("", responses=errors())
def list_runs(plane: Plane) -> list[models.Run]:
    """All runs: waiting and running ones first."""
    return plane.runs.list()


@router.post("", status_code=201, responses=errors(409, 422))
def start_run(plane: Plane, request: models.RunRequest) -> models.Run:
    """Start a run, or queue it when others run. Settings are checked as `./twin run` checks them."""
    return plane.runs.start(request.model_dump())


@router.get("/{run_id}", responses=errors(404, 422))
def get_run(plane: Plane, run_id: RunId) -> models.Run:
    """One run."""
    return plane.runs.get(run_id)


@router.delete("/{run_id}", responses=errors(404, 409, 422))
def delete_run(plane: Plane, run_id: RunId) -> models.Done:
    """Move the run's folder to the trash, a folder beside it, and forget the run."""
    return models.Done(text=f"moved to {plane.runs.delete(run_id)}")


@router.post("/{run_id}/stop", responses=errors(404, 409, 422))
def stop_run(plane: Plane, run_id: RunId) -> models.Run:
    """Stop a run; finished demos stay, and `resume` goes on there."""
    return plane.runs.stop(run_id)


@router.post("/{run_id}/resume", responses=errors(404, 409, 422))
def resume_run(plane: Plane, run_id: RunId) -> models.Run:
    """Go on with a stopped or failed run."""
    return plane.runs.resume(run_id)


@router.get("/{run_id}/log", responses=errors(404, 422))
def get_log(plane: Plane, run_id: RunId, lines: Annotated[int, Query(ge=1, le=5000)] = 200) -> models.Log:
    """The end of what the run's process printed."""
    return catalog.tail(plane.runs.log_of(run_id), lines)


@router.get("/{run_id}/results", responses=errors(404, 422))
def get_results(plane: Plane, run_id: RunId) -> models.Results:
    """Rates and causes with their intervals, and what files there are."""
    folder = plane.runs.folder_of(run_id)
    report = folder.report / "index.html"
    return models.Results(
        id=run_id,
        outcomes=plane.runs.get(run_id).outcomes,
        dataset=catalog.dataset_at(folder.dataset) if (folder.dataset / "meta" / "info.json").is_file() else None,
        report_url=catalog.file_url(run_id, report.relative_to(folder.root)) if report.is_file() else None,
        files=catalog.result_files(run_id, folder),
    )


@router.get(
    "/{run_id}/files/{path:path}",
    response_class=FileResponse,
    responses={
        **errors(404, 422),
        200: {"description": "The file. Ranges are served.", "content": {"application/octet-stream": {}}},
        206: {"description": "The range that was asked for.", "content": {"application/octet-stream": {}}},
        416: {"description": "The file has no such range.", "content": {"text/plain": {}}},
        400: {"description": "The range cannot be read.", "content": {"text/plain": {}, "application/json": {}}},
    },
)
def get_file(plane: Plane, run_id: RunId, path: Annotated[str, InPath(max_length=1000)]) -> FileResponse:
    """A file of the run's report, dataset or videos."""
    return FileResponse(catalog.served_file(plane.runs.folder_of(run_id), path), headers=_FILE_HEADERS)
