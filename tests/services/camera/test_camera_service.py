"""The camera service and its client over real sockets."""

from __future__ import annotations

import gc
import os
import random
import signal
import socket as sockets
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest
import zmq

from proto.codec import encode
from proto.messages.camera import STATUS_TOPIC, CameraFrame
from proto.sockets import Publisher, Subscriber
from services.camera.client import RemoteCameras, message_of_state, state_of_message
from services.camera.main import publish
from so101.cameras import CameraError, CameraSet, CameraState, make_cameras
from so101.cameras.synthetic import frame_number
from so101.config import Config, load_config

from ...cameras.fakes import ScriptedCamera, until
from ...proto.fuzz import bad_frames

NAMES = ("ego", "side", "top")
FRAME_BYTES = 480 * 640 * 3
TOPICS = (b"ego", b"side", (STATUS_TOPIC + "top").encode())


def configured(folder, *overrides: str) -> Config:
    endpoint = f"ipc://{folder}/cameras"
    sets = [f"deploy.sockets.cameras={{bind: '{endpoint}', connect: '{endpoint}'}}"]
    sets += [f"cameras.sources.{name}={{kind: synthetic}}" for name in NAMES]
    return load_config(overrides=[*sets, *overrides])


@pytest.fixture
def config(tmp_path) -> Config:
    return configured(tmp_path)


@pytest.fixture
def serving(config):
    """`serving(cameras)`: the service's loop over them; its publisher."""
    stop, threads, closing = threading.Event(), [], []

    def start(cameras: CameraSet) -> Publisher:
        publisher = Publisher(config.deploy.sockets.cameras.bind, heartbeat_s=0.1, high_water=16)
        cameras.start()
        closing.extend((cameras, publisher))
        threads.append(threading.Thread(target=publish, args=(cameras, publisher, stop, 0.1)))
        threads[-1].start()
        return publisher

    yield start
    stop.set()
    for thread in threads:
        thread.join()
    for item in closing:
        item.close()


def picture(
    index: int = 1, camera: str = "ego", height: int = 480, width: int = 640, age_s: float = 0.0
) -> CameraFrame:
    now = time.monotonic() - age_s
    image = np.full((height, width, 3), index % 256, np.uint8)
    return CameraFrame(camera=camera, index=index, stamp_s=now, wall_s=time.time() - age_s, image=image)


def test_three_cameras_arrive_whole_and_in_order(config, serving):
    serving(CameraSet(make_cameras(config), config.cameras.capture))
    with RemoteCameras(config) as remote:
        assert set(remote.latest(20.0)) == set(NAMES)
        seen: dict[str, list[int]] = {name: [] for name in NAMES}
        while min(len(indices) for indices in seen.values()) < 30:
            for frame in remote.take(5.0):
                assert frame_number(frame.image) == frame.index and frame.image.shape == (480, 640, 3)
                assert frame.stamp_s <= time.monotonic() and abs(frame.age_s - (time.monotonic() - frame.stamp_s)) < 1.0
                seen[frame.camera].append(frame.index)
        assert all(indices == sorted(set(indices)) for indices in seen.values())
        until(lambda: len(remote.states()) == 3)
        state = remote.states()[0]
        assert (state.camera, state.kind, state.state, state.failures) == ("ego", "synthetic", "live", 0)
        assert remote.rejected == remote.malformed == 0


def test_one_camera_alone_can_be_listened_to(config, serving):
    serving(CameraSet(make_cameras(config), config.cameras.capture))
    with RemoteCameras(config, ("top",)) as remote:
        assert set(remote.latest(20.0)) == {"top"}
        until(lambda: [state.camera for state in remote.states()] == ["top"])


def test_pictures_are_sent_from_where_they_were_captured(config):
    """Header, body, and the very memory of the image."""
    camera = make_cameras(config, ("ego",))[0]
    camera.open()
    frame = camera.read(1.0)
    frames = encode(CameraFrame(**frame._asdict()))
    assert len(frames) == 3 and frames[2].nbytes == FRAME_BYTES
    assert np.shares_memory(np.frombuffer(frames[2], np.uint8), frame.image)
    camera.close()


def test_a_picture_is_kept_while_it_is_in_the_socket_and_no_longer(tmp_path):
    """The socket refers to the image instead of copying it."""
    endpoint = f"ipc://{tmp_path}/held"
    with Publisher(endpoint, heartbeat_s=60.0, high_water=16) as publisher, Subscriber(endpoint, high_water=1) as slow:
        until(lambda: publisher.send("x", picture()) is not None and slow.receive(0.02))
        messages = [picture(index) for index in range(8)]

        def references() -> list[int]:
            return [sys.getrefcount(message.image) for message in messages]

        before = references()
        trackers = [publisher.send("ego", message) for message in messages]
        during, left = references(), [tracker.done for tracker in trackers]
        assert during[-1] > before[-1] and not left[-1]
        until(lambda: slow.receive(0.1) is None)
        until(lambda: all(tracker.done for tracker in trackers) and references() == before)


