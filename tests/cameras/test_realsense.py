"""The RealSense camera on the SDK's software device: all but the USB bus is the real thing."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

pytest.importorskip("pyrealsense2")

from so101.cameras import CameraError  # noqa: E402
from so101.cameras.board import FrameBoard  # noqa: E402
from so101.cameras.capture import Capture  # noqa: E402
from so101.cameras.realsense import RealsenseCamera, connected_devices  # noqa: E402

from .fakes import until  # noqa: E402
from .software_realsense import SoftwareRealsense  # noqa: E402


@pytest.fixture
def one(configured):
    """A device and the camera on it, open."""
    device = SoftwareRealsense("123")
    camera = RealsenseCamera("ego", configured(ego="{kind: realsense, serial: '123'}"), lambda: [device.device])
    camera.open()
    yield device, camera
    camera.close()


def test_pixels_numbers_and_colours_arrive(one):
    device, camera = one
    for number in (7, 8, 11):
        device.send(number, 33.3 * number, rgb=(number, 100, 200))
        frame = camera.read(1.0)
        assert frame.index == number and frame.camera == "ego"
        assert frame.image.shape == (480, 640, 3) and (frame.image == (number, 100, 200)).all()
    assert camera.mode == "RGB8 640x480 at 30 Hz"


def test_the_newest_frame_wins(one):
    device, camera = one
    for number in range(20):
        device.send(number, 33.3 * number, rgb=(number, 0, 0))
    assert camera.read(1.0).index == 19
    with pytest.raises(CameraError, match=r"RealSense 123: no frame for 0\.05 s"):
        camera.read(0.05)


def test_stamps_are_those_of_the_device_on_our_clock(one):
    """A frame that is read late was not captured late."""
    device, camera = one
    stamps, sent = [], []
    for number in range(6):
        sent.append(time.monotonic())
        device.send(number, 5e6 + 1000 * sent[-1])  # a clock that is 5000 s ahead
        time.sleep(0.3 if number == 4 else 0.0)
        stamps.append(camera.read(1.0).stamp_s)
    late_s = np.subtract(stamps, sent)
    assert np.all(late_s >= -1e-6) and np.all(np.diff(late_s) < 1e-4)  # the drift allowed in 0.3 s, no more


def test_a_kept_frame_stays_what_it_was_and_holds_none_of_the_sdks_buffers(one):
    device, camera = one
    kept = []
    for number in range(40):  # more than the SDK has
        device.send(number, 33.3 * number, rgb=(number, number, number))
        kept.append(camera.read(1.0).image)
    assert [int(image[0, 0, 0]) for image in kept] == list(range(40))


def test_opened_and_closed_again_and_again(one):
    device, camera = one
    for round_ in range(3):
        camera.close()
        camera.close()
        camera.open()
        device.send(round_, 1.0)
        assert camera.read(1.0).index == round_


def test_it_comes_back_after_it_was_unplugged(configured, quick):
    plugged = [SoftwareRealsense("123")]
    config = configured(ego="{kind: realsense, serial: '123'}")
    camera = RealsenseCamera("ego", config, lambda: [device.device for device in plugged])
    capture = Capture(camera, FrameBoard(), quick)
    capture.start()
    try:
        capture.tried.wait()
        plugged[0].send(10, 1.0)
        until(lambda: capture.state.state == "live")
        unplugged = plugged.pop()
        until(lambda: "no RealSense 123 (cameras.sources.ego.serial); connected: none" in capture.state.error)
        plugged.append(SoftwareRealsense("123"))
        numbers = iter(range(1, 10_000))
        until(lambda: plugged[0].send(next(numbers), 1.0) or capture.state.state == "live")
        assert capture.state.failures >= 2 and capture.state.error == ""
        del unplugged
    finally:
        capture.close()


def test_a_mode_that_is_not_there_lists_those_that_are(configured):
    device = SoftwareRealsense("123", modes=((848, 480, 30), (1280, 720, 15)))
    camera = RealsenseCamera("ego", configured(ego="{kind: realsense}"), lambda: [device.device])
    text = r"RealSense 123 has no colour mode RGB8 640x480 at 30 Hz .*in RGB8: 1280x720 at 15 Hz, 848x480 at 30 Hz"
    with pytest.raises(CameraError, match=text):
        camera.open()


def test_the_right_device_is_chosen_or_the_choice_is_told(configured):
    devices = [SoftwareRealsense("111"), SoftwareRealsense("222")]
    found = [device.device for device in devices]
    camera = RealsenseCamera("ego", configured(ego="{kind: realsense, serial: '222'}"), lambda: found)
    camera.open()
    devices[0].send(1, 1.0)
    devices[1].send(2, 1.0)
    assert camera.read(1.0).index == 2
    camera.close()
    for source, text in {
        "{kind: realsense}": r"more than one RealSense is connected; set cameras\.sources\.ego\.serial to one of "
        r"111 \(Software D405\), 222 \(Software D405\)",
        "{kind: realsense, serial: '333'}": r"no RealSense 333 .*; connected: 111 \(Software D405\), 222",
    }.items():
        with pytest.raises(CameraError, match=text):
            RealsenseCamera("ego", configured(ego=source), lambda: found).open()


def test_a_device_in_use_is_told(one, configured):
    device, _ = one
    other = RealsenseCamera("ego", configured(ego="{kind: realsense}"), lambda: [device.device])
    with pytest.raises(CameraError, match="did not start .*is another program using it"):
        other.open()
    other.close()
    device.send(5, 1.0)
    assert one[1].read(1.0).index == 5  # the first goes on


def test_asking_the_buses_works_without_any_device():
    assert isinstance(connected_devices(), list)


def test_a_missing_sdk_names_the_extra(configured, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyrealsense2", None)
    with pytest.raises(CameraError, match=r"pip install -e \.\[cameras\]"):
        RealsenseCamera("ego", configured(ego="{kind: realsense}")).open()
