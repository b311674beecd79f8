"""A GR00T peer that shares no code with ours: serialiser, REP server and REQ client as they are known to behave, for
N1.5 (w1), N1.6 (w2) and later (w3). `early` w3 reads nothing but w3."""

from __future__ import annotations

import io
import json
import threading

import msgpack
import numpy as np
import zmq

CONFIG_FIELDS = {
    "delta_indices",
    "modality_keys",
    "sin_cos_embedding_keys",
    "mean_std_embedding_keys",
    "action_configs",
}


class PeerConfig:
    """Stands for GR00T's ModalityConfig: takes its five fields and no other."""

    def __init__(self, **fields):
        assert set(fields) <= CONFIG_FIELDS and {"delta_indices", "modality_keys"} <= set(fields), fields
        assert fields["modality_keys"] and isinstance(fields["delta_indices"], list)
        actions = fields.get("action_configs")
        for action in actions or []:
            assert action["rep"] in ("RELATIVE", "DELTA", "ABSOLUTE")
            assert action["type"] in ("EEF", "NON_EEF")
            assert action["format"] in ("DEFAULT", "XYZ_ROT6D", "XYZ_ROTVEC")
        assert actions is None or len(actions) == len(fields["modality_keys"])
        self.fields = {name: fields.get(name) for name in sorted(CONFIG_FIELDS)}


class PeerSerialiser:
    def __init__(self, wire="w2", early=False):
        self.wire, self.early = wire, early

    def pack(self, value):
        return msgpack.packb(value, default=self._encode)

    def unpack(self, message):
        return msgpack.unpackb(message, object_hook=self._decode)

    def _encode(self, value):
        if isinstance(value, np.ndarray) and self.wire == "w3":
            return {
                b"nd": True,
                b"type": value.dtype.str,
                b"kind": b"",
                b"shape": value.shape,
                b"data": value.tobytes(),
            }
        if isinstance(value, np.ndarray):
            file = io.BytesIO()
            np.save(file, value, allow_pickle=False)
            return {"__ndarray_class__": True, "as_npy": file.getvalue()}
        if isinstance(value, PeerConfig):
            if self.wire == "w3":
                return {"__ModalityConfig__": True, "as_json": value.fields}
            as_json = json.dumps(value.fields) if self.wire == "w1" else value.fields
            return {"__ModalityConfig_class__": True, "as_json": as_json}
        raise TypeError(f"can not serialize {type(value).__name__!r} object")

    def _decode(self, found):
        if self.wire == "w3":
            if b"nd" in found:
                assert found[b"nd"] is True and found[b"kind"] == b""
                return np.frombuffer(found[b"data"], found[b"type"]).reshape(found[b"shape"])
            if "__ModalityConfig__" in found:
                return PeerConfig(**found["as_json"])
            if self.early:
                return found
        if "__ndarray_class__" in found:
            return np.load(io.BytesIO(found["as_npy"]), allow_pickle=False)
        if "__ModalityConfig_class__" in found:
            as_json = found["as_json"]
            return PeerConfig(**(json.loads(as_json) if self.wire == "w1" else as_json))
        return found


class PeerPolicy:
    """Strict about what it is asked; answers row k of a group with state + k."""

    horizon = 16
    state = {"single_arm": 5, "gripper": 1}
    video = ("front", "wrist")
    language = "annotation.human.task_description"

    def __init__(self):
        self.calls, self.reset_options = [], []

    def get_modality_config(self):
        keys = list(self.state)
        absolute = {"type": "NON_EEF", "format": "DEFAULT", "state_key": None}
        return {
            "video": PeerConfig(delta_indices=[0], modality_keys=list(self.video)),
            "state": PeerConfig(delta_indices=[0], modality_keys=keys),
            "action": PeerConfig(
                delta_indices=list(range(self.horizon)),
                modality_keys=keys,
                action_configs=[{"rep": "RELATIVE", **absolute}, {"rep": "ABSOLUTE", **absolute}],
            ),
            "language": PeerConfig(delta_indices=[0], modality_keys=[self.language]),
        }

    def get_action(self, observation, options=None):
        self.calls.append((observation, options))
        for key in self.video:
            image = observation["video"][key]
            assert isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 5, f"video {key}"
        for key, size in self.state.items():
            value = observation["state"][key]
            assert value.dtype == np.float32 and value.shape[1:] == (1, size), f"state {key}"
        assert all(type(row) is list and len(row) == 1 for row in observation["language"][self.language])
        steps = np.arange(self.horizon, dtype=np.float32)[None, :, None]
        return {key: observation["state"][key] + steps for key in self.state}, {}

    def get_action_w1(self, observation):
        self.calls.append((observation, None))
        steps = np.arange(self.horizon)[:, None]
        assert observation["video.front"].ndim == 4 and isinstance(observation[self.language], list)
        rows = {f"action.{key}": observation[f"state.{key}"] + steps for key in self.state}
        return {key: row[:, 0] if key == "action.gripper" else row for key, row in rows.items()}  # a flat gripper

    def reset(self, options=None):
        self.reset_options.append(options)
        return {}


