import json
import sqlite3
import subprocess
import sys
from importlib.util import find_spec

import pytest

from services.control import flow
from tests.services.control.conftest import environment


class Messages:
    def __init__(self):
        self.said = []

    def message(self, text):
        self.said.append(text)


def run(tmp_path, pipeline, reporter, prefect=True):
    return flow.run_flow(pipeline, "one", prefect=prefect, reporter=reporter, home=tmp_path / "prefect", start_s=60)


def test_without_the_wish_for_prefect_nothing_stands_around(tmp_path):
    assert run(tmp_path, lambda around: (around, 7), Messages(), prefect=False) == (None, 7)


def test_without_prefect_it_runs_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(flow, "find_spec", lambda name: None)
    reporter = Messages()
    assert run(tmp_path, lambda around: (around, 7), reporter) == (None, 7)
    assert "Prefect is not installed (pip install -e .[control])" in reporter.said[0]


@pytest.mark.parametrize("begun", [False, True])
def test_a_prefect_that_does_not_start_costs_no_run(tmp_path, monkeypatch, begun):
    calls = []

    import types

    def decorator(**options):
        def wrap(function):
            def call():
                if begun:
                    function()
                raise RuntimeError("no server\nsecond line")

            return call

        return wrap

    fake = types.SimpleNamespace(flow=decorator, task=None)
    monkeypatch.setitem(sys.modules, "prefect", fake)
    monkeypatch.setitem(sys.modules, "prefect.cache_policies", types.SimpleNamespace(NO_CACHE=None))
    reporter = Messages()
    if begun:  # then the error may be one of the pipeline's: it is told, and nothing runs twice
        with pytest.raises(RuntimeError):
            flow._run_in_prefect(calls.append, "one", reporter)
    else:
        flow._run_in_prefect(calls.append, "one", reporter)
        assert reporter.said == ["Prefect did not start (no server); running without it"]
    assert len(calls) == 1


SCRIPT = """
import json, sys
from pathlib import Path
from services.control.flow import run_flow
from so101.errors import InsufficientDemosError

class Reporter:
    def message(self, text): said.append(text)

said, kept = [], {}
def good(around):
    return [around("seeds", lambda: 1), around("generate", lambda: 2), around("generate", lambda: 3)]
def bad(around):
    around("seeds", lambda: 1)
    def fail(): raise InsufficientDemosError("0 kept")
    around("generate", fail)
if __name__ == "__main__":
    options = dict(prefect=True, reporter=Reporter(), home=Path(sys.argv[1]), start_s=120)
    kept["good"] = run_flow(good, "good run", **options)
    try:
        run_flow(bad, "bad run", **options)
    except InsufficientDemosError as error:
        kept["bad"] = str(error)
    print(json.dumps([kept, said]))
"""


@pytest.mark.skipif(find_spec("prefect") is None, reason="Prefect is not installed")
def test_stages_are_tasks_of_a_prefect_flow(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    home = tmp_path / "prefect"
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(home)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    kept, said = json.loads(done.stdout.splitlines()[-1])
    assert kept == {"good": [1, 2, 3], "bad": "0 kept"} and said == []
    with sqlite3.connect(home / "prefect.db") as store:
        flows = dict(store.execute("SELECT name, state_type FROM flow_run").fetchall())
    assert flows == {"good run": "COMPLETED", "bad run": "FAILED"}
