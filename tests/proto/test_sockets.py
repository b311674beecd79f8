import logging
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import zmq

from proto.codec import encode
from proto.errors import BindRefused, KeysError, RemoteError, RequestTimeout
from proto.messages.common import Ok, Ping, Pong
from proto.security import OPEN, Security, check_bind, load_security, make_keys
from proto.sockets import Client, Publisher, Server, Subscriber
from tests.memory import resident_kib

from .fuzz import bad_frames
from .sample import Sample, sample

ANY_PORT = "tcp://127.0.0.1:0"


def echo(message: Sample) -> Sample:
    return message


@pytest.fixture(params=["tcp", "ipc"])
def endpoint(request, tmp_path):
    return ANY_PORT if request.param == "tcp" else f"ipc://{tmp_path}/s"


@pytest.fixture
def server():
    with Server(ANY_PORT, {Sample: echo}, name="echo", max_message_bytes=1 << 20) as running:
        yield running


def raw_peer(server: Server, kind: int = zmq.DEALER) -> zmq.Socket:
    peer = zmq.Context.instance().socket(kind)
    peer.linger = 0
    peer.connect(server.endpoint)
    return peer


def test_a_reply_answers_its_request(endpoint):
    with Server(endpoint, {Sample: echo}, name="echo") as server, Client(server.endpoint, timeout_s=5) as client:
        for number in range(20):
            reply = client.request(sample(number=number))
            assert reply.number == number
            np.testing.assert_array_equal(reply.image, sample().image)


def test_every_server_answers_ping(server):
    with Client(server.endpoint, timeout_s=5) as client:
        reply = client.request(Ping())
    assert (type(reply), reply.service) == (Pong, "echo")


def test_a_handler_that_raises_is_an_error_reply_and_the_next_request_is_served():
    def handle(message: Sample):
        if message.number == 0:
            raise RemoteError("not_armed", "start with --arm")
        if message.number == 1:
            raise ZeroDivisionError
        return message if message.number == 2 else Sample(image=np.array([None]))  # a reply that cannot travel

    with Server(ANY_PORT, {Sample: handle}, name="moody") as server, Client(server.endpoint, timeout_s=5) as client:
        faults = []
        for number in (0, 1, 3):
            with pytest.raises(RemoteError) as caught:
                client.request(sample(number=number))
            faults.append((caught.value.code, caught.value.text))
        assert client.request(sample(number=2)).number == 2
    assert faults[:2] == [("not_armed", "start with --arm"), ("failed", "ZeroDivisionError")]
    assert faults[2][0] == "failed"
    assert "only numbers and booleans travel" in faults[2][1]


def test_a_request_nobody_takes_is_refused_with_the_list(server):
    with Client(server.endpoint, timeout_s=5) as client, pytest.raises(RemoteError) as caught:
        client.request(Ok())
    assert caught.value.code == "unknown_type"
    assert caught.value.text == "echo takes no Ok; it takes Ping, Sample"


def test_a_late_reply_is_never_taken_for_the_answer_to_a_later_question():
    def slow(message: Sample) -> Sample:
        time.sleep(0.3 if message.number == 0 else 0)
        return message

    with Server(ANY_PORT, {Sample: slow}, name="slow") as server, Client(server.endpoint, timeout_s=5) as client:
        with pytest.raises(RequestTimeout, match=r"no answer to Sample within 0\.1 s"):
            client.request(sample(number=0), timeout_s=0.1)
        assert client.request(sample(number=1)).number == 1


def test_a_timed_out_request_is_not_sent_again():
    seen = []

    def note(message: Sample) -> Sample:
        seen.append(message.number)
        time.sleep(0.2)
        return message

    with Server(ANY_PORT, {Sample: note}, name="slow") as server, Client(server.endpoint, timeout_s=5) as client:
        with pytest.raises(RequestTimeout):
            client.request(sample(number=0), timeout_s=0.05)
        client.request(sample(number=1))
    assert seen == [0, 1]