class PeerServer:
    """REP, one request at a time, on a thread."""

    def __init__(self, policy=None, wire="w2", early=False, token=None, endpoint="tcp://127.0.0.1:0"):
        self.policy = policy or PeerPolicy()
        self.serialiser, self.token = PeerSerialiser(wire, early), token
        p = self.policy
        self._endpoints = {
            "ping": (lambda: {"status": "ok", "message": "Server is running"}, False),
            "get_action": (p.get_action_w1 if wire == "w1" else p.get_action, True),
            "get_modality_config": (p.get_modality_config, False),
        }
        if wire != "w1":
            self._endpoints["reset"] = (p.reset, True)
        self._wire = wire
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.REP)
        self._socket.bind(endpoint)
        self.endpoint = self._socket.last_endpoint.decode()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._stopping.is_set():
            if not self._socket.poll(50):
                continue
            try:
                reply = self._answer(self.serialiser.unpack(self._socket.recv()))
            except Exception as error:
                reply = {"error": str(error)}
            self._socket.send(self.serialiser.pack(reply))

    def _answer(self, request):
        if self.token and request.get("api_token") != self.token:
            raise ValueError("Unauthorized: Invalid API token")
        name = request.get("endpoint", "get_action")
        if name not in self._endpoints:
            raise ValueError(f"Unknown endpoint: {name}")
        handler, takes_input = self._endpoints[name]
        if not takes_input:
            return handler()
        data = request.get("data", {})
        return handler(data) if self._wire == "w1" else handler(**data)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._stopping.set()
        self._thread.join()
        self._socket.close(linger=0)
        self._context.term()


class PeerClient:
    """REQ, no timeout of its own in N1.6; here one, so that a test can end."""

    def __init__(self, endpoint, wire="w2", early=False, token=None):
        self.serialiser, self._token = PeerSerialiser(wire, early), token
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.REQ)
        self._socket.rcvtimeo = 10_000
        self._socket.connect(endpoint)

    def raw(self, message):
        self._socket.send(message)
        return self._socket.recv()

    def call(self, endpoint, data=None):
        request = {"endpoint": endpoint}
        if data is not None:
            request["data"] = data
        if self._token:
            request["api_token"] = self._token
        reply = self.serialiser.unpack(self.raw(self.serialiser.pack(request)))
        if isinstance(reply, dict) and "error" in reply:
            raise RuntimeError(f"Server error: {reply['error']}")
        return reply

    def get_action(self, observation, options=None):
        return tuple(self.call("get_action", {"observation": observation, "options": options}))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._socket.close(linger=0)
        self._context.term()


def peer_observation(cameras=("front", "wrist"), batch=1, height=48, width=64):
    """What an SO-101 client sends, with random pictures."""
    draw = np.random.default_rng(7)
    return {
        "video": {name: draw.integers(0, 256, (batch, 1, height, width, 3), np.uint8) for name in cameras},
        "state": {
            "single_arm": draw.normal(size=(batch, 1, 5)).astype(np.float32),
            "gripper": draw.uniform(0, 100, (batch, 1, 1)).astype(np.float32),
        },
        "language": {"annotation.human.task_description": [["Pick up the vial"]] * batch},
    }


def peer_observation_w1():
    """The same from an N1.5 client: flat, no batch, states of any float."""
    new = peer_observation()
    return {
        **{f"video.{name}": image[0] for name, image in new["video"].items()},
        **{f"state.{name}": value[0].astype(np.float64) for name, value in new["state"].items()},
        "annotation.human.task_description": ["Pick up the vial"],
    }