def test_no_copies_are_made_between_capture_and_socket(config, serving):
    """What Python and numpy allocate while hundreds of frames of 0.9 MB leave: far less than one frame each."""
    (camera,) = make_cameras(config, ("ego",))
    for buffer in [camera._pool.take() for _ in range(config.cameras.capture.pooled_frames)]:
        buffer[:] = 0  # all buffers are there before allocations are counted
    del buffer
    cameras = CameraSet([camera], config.cameras.capture)
    serving(cameras)
    with Subscriber(config.deploy.sockets.cameras.connect, ("ego",)) as listener:
        for _ in range(10):
            assert listener.receive(10.0) is not None
        ended = threading.Event()
        drain = threading.Thread(target=lambda: [listener.receive(0.05) for _ in iter(ended.is_set, True)])
        gc.collect()
        tracemalloc.start()
        try:
            first = cameras.states()[0].captured
            drain.start()
            until(lambda: cameras.states()[0].captured >= first + 40)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            ended.set()
            drain.join()
    # received messages are the listener's own memory of zmq, which tracemalloc does not see
    assert peak < FRAME_BYTES / 2, f"{peak / FRAME_BYTES:.1f} frames allocated at once"


def test_a_consumer_that_sleeps_gets_the_newest_frame_and_knows_what_it_skipped(config, serving):
    serving(CameraSet(make_cameras(config, ("ego",)), config.cameras.capture))
    with RemoteCameras(config, ("ego",)) as remote:
        first = remote.latest(20.0)["ego"].index
        remote.take(0)
        skipped = remote.skipped["ego"]
        until(lambda: remote.latest(20.0)["ego"].index >= first + 10)
        newest = remote.latest(20.0)["ego"].index
        (frame,) = remote.take(0)
        assert frame.index >= newest and remote.skipped["ego"] - skipped + remote.lost["ego"] >= 8


def test_a_camera_that_is_missing_is_told_with_its_fault(config, serving, tmp_path):
    bad = ScriptedCamera("top")
    settings = configured(tmp_path, "cameras.capture.reopen_min_s=0.01").cameras.capture
    patient = configured(tmp_path, "cameras.capture.max_age_s=60")
    cameras = CameraSet([*make_cameras(config, ("ego",)), bad], settings)
    serving(cameras)
    bad.opening = [CameraError("no /dev/video7")] * 10_000
    bad.script.put(CameraError("top: unplugged"))
    with RemoteCameras(patient, ("ego", "top")) as remote:
        until(lambda: {state.state for state in remote.states()} == {"live", "failed"})
        text = (
            r"no frame younger than 60 s within 0\.3 s from top: failed \(no /dev/video7\)\. The camera .* is running"
        )
        with pytest.raises(CameraError, match=text):
            remote.latest(0.3)


def test_without_a_service_the_error_says_how_to_start_one(tmp_path):
    config = configured(tmp_path, "deploy.messages.timeout_s=0.1")
    with RemoteCameras(config) as remote:
        time.sleep(0.15)
        with pytest.raises(CameraError, match=r"ego: nothing came.*top: nothing came.*silent: `\./twin serve camera`"):
            remote.latest()


def test_frames_that_stop_are_not_handed_out_when_they_are_old(tmp_path):
    config = configured(tmp_path, "cameras.capture.max_age_s=1.0")
    with Publisher(config.deploy.sockets.cameras.bind) as publisher, RemoteCameras(config, ("ego",)) as remote:
        until(lambda: publisher.send("ego", picture()) and remote.take(0.02))
        time.sleep(1.05)
        with pytest.raises(CameraError, match=r"younger than 1 s .*ego: the last is \d+\.\d s old.*is running"):
            remote.latest(0.05)
        publisher.send("ego", picture(5))
        assert remote.latest(5.0)["ego"].index == 5


def test_lost_frames_are_counted_by_their_numbers(config):
    with Publisher(config.deploy.sockets.cameras.bind) as publisher, RemoteCameras(config, ("ego",)) as remote:
        until(lambda: publisher.send("ego", picture(1)) and remote.take(0.02))
        for index in (2, 5, 6, 1, 2, 4):  # 1: the camera was opened again
            publisher.send("ego", picture(index))
        until(lambda: remote.take(0.1) == [] and remote.lost["ego"] == 3)


def test_frames_of_strange_cameras_and_sizes_are_rejected(config):
    with Publisher(config.deploy.sockets.cameras.bind) as publisher, RemoteCameras(config) as remote:
        until(lambda: publisher.send("ego", picture(1)) and remote.take(0.02))
        publisher.send("ego", picture(2, camera="spy"))
        publisher.send("ego", picture(2, height=240, width=320))
        until(lambda: remote.rejected == 2)
        publisher.send("ego", picture(3))
        until(lambda: remote.take(0.1)[0].index == 3)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4, 4, 3), "i1"), ((4, 4), "u1"), ((4, 0, 3), "u1"), ((5000, 1, 3), "u1"), ((4, 4, 4), "u1")]
)
def test_only_pictures_are_frames(shape, dtype):
    with pytest.raises(ValueError, match="image must be"):
        CameraFrame(camera="ego", index=1, stamp_s=0.0, wall_s=0.0, image=np.zeros(shape, dtype))


