import json

import numpy as np
import pytest
from fastapi.testclient import TestClient

from services.control.app import create_app
from services.control.auth import Gate
from so101.config import load_config
from so101.datasets.demo import Demo, save_demo
from so101.errors import ConfigError
from so101.files import write_json
from tests.services.control.conftest import command_line_run

VIDEO = bytes(range(256)) * 40


def demo(index, cause=""):
    poses = np.zeros((2, 7))
    return Demo(
        index=index, seed=index, task="t", fps=30.0, q_target=np.zeros((2, 6)), q=np.zeros((2, 6)),
        objects={"o": poses}, physics_state=np.zeros(3), cause=cause, strict=not cause, geometric=not cause,
    )  # fmt: skip


@pytest.fixture
def finished(plane):
    """A run folder with two successes, three failures, a video, a report and a dataset."""
    folder = command_line_run(plane.runs.folder / "done", **{"task.name": "vial_to_rack", "skillgen.target_demos": 2})
    for index, cause in enumerate(["", "", "missed", "missed", "dropped"]):
        save_demo(folder / ("failed" if cause else "generated"), demo(index, cause))
    save_demo(folder / "verified", demo(0))
    save_demo(folder / "rejected", demo(1, "slipped"))
    (folder / "videos" / "demo_000000").mkdir(parents=True)
    (folder / "videos" / "demo_000000" / "ego.mp4").write_bytes(VIDEO)
    (folder / "report").mkdir()
    (folder / "report" / "index.html").write_text("<h1>report</h1>")
    info = {
        "total_episodes": 2,
        "total_frames": 300,
        "fps": 30,
        "codebase_version": "v2.1",
        "robot_type": "so101",
        "features": {"a": {}},
    }
    write_json(folder / "dataset" / "meta" / "info.json", info)
    return folder


def error_of(reply, status, code):
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert error["code"] == code
    return error["text"]


def test_a_run_is_started_watched_stopped_resumed_and_deleted(api, plane, launcher):
    reply = api.post("/api/runs", json={"name": "a", "demos": 3, "overrides": ["skillgen.selection.nn_k=2"]})
    assert reply.status_code == 201 and reply.json()["state"] == "running"
    assert [run["id"] for run in api.get("/api/runs").json()] == ["a"]
    assert api.post("/api/runs/a/stop").json()["state"] == "stopping"
    launcher.end(plane.runs._state("a"), 143)
    assert api.get("/api/runs/a").json()["actions"] == ["resume", "delete"]
    assert api.post("/api/runs/a/resume").json()["state"] == "running"
    assert "is running" in error_of(api.delete("/api/runs/a"), 409, "conflict")
    launcher.end(plane.runs._state("a"), 0)
    assert "moved to" in api.delete("/api/runs/a").json()["text"]
    assert "no run 'a'" in error_of(api.get("/api/runs/a"), 404, "not_found")


@pytest.mark.parametrize(
    "overrides",
    [["skillgen.nn_k=x"], ["skilgen.a=1"], ["nonsense"], ["skillgen.nn_k=x", "ik.iterations=-1"], ["task.name=no"]],
)
def test_wrong_settings_are_told_in_the_words_of_the_command_line(api, overrides):
    with pytest.raises(ConfigError) as told:
        load_config(overrides=overrides)
    assert error_of(api.post("/api/runs", json={"overrides": overrides}), 422, "invalid") == str(told.value)


def test_wrong_requests_name_every_wrong_field(api):
    text = error_of(api.post("/api/runs", json={"demos": 0, "nmae": "x", "workers": "many"}), 422, "invalid")
    assert {line.partition(":")[0] for line in text.splitlines()} == {"demos", "nmae", "workers"}
    error_of(api.post("/api/runs", content=b"{", headers={"Content-Type": "application/json"}), 422, "invalid")
    error_of(
        api.post("/api/runs", content=b"x" * 70_000, headers={"Content-Type": "application/json"}), 413, "too_large"
    )
    error_of(api.get("/api/none"), 404, "not_found")
    error_of(api.put("/api/runs"), 405, "not_allowed")