def test_a_client_finds_a_server_that_comes_back():
    with Server(ANY_PORT, {}, name="first") as server:
        endpoint = server.endpoint
        client = Client(endpoint, timeout_s=5)
        assert client.request(Ping()).service == "first"
    with pytest.raises(RequestTimeout):
        client.request(Ping(), timeout_s=0.2)
    with Server(endpoint, {}, name="second"):
        assert client.request(Ping()).service == "second"
    client.close()


def test_a_bind_that_fails_says_where(server):
    with pytest.raises(OSError, match=f"other cannot bind {server.endpoint}: Address already in use"):
        Server(server.endpoint, {}, name="other")


@pytest.mark.parametrize("kind", ["server", "publisher"])
def test_a_path_where_somebody_listens_is_not_taken_away(tmp_path, kind):
    endpoint = f"ipc://{tmp_path}/socket"

    def make():
        return Server(endpoint, {}, name="second") if kind == "server" else Publisher(endpoint)

    with Server(endpoint, {}, name="first"):
        with pytest.raises(OSError, match="cannot bind .*: Address already in use"):
            make()
        with Client(endpoint, timeout_s=10) as client:
            assert client.request(Ping()).service == "first"

    def free() -> bool:  # ZeroMQ's thread closes the listener a moment later
        try:
            make().close()
        except OSError:
            return False
        return True

    wait_for(free)


def test_idle_runs_while_nothing_comes():
    called = threading.Event()
    with Server(ANY_PORT, {}, name="idle", idle=called.set):
        assert called.wait(5)


@pytest.mark.parametrize("timeout_s", [0, -1])
def test_a_client_must_wait_some_time(timeout_s):
    with pytest.raises(ValueError, match="must be above 0"):
        Client("tcp://127.0.0.1:1", timeout_s=timeout_s)


def test_10000_bad_messages_leave_a_server_as_it_was(server):
    good = [encode(sample(arrays={"q": np.zeros(6)})), encode(Ping())]
    peers = [raw_peer(server) for _ in range(4)]

    def read_replies() -> None:
        for peer in peers:
            while peer.poll(0):
                peer.recv_multipart()

    with Client(server.endpoint, timeout_s=20) as client:
        client.request(Ping())
        before = 0
        for number, frames in enumerate(bad_frames(good, 15_000, seed=2)):
            identified = [b"\0" * 8, *frames] if number % 3 else frames
            if identified:
                peers[number % 4].send_multipart(identified)
            if number % 100 == 0:
                client.request(Ping())  # it is alive all the while, and keeps up
                read_replies()
            if number == 5_000:
                before = resident_kib()
        assert client.request(sample(number=5)).number == 5
        assert resident_kib() - before < 40_000  # the 10,000 since then were 100 MB
    for peer in peers:
        peer.close()
    assert server.refused_messages > 5_000


def test_a_message_beyond_the_limit_is_not_taken_and_the_next_one_is(server):
    half = np.zeros(600_000, np.uint8)
    with Client(server.endpoint, timeout_s=10) as client:
        with pytest.raises(RemoteError, match="at most 1048576 are taken") as caught:
            client.request(sample(image=half, arrays={"other": half}))
        assert caught.value.code == "too_large"
        with pytest.raises(RequestTimeout):  # one frame beyond the limit: ZeroMQ ends the connection
            client.request(sample(image=np.zeros(3 << 20, np.uint8)), timeout_s=0.5)
        assert client.request(sample(number=4)).number == 4


def test_a_peer_that_never_reads_does_not_stop_the_server(server):
    peer = raw_peer(server)
    peer.rcvhwm = 1
    flood = [b"\0" * 8, *encode(sample(image=np.zeros(200_000, np.uint8)))]
    with Client(server.endpoint, timeout_s=20) as client:
        for _ in range(300):
            try:
                peer.send_multipart(flood, flags=zmq.DONTWAIT)
            except zmq.Again:
                break
        assert client.request(sample(number=1)).number == 1
    peer.close()


