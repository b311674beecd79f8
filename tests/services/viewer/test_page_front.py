"""The page of a show, as browsers and others meet it."""

from __future__ import annotations

import http.client
import io
import json
import threading

import numpy as np
import pytest
from PIL import Image

from services.viewer.page_front import PageFront, ViewerFault
from so101.config import load_config
from so101.families import make_env
from so101.families.drivers import Hold
from so101.families.shows import DrivenShow
from so101.families.viewer import run_show

SIZE = ["deploy.viewer.width_px=64", "deploy.viewer.height_px=48"]


class Page:
    """A page and the show behind it, run in this thread by `run`; asked from another."""

    def __init__(self):
        self.config = load_config(overrides=SIZE)
        self.env = make_env("so101_tower_reach_clear", autoreset=False)
        self.show = DrivenShow(self.env, Hold(self.env), 3, title="a title", horizon=False)
        self.front = PageFront(self.show, self.config, 0)
        self.port = int(self.front.url.split(":")[-1].strip("/"))

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path, body=body, headers=headers)
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        return reply.status, content

    def wish(self, message, **headers):
        status, content = self.ask("POST", "/wish", json.dumps(message), **headers)
        return status, content

    def run(self, script):
        """Run the show until script(), in another thread, ends."""
        results = []

        def work():
            try:
                results.append(script())
            except BaseException as error:  # noqa: BLE001  shown by the test
                results.append(error)
            finally:
                self.wish({"quit": None})

        thread = threading.Thread(target=work)
        thread.start()
        run_show(self.show, self.front)
        thread.join()
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]


@pytest.fixture
def page():
    made = Page()
    yield made
    made.front.close()
    made.env.close()


def state_of(page):
    return json.loads(page.ask("GET", "/state")[1])


def test_the_page_its_parts_and_its_state(page):
    def script():
        files = [page.ask("GET", path) for path in ("/", "/page.js", "/page.css", "/nothing", "/../../configs")]
        while not (state := state_of(page)).get("title"):
            pass
        return files, state, page.ask("GET", "/picture.jpg")

    files, state, (_, jpeg) = page.run(script)
    assert [status for status, _ in files] == [200, 200, 200, 404, 404] and b"<title>SO-101 twin" in files[0][1]
    assert state["title"] == "a title" and state["seed"] == 3 and state["cameras"] == ["orbit", "wrist", "overhead"]
    assert [joint["name"] for joint in state["joints"]][-1] == "gripper" and state["drivable"]
    assert Image.open(io.BytesIO(jpeg)).size == (64, 48)


def test_the_stream_goes_on_while_somebody_watches(page):
    def script():
        connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
        connection.request("GET", "/stream")
        reply = connection.getresponse()
        content = b""
        while content.count(b"--picture") < 4:
            content += reply.read1()
        connection.close()
        return reply.getheader("Content-Type"), content

    kind, content = page.run(script)
    assert kind == "multipart/x-mixed-replace; boundary=picture" and content.count(b"\xff\xd8\xff") >= 3


def test_wishes_reach_the_show_and_the_camera(page):
    def script():
        before = page.ask("GET", "/picture.jpg")[1]
        for message in ({"camera": "overhead"}, {"pause": None}, {"restart": 8}, {"orbit": [10, 5]}, {"speed": 2.0}):
            assert page.wish(message)[0] == 200
        while not (state := state_of(page)).get("seed") == 8:
            pass
        return before, state

    _, state = page.run(script)
    assert state["camera"] == "overhead" and state["paused"] and state["speed"] == 2.0


def test_sliders_move_the_arm(page):
    start = page.env.qpos[0, :6].copy()
    goal = (start + 0.1).tolist()

    def script():
        page.wish({"drive": goal})
        while (
            np.abs(np.array([j["command"] for j in state_of(page).get("joints", [{"command": 9}] * 6)]) - goal).max()
            > 0.01
        ):
            pass

    page.run(script)
    assert np.abs(page.env.qpos[0, 0] - start[0]) > 0.001


@pytest.mark.parametrize(
    "message",
    [
        {"camera": "nowhere"},
        {"orbit": [1]},
        {"orbit": ["a", 2]},
        {"drive": [1e9] * 6},
        {"drive": [True] * 6},
        {"speed": 7},
        {"restart": -1},
        {"restart": 1.5},
        {"key": "n"},
        {"zoom": -1},
        {"run": "rm"},
        {},
        [],
        "quit",
        {"pause": None, "quit": None},
    ],
)
def test_what_is_no_wish_is_refused(page, message):
    status, content = page.wish(message)
    assert status == 400 and json.loads(content)["fault"] and page.front.wishes() == []


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 3000, b"x" * 5000, b'{"zoom": [NaN]}'])
def test_bodies_that_are_no_json_are_refused(page, body):
    assert page.ask("POST", "/wish", body)[0] == 400


def test_other_sites_and_other_names_are_turned_away(page):
    assert page.ask("GET", "/", Host="evil.example")[0] == 403
    assert page.wish({"pause": None}, Host=f"evil.example:{page.port}")[0] == 403
    assert page.wish({"pause": None}, Origin="http://evil.example")[0] == 403
    assert page.front.wishes() == []
    assert page.wish({"pause": None}, Origin=f"http://127.0.0.1:{page.port}")[0] == 200


def test_a_port_that_is_taken_is_told(page):
    with pytest.raises(ViewerFault, match=f":{page.port} .*give another --port"):
        PageFront(page.show, page.config, page.port)