def test_results_count_and_bound_what_is_on_disk(api, finished):
    results = api.get("/api/runs/done/results").json()
    succeeded = results["outcomes"]["succeeded"]
    assert (succeeded["count"], succeeded["of"]) == (2, 5)
    assert succeeded["low"] == pytest.approx(0.1176, abs=1e-3) and succeeded["high"] == pytest.approx(0.7693, abs=1e-3)
    assert [(c["cause"], c["share"]["count"], c["share"]["of"]) for c in results["outcomes"]["causes"]] == [
        ("missed", 2, 5),
        ("dropped", 1, 5),
    ]
    assert [(c["cause"], c["share"]["count"], c["share"]["of"]) for c in results["outcomes"]["replay_causes"]] == [
        ("slipped", 1, 2)
    ]
    assert results["dataset"]["episodes"] == 2
    assert [file["path"] for file in results["files"]] == [
        "dataset/meta/info.json",
        "report/index.html",
        "videos/demo_000000/ego.mp4",
    ]
    assert api.get(results["report_url"]).text == "<h1>report</h1>"
    save_demo(finished / "failed", demo(5, "missed"))
    assert api.get("/api/runs/done").json()["outcomes"]["succeeded"]["of"] == 6


def test_videos_are_served_in_ranges(api, finished):
    (video,) = api.get("/api/videos", params={"run": "done"}).json()
    assert (video["demo"], video["camera"]) == (0, "ego")
    whole = api.get(video["url"])
    assert (
        whole.content == VIDEO
        and whole.headers["accept-ranges"] == "bytes"
        and whole.headers["content-type"] == "video/mp4"
    )
    part = api.get(video["url"], headers={"Range": "bytes=100-299"})
    assert part.status_code == 206 and part.content == VIDEO[100:300]
    assert part.headers["content-range"] == f"bytes 100-299/{len(VIDEO)}"
    assert api.get(video["url"], headers={"Range": "bytes=-5"}).content == VIDEO[-5:]
    assert api.get(video["url"], headers={"Range": f"bytes={len(VIDEO)}-"}).status_code == 416


@pytest.mark.parametrize(
    "path",
    ["run.json", "../done/run.json", "report/../run.json", "report/%2e%2e/run.json", "/etc/hostname",
     "%2fetc%2fhostname", "report", "report/../../../secret.html", "report/link.html", "generated/demo_000000.npz",
     "report/a%00.html", "report/" + "x" * 900],
)  # fmt: skip
def test_only_results_are_served(api, finished, tmp_path, path):
    (tmp_path / "secret.html").write_text("secret")
    (finished / "report" / "link.html").symlink_to(tmp_path / "secret.html")
    reply = api.get(f"/api/runs/done/files/{path}")
    assert reply.status_code == 404 and "secret" not in reply.text.replace("secret.html", "")


def test_what_a_report_may_do_in_a_browser(api, finished):
    policy = api.get("/api/runs/done/files/report/index.html").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "script-src" not in policy
    page = api.get("/").headers["content-security-policy"]
    assert "script-src 'self'" in page and "unsafe" not in page


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "a'b\"c", "ü&b", "x y", "a\\b"])
def test_folders_with_hostile_names_are_listed_and_served_as_they_are(api, plane, name):
    folder = command_line_run(plane.runs.folder / name)
    (folder / "videos" / "demo_000000").mkdir(parents=True)
    (folder / "videos" / "demo_000000" / "<b>.mp4").write_bytes(VIDEO)
    assert [run["id"] for run in api.get("/api/runs").json()] == [name]
    (video,) = api.get("/api/videos", params={"run": name}).json()
    assert video["camera"] == "<b>" and "<" not in video["url"]
    assert api.get(video["url"]).content == VIDEO


def test_a_name_that_is_no_text_breaks_nothing(api, plane, finished):
    (finished / "videos" / "demo_000000" / "ego.mp4").rename(finished / "videos" / "demo_000000" / "\udcff.mp4")
    (video,) = api.get("/api/videos", params={"run": "done"}).json()
    assert video["camera"] == "\ufffd" and api.get(video["url"]).status_code == 404  # an address cannot carry it
    assert api.get("/api/runs/done/results").status_code == 200


