"""Many clients at once; benchmarks/policy_load.py does the same with 64 and prints what it took."""

import threading

import numpy as np
import zmq

from proto.groot import encode
from services.policy import PolicyClient
from tests.proto.groot.peer import PeerClient, peer_observation

from .fakes import StatePolicy, served

CLIENTS, REQUESTS = 16, 10


def test_every_client_gets_its_own_answers_beside_a_dead_and_a_slow_one():
    """Every third one is a GR00T client; the answer to a state tells whose it is."""
    wrong, served_ = [], [0] * CLIENTS

    def ask(number):
        theirs = number % 3 == 0
        with (PeerClient if theirs else PolicyClient)(**{"endpoint": server.endpoint}) as client:
            for request in range(REQUESTS):
                mark = number * 100 + request
                observation = peer_observation(height=8, width=8)
                observation["state"]["gripper"] = np.full((1, 1, 1), mark, np.float32)
                action, _ = client.get_action(observation)
                if action["gripper"][0, 0, 0] != mark:
                    wrong.append((number, request))
                served_[number] += 1

    message = encode({"endpoint": "get_action", "data": {"observation": peer_observation(height=8, width=8)}})
    with served(StatePolicy()) as server, zmq.Context() as context:
        dead, slow = context.socket(zmq.DEALER), context.socket(zmq.DEALER)
        for socket in (dead, slow):
            socket.linger = 0
            socket.connect(server.endpoint)
            socket.send(message)
        dead.close()
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            slow.send(message)
        for thread in threads:
            thread.join(60)
        slow.close()
        report = server.counters.report()
    assert not wrong and served_ == [REQUESTS] * CLIENTS
    assert report["expired"] == report["refused"] == 0
