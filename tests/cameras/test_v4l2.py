"""USB cameras: OpenCV's real capture on a video file, a scripted one for what a device does, and the kernel's lists."""

from __future__ import annotations

import struct
import sys
import time

import numpy as np
import pytest

cv2 = pytest.importorskip("cv2")

from so101.cameras import CameraError, make_camera  # noqa: E402
from so101.cameras.v4l2 import V4l2Camera  # noqa: E402
from so101.cameras.v4l2_modes import list_devices, list_modes  # noqa: E402
from so101.rendering.video import encode_video  # noqa: E402

SOURCE = "{kind: v4l2, device: DEVICE}"


class ScriptedCapture:
    """What cv2.VideoCapture does with a camera that offers one mode."""

    def __init__(self, width=640, height=480, fps=30.0, opened=True):
        self.offered = {
            cv2.CAP_PROP_FRAME_WIDTH: width,
            cv2.CAP_PROP_FRAME_HEIGHT: height,
            cv2.CAP_PROP_FPS: fps,
        }
        self.asked: dict[int, float] = {}
        self.opened, self.stamps_s, self.bgr = opened, [], (1, 2, 3)
        self.stamp_s = 0.0

    def isOpened(self):
        return self.opened

    def set(self, key, value):
        self.asked[key] = value
        return True

    def get(self, key):
        return 1000 * self.stamp_s if key == cv2.CAP_PROP_POS_MSEC else self.offered[key]

    def grab(self):
        if not self.stamps_s:
            return False
        self.stamp_s = self.stamps_s.pop(0)
        return True

    def retrieve(self, buffer=None):
        height, width = (int(self.offered[key]) for key in (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH))
        picture = np.empty((height, width, 3), np.uint8) if buffer is None else buffer
        picture[:] = self.bgr
        return True, picture

    def release(self):
        self.opened = False


@pytest.fixture
def device(tmp_path):
    path = tmp_path / "video9"
    path.touch()
    return path


@pytest.fixture
def opened(configured, device):
    """`opened(capture)`: the camera on it."""

    def make(capture: ScriptedCapture) -> V4l2Camera:
        config = configured(ego=SOURCE.replace("DEVICE", str(device)))
        camera = V4l2Camera("ego", config, lambda path, backend: capture)
        camera.open()
        return camera

    return make


def test_opencv_reads_red_as_red(configured, tmp_path):
    """The whole path through the real OpenCV, from a file."""
    pictures = [np.full((480, 640, 3), rgb, np.uint8) for rgb in ((220, 30, 30), (30, 220, 30), (30, 30, 220))]
    encode_video(tmp_path / "rgb.mp4", pictures, configured())
    camera = make_camera("ego", configured(ego=f"{{kind: v4l2, backend: any, device: {tmp_path}/rgb.mp4}}"))
    camera.open()
    for picture in pictures:
        before = time.monotonic()
        frame = camera.read(1.0)
        assert np.abs(frame.image[100, 100].astype(int) - picture[0, 0]).max() < 12
        assert before <= frame.stamp_s <= time.monotonic()  # a time in the file is none of a clock
    with pytest.raises(CameraError, match="gives no frames"):
        camera.read(1.0)
    camera.close()
    camera.close()


def test_mode_and_short_queue_are_asked_for(opened):
    capture = ScriptedCapture()
    opened(capture)
    assert capture.asked == {
        cv2.CAP_PROP_FOURCC: cv2.VideoWriter.fourcc(*"MJPG"),
        cv2.CAP_PROP_FRAME_WIDTH: 640,
        cv2.CAP_PROP_FRAME_HEIGHT: 480,
        cv2.CAP_PROP_FPS: 30.0,
        cv2.CAP_PROP_BUFFERSIZE: 1,
    }


def test_kernel_stamps_tell_what_was_lost(opened):
    capture = ScriptedCapture()
    camera = opened(capture)
    now = time.monotonic() - 0.5
    capture.stamps_s = [now, now + 0.0334, now + 0.0667, now + 0.2001, now + 0.2330]
    frames = [camera.read(1.0) for _ in range(5)]
    assert [frame.index for frame in frames] == [0, 1, 2, 6, 7]
    assert [frame.stamp_s for frame in frames] == pytest.approx(
        [now, now + 0.0334, now + 0.0667, now + 0.2001, now + 0.233]
    )
    assert (frames[0].image == (3, 2, 1)).all()


def test_pictures_go_to_buffers_that_are_used_again(opened):
    capture = ScriptedCapture()
    camera = opened(capture)
    capture.stamps_s = [0.0] * 20
    kept = camera.read(1.0).image
    places = {camera.read(1.0).image.__array_interface__["data"][0] for _ in range(10)}
    assert len(places) == 1 and kept.__array_interface__["data"][0] not in places


