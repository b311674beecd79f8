"""Asking a policy on a thread of its own, so that the loop keeps its time while the policy thinks."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from typing import Any

from so101.policies.base import Policy


@dataclass(frozen=True)
class Answer:
    """What came back: an action and its info, or the error that was raised instead. `took_s` from asking to answer."""

    action: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    took_s: float = 0.0


class Asker:
    """One question at a time; the policy is only ever called on this object's thread."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="policy")
        self._future: Future[Answer] | None = None

    @property
    def waiting(self) -> bool:
        """Whether a question is open."""
        return self._future is not None

    def reset(self, options: dict[str, Any] | None) -> dict[str, Any]:
        """`Policy.reset`, waited for; a question that is still open is forgotten.

        Raises:
            Exception: what the policy raises.
        """
        self._future = None
        return self._pool.submit(self._policy.reset, options).result()

    def ask(self, observation: dict[str, Any]) -> None:
        """Send a question; there must be none open."""
        assert self._future is None
        self._future = self._pool.submit(self._call, observation)

    def answer(self, timeout_s: float = 0.0) -> Answer | None:
        """The answer when it is there, or comes within `timeout_s`."""
        if self._future is None:
            return None
        try:
            answer = self._future.result(timeout_s)
        except NotYet:
            return None
        self._future = None
        return answer

    def forget(self) -> None:
        """Take no answer to the open question. The policy is done with it before it hears the next."""
        self._future = None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _call(self, observation: dict[str, Any]) -> Answer:
        began = time.monotonic()
        try:
            action, info = self._policy.get_action(observation, None)
        except Exception as error:  # told to the loop, which decides
            return Answer(error=error, took_s=time.monotonic() - began)
        return Answer(action, info, took_s=time.monotonic() - began)
