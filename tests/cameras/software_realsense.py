"""A RealSense made of the SDK's `software_device`: its sensor, queue and frames are the SDK's own."""

from __future__ import annotations

import numpy as np
import pyrealsense2 as rs


class SoftwareRealsense:
    """One colour sensor with the given RGB8 modes, (width, height, fps)."""

    def __init__(self, serial: str, modes: tuple[tuple[int, int, int], ...] = ((640, 480, 30),)) -> None:
        self.device = rs.software_device()
        self.device.register_info(rs.camera_info.serial_number, serial)
        self.device.register_info(rs.camera_info.name, "Software D405")
        self._sensor = self.device.add_sensor("Stereo Module")
        self._profiles = [self._add(rs.stream.depth, rs.format.z16, 2, 640, 480, 30)]
        self._profiles += [self._add(rs.stream.color, rs.format.yuyv, 2, *modes[0])]
        self._profiles += [self._add(rs.stream.color, rs.format.rgb8, 3, *mode) for mode in modes]
        self._kept: list[np.ndarray] = []  # the SDK reads them later

    def send(self, number: int, device_ms: float, rgb: tuple[int, int, int] = (0, 0, 0), mode: int = 0) -> None:
        """One frame of a single colour."""
        profile = self._profiles[2 + mode].as_video_stream_profile()
        pixels = np.empty((profile.height(), profile.width(), 3), np.uint8)
        pixels[:] = rgb
        self._kept = [*self._kept[-8:], pixels]
        frame = rs.software_video_frame()
        frame.pixels, frame.stride, frame.bpp = pixels, 3 * profile.width(), 3
        frame.timestamp, frame.domain = device_ms, rs.timestamp_domain.hardware_clock
        frame.frame_number, frame.profile = number, profile
        self._sensor.on_video_frame(frame)

    def _add(self, kind, pixel_format, bytes_per_pixel: int, width: int, height: int, fps: int):
        stream = rs.video_stream()
        stream.type, stream.index, stream.uid = kind, 0, len(getattr(self, "_profiles", [])) + 1
        stream.width, stream.height, stream.fps = width, height, fps
        stream.bpp, stream.fmt = bytes_per_pixel, pixel_format
        return self._sensor.add_video_stream(stream)
