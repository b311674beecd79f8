import io
import os
import pty
import termios

import pytest

from services.real.keys import TerminalKeys
from so101.config import load_config

SETTINGS = load_config().deploy.control.keys


@pytest.fixture
def terminal():
    """(keyboard side, the stream a program reads)."""
    keyboard, program = pty.openpty()
    with open(program, closefd=True) as stream:
        yield keyboard, stream
    os.close(keyboard)


def press(keyboard: int, keys: bytes, stream) -> None:
    os.write(keyboard, keys)
    termios.tcdrain(keyboard)


def test_keys_have_the_meanings_of_the_yaml(terminal):
    keyboard, stream = terminal
    with TerminalKeys(SETTINGS, stream) as keys:
        assert keys.present and keys.poll() == []
        press(keyboard, b" pqsfhx", stream)
        assert keys.poll() == ["pause", "pause", "abort", "success", "failure", "help"]
        assert keys.poll() == []


def test_escape_aborts_but_arrows_and_function_keys_do_not(terminal):
    keyboard, stream = terminal
    with TerminalKeys(SETTINGS, stream) as keys:
        press(keyboard, b"\x1b[A\x1b[15~\x1bOPs", stream)
        assert keys.poll() == ["success"]
        press(keyboard, b"\x1b", stream)
        assert keys.poll() == ["abort"]


@pytest.mark.parametrize("ends_by", [None, RuntimeError, KeyboardInterrupt, SystemExit])
def test_the_terminal_is_put_back_on_every_way_out(terminal, ends_by):
    _, stream = terminal
    before = termios.tcgetattr(stream.fileno())
    try:
        with TerminalKeys(SETTINGS, stream):
            assert termios.tcgetattr(stream.fileno()) != before
            if ends_by is not None:
                raise ends_by
    except BaseException as error:
        assert type(error) is ends_by
    assert termios.tcgetattr(stream.fileno()) == before


def test_a_terminal_that_goes_away_has_no_keys(terminal):
    keyboard, stream = terminal
    with TerminalKeys(SETTINGS, stream) as keys:
        hung_up = os.dup(keyboard)
        os.close(keyboard)
        os.dup2(os.open(os.devnull, os.O_RDWR), keyboard)  # the fixture closes this one
        os.close(hung_up)
        try:
            assert keys.poll() == []
        except OSError:  # how Linux tells that the other side hung up
            pytest.fail("a lost terminal must not stop the arm's loop")
    assert keys.poll() == []


def test_a_job_in_the_background_leaves_the_terminal_alone(terminal, monkeypatch):
    _, stream = terminal
    before = termios.tcgetattr(stream.fileno())
    monkeypatch.setattr(os, "tcgetpgrp", lambda file: os.getpgrp() + 1)
    with TerminalKeys(SETTINGS, stream) as keys:
        assert not keys.present and termios.tcgetattr(stream.fileno()) == before


@pytest.mark.parametrize("stream", [io.StringIO("sss"), None])
def test_where_there_is_no_terminal_there_are_no_keys(stream, tmp_path):
    file = stream or open(tmp_path / "input", "w+")  # noqa: SIM115
    with TerminalKeys(SETTINGS, file) as keys:
        assert not keys.present and keys.poll() == []
    file.close()