def test_states_survive_the_wire():
    state = CameraState("ego", "v4l2", "MJPG 640x480 at 30 Hz", "failed", 29.97, 10, 2, 1, 3, "unplugged")
    assert state_of_message(message_of_state(state)) == state
    longer = message_of_state(state._replace(error="x" * 100_000, mode="y" * 1000))
    assert len(longer.error) <= 8192 and len(longer.mode) <= 128


def test_ten_thousand_malformed_messages_are_ignored_and_counted(config):
    """Garbage at the client, as a hostile or broken publisher would send it; then good frames are shown again."""
    draw, context = random.Random(4), zmq.Context()
    hostile = context.socket(zmq.PUB)
    status = message_of_state(CameraState("ego", "twin", "", "live", 1.0, 1, 0, 0, 0, ""))
    good = [encode(picture(height=8, width=8)), encode(status)]
    whole = [b"ego", bytes(8), *(bytes(part) for part in encode(picture(9)))]
    with RemoteCameras(config) as remote:
        try:
            hostile.sndhwm = 0
            hostile.bind(config.deploy.sockets.cameras.bind)
            until(lambda: hostile.send_multipart([b"ego", b"?"]) or remote.malformed > 0)
            for frames in bad_frames(good, 10_000, seed=4):
                hostile.send_multipart([draw.choice(TOPICS), draw.randbytes(draw.choice((8, 8, 8, 0, 9))), *frames])
            until(lambda: hostile.send_multipart(whole) or any(frame.index == 9 for frame in remote.take(0.05)))
            assert remote.malformed > 8_000
        finally:
            hostile.close(0)
            context.term()


def test_a_hostile_subscriber_does_not_disturb_the_service(config, serving):
    """Nonsense subscriptions, one that never reads, and raw bytes at the socket."""
    endpoint = serving(CameraSet(make_cameras(config, ("ego",)), config.cameras.capture)).endpoint
    draw, context = random.Random(0), zmq.Context()
    sleeper, talker = context.socket(zmq.SUB), context.socket(zmq.XSUB)
    try:
        sleeper.subscribe("")
        sleeper.connect(endpoint)
        talker.connect(endpoint)
        with RemoteCameras(config, ("ego",)) as remote:
            remote.latest(20.0)
            for _ in range(300):
                talker.send(draw.randbytes(draw.randrange(64)))
            for _ in range(30):
                with sockets.socket(sockets.AF_UNIX) as raw:
                    raw.connect(endpoint.removeprefix("ipc://"))
                    raw.sendall(draw.randbytes(draw.randrange(1, 500)))
            remote.take(0)
            indices = [frame.index for _ in range(20) for frame in remote.take(5.0)]
            assert indices == sorted(indices) and len(indices) == 20
    finally:
        sleeper.close(0)
        talker.close(0)
        context.term()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_serves_until_it_is_told_to_stop(tmp_path, number):
    config = configured(tmp_path)
    endpoint = config.deploy.sockets.cameras.bind
    sets = [
        f"deploy.sockets.cameras={{bind: '{endpoint}', connect: '{endpoint}'}}",
        "cameras.sources.ego={kind: synthetic}",
    ]
    command = [sys.executable, "-m", "services.cli", "serve", "camera", *(w for s in sets for w in ("--set", s))]
    service = subprocess.Popen([*command, "--", "--camera", "ego"], stderr=subprocess.PIPE, text=True)
    try:
        with RemoteCameras(config, ("ego",)) as remote:
            remote.latest(60.0)
        service.send_signal(number)
        assert service.wait(20) == 128 + number, service.stderr.read()
    finally:
        if service.poll() is None:
            service.kill()
        service.stderr.close()


def test_the_process_tells_all_faults_at_once_and_ends(tmp_path):
    sets = [
        f"deploy.sockets.cameras={{bind: 'ipc://{tmp_path}/c', connect: 'ipc://{tmp_path}/c'}}",
        "cameras.sources={ego: {kind: v4l2, device: /dev/video97}, side: {kind: playback, path: nowhere.mp4}, "
        "top: {kind: synthetic}}",
    ]
    command = [sys.executable, "-m", "services.cli", "serve", "camera", *(w for s in sets for w in ("--set", s))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "500"})
    assert ended.returncode == CameraError.exit_code
    assert "camera ego: /dev/video97 does not exist" in ended.stderr
    assert "camera side: nowhere.mp4: neither a video file" in ended.stderr and "Traceback" not in ended.stderr