def test_29_97_passes_for_30_and_15_does_not(opened, device):
    opened(ScriptedCapture(fps=29.97))
    with pytest.raises(
        CameraError, match=r"video9 gives 640x480 at 15 Hz, not MJPG 640x480 at 30 Hz .*it offers: it does"
    ):
        opened(ScriptedCapture(fps=15.0))
    with pytest.raises(CameraError, match="gives 1280x720 at 30 Hz, not"):
        opened(ScriptedCapture(width=1280, height=720))


def test_missing_busy_and_unplugged_are_told(opened, configured, device):
    with pytest.raises(CameraError, match=r"video9 cannot be opened .*usermod -aG video"):
        opened(ScriptedCapture(opened=False))
    capture = ScriptedCapture()
    camera = opened(capture)
    with pytest.raises(CameraError, match="video9 gives no frames"):
        camera.read(1.0)
    device.unlink()
    with pytest.raises(CameraError, match=r"video9 was unplugged \(cameras\.sources\.ego\.device\)"):
        camera.read(1.0)
    camera.close()
    with pytest.raises(CameraError, match=r"video9 does not exist \(cameras\.sources\.ego\.device\); cameras here: "):
        make_camera("ego", configured(ego=SOURCE.replace("DEVICE", str(device)))).open()
    with pytest.raises(CameraError, match="/dev/video97 does not exist"):
        make_camera("ego", configured(ego=SOURCE.replace("DEVICE", "97"))).open()


def test_a_missing_opencv_names_the_extra(configured, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(CameraError, match=r"pip install -e \.\[cameras\]"):
        make_camera("ego", configured(ego=SOURCE)).open()


def test_cameras_are_listed_with_their_names(tmp_path):
    dev, names = tmp_path / "dev", tmp_path / "sys"
    dev.mkdir()
    for number, name in ((10, None), (2, "HD Webcam"), (0, "UVC 32x32")):
        (dev / f"video{number}").touch()
        if name:
            (names / f"video{number}").mkdir(parents=True)
            (names / f"video{number}" / "name").write_text(name + "\n")
    (dev / "videonot").touch()
    listed = list_devices(dev, names)
    assert listed == {f"{dev}/video0": "UVC 32x32", f"{dev}/video2": "HD Webcam", f"{dev}/video10": "?"}
    assert list(listed) == sorted(listed, key=lambda path: int(path.rpartition("video")[2]))


MODES = {"MJPG": {(640, 480): [(1, 30), (1, 15)], (1280, 720): [(1, 30)]}, "YUYV": {(640, 480): [(2, 15)]}}


def kernel(handle: int, request: int, entry: bytearray) -> None:
    """ioctl of a driver with MODES, written from linux/videodev2.h: offsets as the C compiler gives them."""
    (index,) = struct.unpack_from("<I", entry, 0)
    code = {struct.unpack("<I", name.encode())[0]: name for name in MODES}
    try:
        if request == 0xC0405602:  # VIDIOC_ENUM_FMT; type at 4, pixelformat at 44
            assert len(entry) == 64 and struct.unpack_from("<I", entry, 4) == (1,)
            entry[44:48] = list(MODES)[index].encode()
        elif request == 0xC02C564A:  # VIDIOC_ENUM_FRAMESIZES; pixel_format at 4, type at 8, discrete at 12
            assert len(entry) == 44
            sizes = MODES[code[struct.unpack_from("<I", entry, 4)[0]]]
            struct.pack_into("<III", entry, 8, 1, *list(sizes)[index])
        else:  # VIDIOC_ENUM_FRAMEINTERVALS; pixel_format at 4, width at 8, type at 16, discrete at 20
            assert request == 0xC034564B and len(entry) == 52
            pixel_format, *size = struct.unpack_from("<III", entry, 4)
            struct.pack_into("<III", entry, 16, 1, *MODES[code[pixel_format]][tuple(size)][index])
    except IndexError:
        raise OSError(22, "Invalid argument") from None


def test_modes_are_read_from_the_kernels_lists(device):
    assert list_modes(str(device), kernel) == [
        "MJPG 640x480 at 30, 15 Hz",
        "MJPG 1280x720 at 30 Hz",
        "YUYV 640x480 at 7.5 Hz",
    ]


def test_what_is_no_camera_has_no_modes(device, tmp_path):
    assert list_modes(str(device)) == [] and list_modes(str(tmp_path / "none")) == []
