"""A message with all that can travel, for tests."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from proto.messages import Message


class Sample(Message):
    """Not part of the product."""

    image: np.ndarray
    number: Annotated[int, Meta(ge=0)] = 0
    arrays: dict[str, np.ndarray] = {}


def sample(**fields) -> Sample:
    """A `Sample` with an image of 4 x 5 px unless said otherwise."""
    return Sample(**({"image": np.arange(60, dtype=np.uint8).reshape(4, 5, 3)} | fields))
