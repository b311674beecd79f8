import pytest
from fastapi.testclient import TestClient

from proto.errors import BindRefused
from services.control.app import create_app
from services.control.auth import COOKIE, TOKEN_VARIABLE, Gate, check_exposed, make_token, read_token
from services.control.main import main

TOKEN = "a-token-of-some-length"


@pytest.fixture(autouse=True)
def no_token_outside(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.fixture
def guarded(plane):
    return TestClient(create_app(plane, Gate(TOKEN, ["twin.example"])), base_url="http://localhost:8000")


PATHS = [
    "/api/options",
    "/api/runs",
    "/api/events",
    "/api/openapi.json",
    "/api/cameras/ego/frame.jpg",
    "/api/none",
    "/apix",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer "}, {"Authorization": f"Basic {TOKEN}"},
     {"Authorization": TOKEN},
     {"Cookie": f"{COOKIE}={TOKEN}"}, {"Cookie": f"{COOKIE}="}, {"Authorization": "Bearer \xff"}],
)  # fmt: skip
def test_nothing_is_told_without_the_token(guarded, path, headers):
    reply = guarded.get(path, headers={name: value.encode("latin-1") for name, value in headers.items()})
    assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in reply.text


def test_with_the_token_or_after_a_login(guarded):
    assert guarded.get("/api/options", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200
    assert guarded.get("/api/health").status_code == 200  # supervisors ask without
    assert guarded.get("/").status_code == 200 and guarded.get("/page/app.js").status_code == 200
    assert guarded.post("/api/login", json={"token": "wrong"}).status_code == 401
    reply = guarded.post("/api/login", json={"token": TOKEN})
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and TOKEN not in cookie
    assert guarded.get("/api/options").status_code == 200  # the client kept the cookie


def test_refusals_are_logged_and_do_not_flood_the_log(guarded, caplog):
    for _ in range(50):
        guarded.get("/api/runs", headers={"Authorization": "Bearer wrong"})
    (line,) = [record.getMessage() for record in caplog.records if record.name == "services.control.app"]
    assert line.startswith("refused, 1 in all; the last: GET /api/runs from testclient: a token is needed")
    guarded.post("/api/login", json={"token": "wrong-and-secret"})
    assert any("a login with a wrong token" in record.getMessage() for record in caplog.records)
    assert "wrong-and-secret" not in caplog.text and TOKEN not in caplog.text


def test_a_cookie_ends_with_its_token():
    assert Gate(TOKEN).cookie == Gate(TOKEN).cookie != Gate(TOKEN + "2").cookie


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "192.168.0.7", "twin.example:8000", "LOCALHOST"],
)
def test_names_we_have(guarded, host):
    assert guarded.get("/api/options", headers={"Host": host, "Authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "[",
        "evil.example:8000",
        "a@localhost@evil.example",
    ],
)
def test_names_that_somebody_made_point_here(guarded, host):
    """DNS rebinding: the browser believes to talk to evil.example."""
    reply = guarded.get("/api/options", headers={"Host": host, "Authorization": f"Bearer {TOKEN}"})
    assert reply.status_code == 403 and "allowed_hosts" in reply.json()["error"]["text"]
    assert guarded.get("/", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Content-Type": "text/plain"}, 403),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 403),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 403),
        ({"Content-Type": "text/plain; application/json"}, 403),
        ({"X-Twin": "1", "Origin": "https://evil.example"}, 403),
        ({"Content-Type": "application/json", "Origin": "null"}, 403),
        ({"X-Twin": "1", "Origin": "http://localhost:9000"}, 403),
        ({"X-Twin": "1", "Origin": "http://localhost:8000"}, 424),
        ({"Content-Type": "application/json"}, 424),
    ],
)
def test_pages_of_others_cannot_stop_the_arm(api, headers, status):
    """424: the request went through, and there is no driver."""
    del api.headers["X-Twin"]
    assert api.post("/api/arm/stop", headers={**headers, "Host": "localhost:8000"}, content=b"{}").status_code == status


def test_another_page_is_never_told_that_it_may_ask(api):
    reply = api.options(
        "/api/runs", headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "::", "robot.local"])
def test_off_loopback_a_token_is_needed(make_config, host):
    config = make_config(f"deploy.control_plane.http.host='{host}'")
    with pytest.raises(BindRefused, match="without a token anyone there could start runs and move the arm"):
        check_exposed(config, None)
    with pytest.raises(BindRefused):
        main(config, [])
    check_exposed(config, TOKEN)
    check_exposed(make_config(f"deploy.control_plane.http.host='{host}'", "deploy.security.allow_open=true"), None)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_on_loopback_none_is_needed(make_config, host):
    check_exposed(make_config(f"deploy.control_plane.http.host='{host}'"), None)


def test_a_token_is_made_for_its_owner_alone(make_config, tmp_path, capsys):
    config = make_config()
    assert main(config, ["--make-token"]) == 0
    path = tmp_path / ".control" / "token"
    assert path.stat().st_mode & 0o777 == 0o600
    token = read_token(path)
    assert len(token) >= 32 and token in capsys.readouterr().out
    assert make_token(path) != token


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 20, "ü".encode() * 20])
def test_what_is_no_token_is_refused(tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(BindRefused, match="token"):
        read_token(tmp_path / "token")


def test_the_environment_wins_over_the_file(tmp_path, monkeypatch):
    assert read_token(tmp_path / "none") is None
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert read_token(tmp_path / "none") == TOKEN