def test_the_log_ends_with_its_last_lines(api, plane, launcher):
    api.post("/api/runs", json={"name": "a"})
    assert api.get("/api/runs/a/log").json() == {"lines": [], "truncated": False}
    plane.runs._state("a").log.write_bytes(b"one\ntwo\n\xff three\n")
    assert api.get("/api/runs/a/log", params={"lines": 2}).json() == {
        "lines": ["two", "\ufffd three"],
        "truncated": True,
    }
    error_of(api.get("/api/runs/a/log", params={"lines": 0}), 422, "invalid")


def test_datasets_and_checkpoints_are_found_on_disk(api, plane, finished, tmp_path):
    (tmp_path / "datasets" / "broken" / "meta").mkdir(parents=True)
    (tmp_path / "datasets" / "broken" / "meta" / "info.json").write_text("[1]")
    datasets = {one["path"]: one for one in api.get("/api/datasets").json()}
    assert datasets["runs/done/dataset"]["frames"] == 300 and datasets["runs/done/dataset"]["problem"] == ""
    assert "cannot be read" in datasets["datasets/broken"]["problem"]
    assert api.get("/api/checkpoints").json() == []
    (tmp_path / "models" / "policy").mkdir(parents=True)
    (tmp_path / "models" / "policy" / "weights.bin").write_bytes(b"123")
    (checkpoint,) = api.get("/api/checkpoints").json()
    assert (checkpoint["role"], checkpoint["size_bytes"]) == ("policy", 3)


def test_the_form_is_offered_what_there_is(api, tmp_path):
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "demo.csv").write_text("t\n")
    options = api.get("/api/options").json()
    config = load_config()
    assert list(options["tasks"]) == list(config.task.tasks) and set(options["presets"]) == set(config.skillgen.presets)
    assert options["recordings"] == ["recordings/demo.csv"]


def test_services_that_are_not_there_are_no_errors(make_config, launcher):
    from services.control.plane import ControlPlane

    with ControlPlane(make_config("deploy.control_plane.events.stale_s=0.1"), launcher) as plane:
        api = TestClient(create_app(plane, Gate(None)), base_url="http://localhost", headers={"X-Twin": "1"})
        told = {}
        for name in ("arm", "cameras", "policy"):
            while not (service := api.get(f"/api/{name}").json())["problem"].startswith("no "):
                pass
            told[name] = service
        assert not any(service["running"] for service in told.values())
        assert "./twin serve driver" in told["arm"]["problem"] and "./policy" in told["policy"]["problem"]
        assert api.get("/api/workers").json()["values"]["workers"] == []
        assert "no pictures" in error_of(api.get("/api/cameras/ego/frame.jpg"), 424, "not_running")
        assert "cameras.yaml has ego" in error_of(api.get("/api/cameras/x/frame.jpg"), 404, "not_found")
        assert "did not answer" in error_of(api.post("/api/arm/stop"), 424, "not_running")
        assert "did not answer" in error_of(api.post("/api/arm/home"), 424, "not_running")
        health = api.get("/api/health").json()
        assert health["ok"] and health["broker"].startswith("ipc://")
        launcher.working.clear()


def test_an_error_of_ours_is_an_answer_too(api, plane, monkeypatch):
    monkeypatch.setattr(plane.runs, "list", lambda: 1 / 0)
    quiet = TestClient(api.app, base_url="http://localhost", raise_server_exceptions=False)
    text = error_of(quiet.get("/api/runs"), 500, "failed")
    assert "ZeroDivisionError" in text and "division" not in text


def test_every_route_is_described(api):
    schema = api.get("/api/openapi.json").json()
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            assert route.get("description"), (path, method)
            assert route["tags"] and "401" in route["responses"] and "403" in route["responses"] or path == "/api/login"
            for status, reply in route["responses"].items():
                if status in ("401", "403", "404", "409", "422", "424", "429"):
                    assert reply["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorReply"), (
                        path,
                        method,
                        status,
                    )
    assert "HTTPValidationError" not in json.dumps(schema)
