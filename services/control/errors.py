"""What can go wrong with a request, each with its HTTP status and a code for programs."""

from __future__ import annotations

from so101.errors import So101Error


class ControlError(So101Error):
    """Root of the errors that a request can cause. The text is for the person who asked."""

    status, code = 400, "refused"


class Unauthorized(ControlError):
    """No token, or a wrong one."""

    status, code = 401, "unauthorized"


class Forbidden(ControlError):
    """Asked under a strange name, or from another site's page."""

    status, code = 403, "forbidden"


class NotFound(ControlError):
    """There is no such thing."""

    status, code = 404, "not_found"


class Conflict(ControlError):
    """Not possible in the present state."""

    status, code = 409, "conflict"


class Invalid(ControlError):
    """A setting or a value is wrong."""

    status, code = 422, "invalid"


class NotRunning(ControlError):
    """A service that this needs does not answer. 424, not 503: this one is well."""

    status, code = 424, "not_running"


class TooMany(ControlError):
    """More is asked at once than is allowed."""

    status, code = 429, "too_many"


class TooSlow(ControlError):
    """A request that does not arrive."""

    status, code = 408, "too_slow"


class TooLarge(ControlError):
    """A request beyond the limit."""

    status, code = 413, "too_large"
