"""One commander at a time."""

from __future__ import annotations

from collections.abc import Callable

from so101.robot.base import RobotError


class Busy(RobotError):
    """Somebody else commands the arm."""


class Sessions:
    """Who commands. A commander keeps its place until another takes it, which is possible after `silent_s` of silence.

    Args:
        clock: monotonic, s.
    """

    def __init__(self, silent_s: float, clock: Callable[[], float]) -> None:
        self._silent_s, self._clock = silent_s, clock
        self._session, self.commander = "", ""
        self._heard_s = 0.0

    def take(self, session: str, name: str) -> None:
        """Become the commander.

        Raises:
            Busy: another one is, and not silent.
        """
        if self._session not in ("", session):
            self._refuse_if_alive()
        self._session, self.commander, self._heard_s = session, name or "unnamed", self._clock()

    def heard(self, session: str) -> None:
        """The commander spoke.

        Raises:
            Busy: it is not the commander.
        """
        if session != self._session:
            if self._session:
                raise Busy(f"{self.commander!r} commands the arm now; arm it again to command it yourself")
            raise Busy("your session has ended; arm the arm again")
        self._heard_s = self._clock()

    def may_end(self, session: str) -> None:
        """Whether `session` may send the arm home: the commander, or anyone when there is none alive. Not a program
        whose session somebody ended, with a Stop: it does not know.

        Raises:
            Busy: it may not.
        """
        if session and not self._session:
            raise Busy("your session has ended (a Stop?); the arm stays as it is until somebody arms or disarms it")
        if self._session not in ("", session):
            self._refuse_if_alive()

    def end(self) -> None:
        """Nobody commands."""
        self._session = self.commander = ""

    def _refuse_if_alive(self) -> None:
        silent_s = self._clock() - self._heard_s
        if silent_s < self._silent_s:
            raise Busy(
                f"{self.commander!r} commands the arm (last heard {silent_s:.1f} s ago); it is free when that one "
                f"disarms, after {self._silent_s:g} s of its silence, or after a Stop"
            )
