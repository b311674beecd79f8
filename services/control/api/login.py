"""/api/login: a browser shows the token once and gets a cookie, for event streams and pictures cannot carry headers."""

from __future__ import annotations

import logging

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from services.control.api.common import errors
from services.control.auth import COOKIE, Gate
from services.control.errors import Unauthorized
from services.control.models import Done

log = logging.getLogger(__name__)

router = APIRouter(prefix="/api", tags=["login"])


class Login(BaseModel):
    """The token."""

    model_config = ConfigDict(extra="forbid")
    token: str = Field(max_length=1000)


@router.post("/login", responses=errors(422))
def log_in(request: Request, response: Response, login: Login) -> Done:
    """Check the token and set the cookie of the page."""
    gate: Gate = request.app.state.gate
    if not gate.needs_token:
        return Done(text="no token is needed here")
    if not gate.is_token(login.token.strip()):
        log.warning("a login with a wrong token from %s", request.client.host if request.client else "somebody")
        raise Unauthorized(
            "that is not the token; it is in deploy.control_plane.http.token_file on the machine that serves"
        )
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, gate.cookie, httponly=True, samesite="strict", secure=secure, max_age=30 * 86400)
    return Done(text="logged in")