FLOODED = """
import subprocess, sys, time
from proto.sockets import Server
server = Server("tcp://127.0.0.1:0", {}, name="flooded")  # nobody reads yet
subprocess.run([sys.executable, "-c", sys.argv[1], server.endpoint], check=True)
time.sleep(5)  # longer than two of any sensible heartbeats
print("alive")
"""
FLOODING = """
import sys, time, zmq
peer = zmq.Context.instance().socket(zmq.DEALER)
peer.linger = 0
peer.connect(sys.argv[1])
end = time.monotonic() + 1
while time.monotonic() < end:
    try:
        peer.send(bytes(20_000), zmq.DONTWAIT)
    except zmq.Again:
        time.sleep(0.01)
"""


def test_a_peer_that_floods_and_leaves_does_not_abort_the_process():
    """libzmq 4.3.5 does where ZMTP heartbeats are on."""
    done = subprocess.run([sys.executable, "-c", FLOODED, FLOODING], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("alive\n", 0), done.stderr


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


def connected(publisher: Publisher, *subscribers: Subscriber) -> None:
    """Until each subscriber got something: joining takes a moment."""
    for subscriber in subscribers:

        def heard(subscriber=subscriber) -> bool:
            publisher.send("hello", Ok())
            return subscriber.receive(0.05) is not None

        wait_for(heard)
        while subscriber.receive(0.05):
            pass


def test_subscribers_get_their_topics_and_the_newest():
    with Publisher(ANY_PORT, heartbeat_s=60) as publisher:
        with (
            Subscriber(publisher.endpoint, ("ego", "hello")) as one,
            Subscriber(publisher.endpoint) as both,
        ):
            connected(publisher, one, both)
            one.latest(0.1), both.latest(0.1)
            one.skipped = both.skipped = 0
            for number in range(3):
                publisher.send("ego", sample(number=number))
                publisher.send("top", sample(number=10 + number))
            time.sleep(0.3)  # all six have come
            assert {topic: message.number for topic, message in one.latest(5).items()} == {"ego": 2}
            assert {topic: message.number for topic, message in both.latest(5).items()} == {"ego": 2, "top": 12}
            assert (one.skipped, both.skipped) == (2, 4)


def test_heartbeats_tell_a_quiet_publisher_from_a_dead_one():
    with Publisher(ANY_PORT, heartbeat_s=0.05) as publisher:
        with Subscriber(publisher.endpoint) as subscriber:
            connected(publisher, subscriber)
            assert subscriber.receive(0.3) is None
            assert subscriber.age_s < 0.25
            publisher.close()
            assert subscriber.receive(0.5) is None
            assert subscriber.age_s > 0.3


def test_noise_from_a_publisher_is_ignored_and_counted():
    noisy = zmq.Context.instance().socket(zmq.PUB)
    port = noisy.bind_to_random_port("tcp://127.0.0.1")
    with Subscriber(f"tcp://127.0.0.1:{port}") as subscriber:
        good = [b"ego", b"\1" * 8, *encode(Ok())]

        def heard() -> bool:
            noisy.send_multipart(good)
            return subscriber.receive(0.05) is not None

        wait_for(heard)
        sent = 0
        for frames in bad_frames([encode(sample())], 1000, seed=3):
            noisy.send_multipart([b"ego", b"\1" * 8, *frames])
            noisy.send_multipart(frames or [b""])
            sent += 2
            subscriber.latest(0)
        noisy.send_multipart(good)
        assert subscriber.latest(1).get("ego") == Ok()
        assert subscriber.malformed > 500
    noisy.close(linger=0)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "others"):
        make_keys(folder / name)
    return folder


