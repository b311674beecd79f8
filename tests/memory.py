"""How much memory this process holds, for tests that it does not grow. Linux."""

from __future__ import annotations

import gc
import os
from pathlib import Path

STATM = Path("/proc/self/statm")


def resident_kib() -> int:
    """Resident memory, KiB, after a collection."""
    gc.collect()
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
