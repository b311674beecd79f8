"""Requests made up from the API's description, valid and not: answers are as described, and never a fault of ours.

`python -m tests.services.control.test_openapi 500` makes 500 a route instead of a few.
"""

import sys
import warnings

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from tests.services.control.conftest import command_line_run

EXAMPLES = 6
HEADERS = {"X-Twin": "1", "Host": "localhost:8000"}
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


def check_all(app, examples: int) -> dict[str, int]:
    """Try every route; returns answers by status."""
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=HEADERS)
    schema = schema.exclude(path="/api/events")  # never ends
    answers: dict[str, int] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(operation.as_strategy(generation_mode=mode))
            def try_it(case):
                reply = case.call(base_url="http://localhost:8000", headers=HEADERS)
                case.validate_response(reply, checks=CHECKS)
                answers[str(reply.status_code)] = answers.get(str(reply.status_code), 0) + 1

            try:
                try_it()
            except Exception as error:
                if "Unsatisfiable" not in type(error).__name__ and "nothing to negate" not in str(error).lower():
                    raise AssertionError(f"{operation.method} {operation.path}: {error}") from error
    return answers


@pytest.mark.filterwarnings("ignore")
def test_no_request_is_answered_with_a_fault_of_ours(api, plane):
    command_line_run(plane.runs.folder / "done")
    answers = check_all(api.app, EXAMPLES)
    assert {"200", "404", "422"} <= set(answers) and not [status for status in answers if status >= "500"]


def _by_hand(examples: int) -> None:
    import os
    import tempfile
    from pathlib import Path

    from services.control.app import create_app
    from services.control.auth import Gate
    from services.control.plane import ControlPlane
    from so101.config import load_config
    from tests.services.control.conftest import FakeLauncher, isolated

    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp())
    os.chdir(folder)
    with ControlPlane(load_config(overrides=isolated(folder)), FakeLauncher()) as plane:
        command_line_run(plane.runs.folder / "done")
        print(check_all(create_app(plane, Gate(None)), examples))


if __name__ == "__main__":
    _by_hand(int(sys.argv[1]))
