"""Ten thousand messages nobody should send, at the broker's socket: it answers the next good one and stays small."""

from __future__ import annotations

import hashlib
import struct

import zmq

from proto.codec import encode
from proto.messages.work import (
    CloseBatch,
    FetchResult,
    File,
    GetPart,
    JobError,
    JoinWork,
    LeaveWork,
    OpenBatch,
    PartRef,
    PutPart,
    PutResult,
    Result,
    SubmitJob,
    TakeJob,
    WorkerBeat,
    WorkStatus,
    pack,
)
from services.wire import make_client
from so101.pipeline.build import build_id
from tests.memory import resident_kib
from tests.proto.fuzz import bad_frames

from .test_network import run
from .toy import check_files, toy_context

COUNT = 10_000
WINDOW = 200  # messages between two that are waited for, so that none is dropped for want of room
GROWTH_LIMIT_MIB = 64  # growth that is allowed; what is held for open batches is bounded by the settings


def good_messages() -> list[list]:
    part = PartRef("", hashlib.sha256(b"x").hexdigest(), 1)
    file = File("out/demo_000001.txt", pack(b"content"))
    build = build_id()
    messages = [
        OpenBatch(batch="b", run="r", kind="toy", parts=(part,), build=build),
        PutPart(batch="b", digest=part.digest, offset=0, content=pack(b"x")),
        SubmitJob(batch="b", index=1, files=(file,)),
        FetchResult(batch="b", taken=(1,)),
        CloseBatch(batch="b"),
        JoinWork(worker="w", kinds=("toy",), host="h", pid=1, build=build),
        TakeJob(worker="w"),
        PutResult(worker="w", batch="b", result=Result(1, "{}", (file,), JobError("E", "t", "t"))),
        WorkerBeat(worker="w"),
        LeaveWork(worker="w"),
        GetPart(digest=part.digest, offset=0),
        WorkStatus(),
    ]
    return [encode(message) for message in messages]


def test_the_broker_bears_anything(site, tmp_path):
    broker = site.broker()
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 0
    socket.connect(site.config.deploy.sockets.work.connect)
    sizes = []
    with make_client(site.config, "work", timeout_s=60) as client:
        for number, frames in enumerate(bad_frames(good_messages(), COUNT)):
            request_id = struct.pack("<Q", number) if number % 10 else b"no id"
            socket.send_multipart([request_id, *frames])
            if number % WINDOW == 0:
                client.request(WorkStatus())
                while socket.poll(0):
                    socket.recv_multipart()
                sizes.append(resident_kib() / 1024)
    socket.close()
    assert sizes[-1] - sizes[len(sizes) // 4] < GROWTH_LIMIT_MIB
    site.worker()
    context, jobs = toy_context(tmp_path / "run", range(100, 105))
    assert len(list(run(site, context, jobs))) == 5
    check_files(context, range(100, 105))
    assert len(broker.status().workers) <= 50  # those that fuzzed messages joined; they are given up in time
