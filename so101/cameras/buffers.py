"""Picture buffers that are used again once nobody looks at them any more."""

from __future__ import annotations

import sys

import numpy as np


def _references(buffers: list[np.ndarray], i: int) -> int:
    return sys.getrefcount(buffers[i])


_FREE = _references([np.empty(0)], 0)  # references to a buffer that only its list holds


class BufferPool:
    """Hands out (height, width, 3) uint8 arrays. For one thread; the arrays may be held and dropped anywhere.

    An array is free when no other reference to it is left. Views and memoryviews count: numpy's refer to the array
    they were made from, and what ZMQ sends without copying refers to it until it has left.
    """

    def __init__(self, height_px: int, width_px: int, size: int) -> None:
        self._shape, self._size = (height_px, width_px, 3), size
        self._buffers: list[np.ndarray] = []

    def take(self) -> np.ndarray:
        """A buffer nobody else holds, with old contents. When all are held it is a new one."""
        for i in range(len(self._buffers)):
            if _references(self._buffers, i) == _FREE:
                return self._buffers[i]
        buffer = np.empty(self._shape, np.uint8)
        if len(self._buffers) < self._size:
            self._buffers.append(buffer)
        return buffer