@pytest.fixture
def guarded(keys):
    # a context takes one folder of keys for all its servers: the tests share it
    with Server(ANY_PORT, {}, name="guarded", security=load_security(keys / "ours", "server")) as server:
        yield server


def test_the_right_keys_are_let_in(guarded, keys):
    with Client(guarded.endpoint, timeout_s=5, security=load_security(keys / "ours", "client")) as client:
        assert client.request(Ping()).service == "guarded"


def foreign_client_of_our_server(keys) -> Security:
    ours, others = (load_security(keys / name, "client") for name in ("ours", "others"))
    return Security("client", others.keys, others._public, others._secret, ours._server_public)


@pytest.mark.parametrize("who", ["no keys", "another server's key", "a client that is not authorized"])
def test_wrong_keys_are_refused_and_logged(guarded, keys, caplog, who):
    security = {
        "no keys": lambda: OPEN,
        "another server's key": lambda: load_security(keys / "others", "client"),
        "a client that is not authorized": lambda: foreign_client_of_our_server(keys),
    }[who]()
    with caplog.at_level(logging.WARNING, "proto"):
        with Client(guarded.endpoint, timeout_s=0.7, security=security) as client:
            with pytest.raises(RequestTimeout) as caught:
                client.request(Ping())
        wait_for(lambda: guarded._watch.refused > 0)
    if who == "a client that is not authorized":
        assert "its key is not authorized" in str(caught.value)
    assert "guarded: handshake refused" in caplog.text
    with Client(guarded.endpoint, timeout_s=5, security=load_security(keys / "ours", "client")) as client:
        assert client.request(Ping()).service == "guarded"


def test_publishers_are_guarded_too(guarded, keys):
    security = load_security(keys / "ours", "server")
    with Publisher(ANY_PORT, security=security, heartbeat_s=60) as publisher:
        with (
            Subscriber(publisher.endpoint, security=load_security(keys / "ours", "client")) as friend,
            Subscriber(publisher.endpoint) as stranger,
        ):
            connected(publisher, friend)
            publisher.send("secret", Ok())
            assert friend.receive(5) == ("secret", Ok())
            assert stranger.receive(0.3) is None


def test_key_files_are_private_and_never_overwritten(keys):
    secret = keys / "ours" / "server.key_secret"
    assert secret.stat().st_mode & 0o077 == 0
    assert (keys / "ours").stat().st_mode & 0o077 == 0
    with pytest.raises(KeysError, match="holds client.key_secret, server.key_secret already"):
        make_keys(keys / "ours")


def test_missing_keys_name_the_file_and_the_command(tmp_path):
    with pytest.raises(KeysError, match=r"server.key_secret: no usable CURVE key .*twin keys"):
        load_security(tmp_path, "server")
    (tmp_path / "client.key_secret").write_text("nonsense")
    with pytest.raises(KeysError, match="no usable CURVE key"):
        load_security(tmp_path, "client")


def test_secrets_do_not_show(keys):
    security = load_security(keys / "ours", "client")
    assert security._secret.decode() not in repr(security)


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://127.0.0.1:1", "tcp://127.3.2.1:1", "tcp://localhost:1", "tcp://[::1]:1", "ipc:///tmp/x", "localhost"],
)
def test_local_endpoints_may_be_open(endpoint):
    check_bind(endpoint, OPEN, allow_open=False)


@pytest.mark.parametrize(
    "endpoint", ["tcp://0.0.0.0:1", "tcp://*:1", "tcp://192.0.2.1:1", "tcp://[::]:1", "0.0.0.0", "tcp://eth0:1"]
)
def test_public_endpoints_need_keys_or_plain_words(endpoint, keys):
    with pytest.raises(BindRefused, match=r"can be reached from the network.*twin keys.*allow_open: true"):
        check_bind(endpoint, OPEN, allow_open=False)
    check_bind(endpoint, OPEN, allow_open=True)
    check_bind(endpoint, load_security(keys / "ours", "server"), allow_open=False)
