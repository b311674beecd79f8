"""Files of one run that are damaged, by a disk or by hand: the other runs are shown and started all the same."""

import json

VALUES = (None, 10**400, float("nan"), float("inf"), "x" * 10_000, "\ud800", [], {"a": 1})
TEXTS = (b"", b"\x00\xff\xfe", b"{", b"[" * 100_000, b"null", b"1", b'{"settings": 3}')
OUTCOME = {"start": 1, "code": 1, "text": "t", "ended_s": 1.0}
EVENTS = (
    {"event": "begin", "at": 1.0, "start": 1},
    {"event": "stage", "at": 1.0, "stage": "generate", "done": 0, "total": 3, "unit": "demos"},
    {"event": "advance", "at": 2.0, "count": 1, "note": "n"},
    {"event": "message", "at": 1.0, "text": "t"},
)
SETTINGS = ("task.name", "skillgen.target_demos", "skillgen.keep")


def damaged(whole: dict):
    """`whole` with one value that does not belong there, as JSON, again and again."""
    return [json.dumps({**whole, key: value}).encode() for key in whole for value in VALUES]


def test_a_damaged_run_hides_no_other_and_stops_nothing(plane, api, launcher):
    assert api.post("/api/runs", json={"name": "one"}).status_code == 201
    launcher.die("one")
    state, records = plane.runs._state("one"), []
    for name in ("one", "two"):
        (plane.runs.folder / name).mkdir(parents=True)
        records.append(plane.runs.folder / name / "run.json")

    def look(what: object) -> None:
        launcher.working.clear()
        for name in ("one", "two"):
            plane.runs._views.forget(name)
        reply = api.get("/api/runs")
        assert reply.status_code == 200 and "one" in reply.text, (what, reply.text)
        plane.runs.step()

    for text in TEXTS:
        for path in (*records, state.outcome, state.progress, state.job):
            path.write_bytes(text)
            look((path, text[:20]))
    for text in damaged(OUTCOME):
        state.outcome.write_bytes(text)
        look(text[:100])
    state.outcome.unlink()
    begin = b"".join(json.dumps(event).encode() + b"\n" for event in EVENTS[:2])
    for event in EVENTS:
        for text in damaged(event):
            state.progress.write_bytes(begin + text + b"\n")
            look(text[:100])
    for text in damaged(dict.fromkeys(SETTINGS)):
        for path in records:
            path.write_bytes(b'{"version": 1, "digest": "", "settings": ' + text + b"}")
        look(text[:100])
