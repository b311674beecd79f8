"""`./twin test`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

EPILOG = "Example: ./twin test tests/pipeline -k resume -x"


def test(context: typer.Context) -> None:
    """Run the tests; everything after `test` goes to pytest (`./twin test -- --help` shows what it takes)."""
    os.chdir(Path(__file__).resolve().parents[2])
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *context.args])
