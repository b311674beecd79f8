"""The colour stream of a RealSense through pyrealsense2.

Sensors are opened one by one instead of through the SDK's pipeline: so a device is anything with sensors, the SDK's
`software_device` included, and the queue keeps only the newest frame.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from so101.cameras.base import CameraError, Frame, Picture, stamped
from so101.cameras.buffers import BufferPool
from so101.cameras.timing import DeviceClock
from so101.config import Config


def sdk() -> Any:
    """pyrealsense2.

    Raises:
        CameraError: it is not installed.
    """
    try:
        import pyrealsense2
    except ImportError as error:
        raise CameraError(
            f"RealSense cameras need pyrealsense2 ({error}); install it with `pip install -e .[cameras]`"
        ) from None
    return pyrealsense2


def connected_devices() -> list[Any]:
    """Devices the SDK finds on the buses."""
    return list(sdk().context().query_devices())


def describe(device: Any) -> str:
    """Its serial number and name."""
    return f"{_info(device, 'serial_number')} ({_info(device, 'name')})"


class RealsenseCamera:
    """RGB8 at the size and rate of cameras.yaml, with the device's own stamps and frame numbers.

    Args:
        find_devices: gives the devices to choose from.
    """

    kind = "realsense"

    def __init__(
        self, name: str, config: Config, find_devices: Callable[[], Iterable[Any]] = connected_devices
    ) -> None:
        self.name, self._find_devices = name, find_devices
        self._serial = config.cameras.source(name).serial
        self._picture, self._capture = Picture.of(config), config.cameras.capture
        self.mode = f"RGB8 {self._picture}"
        self._pool = BufferPool(self._picture.height_px, self._picture.width_px, self._capture.pooled_frames)
        self._sensor = None

    def open(self) -> None:
        rs = sdk()
        self._device = self._find_device()
        sensor, profile = self._find_profile(rs)
        queue = rs.frame_queue(1)
        try:
            sensor.open(profile)
            self._sensor = sensor
            sensor.start(queue)
        except RuntimeError as error:
            raise CameraError(
                f"RealSense {self._told_serial}: {self.mode} did not start ({error}); is another program using it?"
            ) from None
        self._queue, self._clock = queue, DeviceClock(self._capture.clock_drift)

    def read(self, timeout_s: float) -> Frame:
        came, frame = self._queue.try_wait_for_frame(max(1, round(timeout_s * 1000)))
        arrival_s = time.monotonic()
        if not came:
            raise CameraError(f"RealSense {self._told_serial}: {self._silence()} for {timeout_s:g} s")
        pixels = np.asanyarray(frame.as_video_frame().get_data())
        image = self._pool.take()
        if pixels.shape != image.shape:
            raise CameraError(f"RealSense {self._told_serial}: sent a picture of shape {pixels.shape}, not {self.mode}")
        np.copyto(image, pixels)  # the SDK has few frames of its own: it stops when they are kept
        stamp_s = self._clock.to_ours(frame.get_timestamp() / 1000, arrival_s)
        return stamped(image, stamp_s, frame.get_frame_number(), self.name)

    def close(self) -> None:
        sensor, self._sensor, self._device = self._sensor, None, None
        if sensor is None:
            return
        for step in (sensor.stop, sensor.close):
            try:
                step()
            except RuntimeError:  # unplugged, or opened and not started
                pass

    def _find_device(self) -> Any:
        devices = {_info(device, "serial_number"): device for device in self._find_devices()}
        there = ", ".join(map(describe, devices.values())) or "none"
        key = f"cameras.sources.{self.name}.serial"
        if self._serial is None and len(devices) > 1:
            raise CameraError(f"more than one RealSense is connected; set {key} to one of {there}")
        if not devices or self._serial not in (None, *devices):
            wanted = "no RealSense is connected" if self._serial is None else f"no RealSense {self._serial} ({key})"
            raise CameraError(f"{wanted}; connected: {there}. Check the cable: it needs USB 3")
        serial, device = next(iter(devices.items())) if self._serial is None else (self._serial, devices[self._serial])
        self._told_serial = serial
        return device

    def _find_profile(self, rs: Any) -> tuple[Any, Any]:
        """The sensor with our colour mode (on a D405 the stereo module has it)."""
        modes = []
        for sensor in self._device.query_sensors():
            for profile in sensor.get_stream_profiles():
                if profile.stream_type() != rs.stream.color or not profile.is_video_stream_profile():
                    continue
                video = profile.as_video_stream_profile()
                mode = (video.width(), video.height(), video.fps(), video.format())
                if mode == (*self._picture[:2], round(self._picture.fps_hz), rs.format.rgb8):
                    return sensor, video
                modes.append(mode)
        told = sorted({f"{w}x{h} at {fps} Hz" for w, h, fps, pixel_format in modes if pixel_format == rs.format.rgb8})
        raise CameraError(
            f"RealSense {self._told_serial} has no colour mode {self.mode} (width_px, height_px, fps_hz of "
            f"cameras.yaml); it offers in RGB8: {', '.join(told) or 'nothing; on USB 2 most modes are missing'}"
        )

    def _silence(self) -> str:
        try:
            gone = not self._device.is_connected()
        except (AttributeError, RuntimeError):
            gone = False
        return "unplugged" if gone else "no frame"


def _info(device: Any, key: str) -> str:
    info = getattr(sdk().camera_info, key)
    return device.get_info(info) if device.supports(info) else "?"
