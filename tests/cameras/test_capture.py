"""A camera on its thread: counters add up, faults end in another try, others go on."""

from __future__ import annotations

import itertools

import pytest

from so101.cameras import CameraError, CameraSet, NoFrameYet, make_camera, make_cameras
from so101.cameras.board import FrameBoard
from so101.cameras.capture import Capture

from .fakes import ScriptedCamera, until


@pytest.fixture
def running(quick):
    """Start captures; they are closed at the end."""
    captures = []

    def start(camera: ScriptedCamera) -> tuple[Capture, FrameBoard]:
        board = FrameBoard()
        captures.append(Capture(camera, board, quick))
        captures[-1].start()
        return captures[-1], board

    yield start
    for capture in captures:
        capture.close()


def test_frames_and_gaps_in_their_numbers_are_counted(running):
    camera = ScriptedCamera()
    capture, board = running(camera)
    indices = [5, 6, 7, 10, 11, 12, 20]
    for index in indices:
        camera.script.put(index)
    until(lambda: capture.state.captured == len(indices))
    state = capture.state
    assert (state.state, state.dropped, state.failures, state.error) == ("live", 2 + 7, 0, "")
    assert board.take(0)[0].index == 20
    assert state.captured == 1 + capture.state.skipped  # one was taken, the others replaced unseen


def test_a_camera_that_fails_is_closed_and_opened_again_and_its_new_numbers_are_no_gap(running):
    camera = ScriptedCamera()
    capture, _ = running(camera)
    for item in (100, 101, CameraError("ego: unplugged"), 3, 4):
        camera.script.put(item)
    until(lambda: capture.state.captured == 4)
    state = capture.state
    assert (state.state, state.dropped, state.failures, state.error) == ("live", 0, 1, "")
    assert camera.opened == 2 and camera.closed == 1


def test_a_silent_camera_counts_as_failed_and_is_tried_again_and_again(running):
    camera = ScriptedCamera()
    capture, _ = running(camera)
    until(lambda: camera.opened >= 3)
    assert "no frame for 0.2 s" in capture.state.error and capture.state.fps_hz == 0.0


@pytest.mark.parametrize("fault", [RuntimeError("sdk"), OSError(19, "No such device"), ZeroDivisionError()])
def test_whatever_an_sdk_raises_the_thread_lives(running, fault):
    camera = ScriptedCamera(opening=[fault])
    capture, _ = running(camera)
    camera.script.put(1)
    until(lambda: capture.state.captured == 1)
    assert capture.state.failures == 1


def test_nothing_to_show_yet_is_no_fault(running):
    camera = ScriptedCamera()
    capture, _ = running(camera)
    for _ in range(3):
        camera.script.put(NoFrameYet("no rig"))
    until(lambda: capture.state.error == "no rig")
    assert capture.state.state == "waiting"
    camera.script.put(1)
    until(lambda: capture.state.state == "live")
    assert camera.opened == 1 and capture.state.failures == 0 and capture.state.error == ""


def test_waits_between_tries_double_up_to_the_limit_and_start_anew_after_a_frame(quick, monkeypatch):
    camera = ScriptedCamera(opening=[CameraError("gone")] * 4)
    capture = Capture(camera, FrameBoard(), quick)
    waits = []

    def note(seconds):
        waits.append(seconds)
        if camera.opened == 5:
            camera.opening = [CameraError("gone again")] * 2
        capture._ended.set() if len(waits) == 7 else None
        return len(waits) == 7

    monkeypatch.setattr(capture._ended, "wait", note)
    camera.script.put(1)
    camera.script.put(CameraError("unplugged"))
    capture.start()
    until(lambda: len(waits) == 7)
    capture.close()
    assert waits == [0.01, 0.02, 0.04, 0.04, 0.01, 0.02, 0.04]


def test_one_camera_that_fails_does_not_hold_the_others_up(quick):
    good, bad = ScriptedCamera("ego"), ScriptedCamera("top")
    with CameraSet([good, bad], quick) as cameras:
        bad.script.put(CameraError("top: unplugged"))
        bad.opening = [CameraError("top: unplugged")] * 1000
        for index in itertools.count(1):
            good.script.put(index)
            if cameras.take(1.0)[0].index > 50 and cameras.states()[1].failures > 2:
                break
        assert [state.state for state in cameras.states()] == ["live", "failed"]
        with pytest.raises(
            CameraError, match=r"no frame younger than 60 s within 0\.05 s from top: failed \(top: unpl"
        ):
            cameras.latest(0.05)
    assert good.closed == 1 and bad.closed == bad.opened


def test_all_that_cannot_be_opened_is_told_at_once_and_nothing_stays_open(quick):
    cameras = [
        ScriptedCamera("ego"),
        ScriptedCamera("side", opening=[CameraError("no /dev/video7")] * 9),
        ScriptedCamera("top", opening=[CameraError("no RealSense")] * 9),
    ]
    with pytest.raises(CameraError) as fault:
        CameraSet(cameras, quick).start()
    assert str(fault.value) == "camera side: no /dev/video7\ncamera top: no RealSense"
    assert all(camera.closed >= camera.opened >= 1 for camera in cameras)


def test_a_camera_that_hangs_when_opened_is_told(configured):
    class Hanging(ScriptedCamera):
        def open(self) -> None:
            released.wait()

    import threading

    released = threading.Event()
    settings = configured(capture={"open_timeout_s": 0.1}).cameras.capture
    with pytest.raises(CameraError, match=r"camera ego: did not open within 0\.1 s \(cameras\.capture\.open_timeout_s"):
        CameraSet([Hanging()], settings).start()
    released.set()


def test_the_registry_makes_what_the_file_says(configured):
    config = configured(
        ego="{kind: v4l2, device: /dev/video0}", side="{kind: realsense}", top="{kind: playback, path: x.mp4}"
    )
    assert [camera.kind for camera in make_cameras(config)] == ["v4l2", "realsense", "playback"]
    assert [camera.name for camera in make_cameras(config, ("top", "ego"))] == ["top", "ego"]
    with pytest.raises(CameraError, match=r"no camera 'tpo'; cameras\.yaml has ego, side, top; did you mean 'top'"):
        make_camera("tpo", config)
    with pytest.raises(CameraError, match=r"camera ego is of kind twin and needs a rig"):
        make_camera("ego", configured())
