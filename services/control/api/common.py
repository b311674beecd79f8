"""What the routers share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Request

from services.control.models import ErrorReply
from services.control.plane import ControlPlane


def _plane(request: Request) -> ControlPlane:
    return request.app.state.plane


Plane = Annotated[ControlPlane, Depends(_plane)]
RunId = Annotated[str, Path(description="Name of a run.", max_length=255)]


def errors(*statuses: int) -> dict[int | str, dict]:
    """The error answers of a route, for the API's description; those that every route may give are added."""
    texts = {
        400: "The request cannot be read.",
        401: "A token is needed.",
        403: "Asked under a strange name, or by another site's page.",
        404: "There is no such thing.",
        409: "Not possible in the present state.",
        413: "The request is too large.",
        422: "A value or a setting is wrong.",
        424: "A service that this needs does not answer.",
        429: "More is asked at once than is allowed.",
    }
    return {status: {"model": ErrorReply, "description": texts[status]} for status in (400, 401, 403, 413, *statuses)}
