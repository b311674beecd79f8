"""A serial port without a wire: a pseudo terminal behind a link that keeps its name."""

from __future__ import annotations

import os
import select
import termios
import tty
from pathlib import Path

from so101.files import atomic_path

# Speeds as termios codes them; a servo hears a host of its own speed only.
_SPEEDS = {getattr(termios, name): int(name[1:]) for name in dir(termios) if name[0] == "B" and name[1:].isdigit()}


class SerialLine:
    """The servo's end of the port, for one thread. `port` is the path a host opens.

    Args:
        link: where the link is put; what is there is replaced.
    """

    def __init__(self, link: Path) -> None:
        self.link = Path(link).absolute()
        self._master = self._slave = -1

    @property
    def plugged(self) -> bool:
        return self._master >= 0

    @property
    def port(self) -> str:
        return str(self.link)

    @property
    def host_baud_rate(self) -> int:
        """What the host set its port to."""
        return _SPEEDS.get(termios.tcgetattr(self._master)[5], 0)

    def plug(self) -> None:
        """The port appears."""
        self._master, self._slave = os.openpty()  # our own slave end keeps the port up while no host has it open
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        with atomic_path(self.link) as temporary:
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(os.ttyname(self._slave))

    def unplug(self) -> None:
        """The port disappears: a host that has it open gets errors."""
        if not self.plugged:
            return
        if self.link.is_symlink() and os.readlink(self.link) == os.ttyname(self._slave):
            self.link.unlink()
        os.close(self._slave)
        os.close(self._master)
        self._master = self._slave = -1

    def receive(self, timeout_s: float | None, also: int) -> bytes | None:
        """What came, empty after `timeout_s`, None when the descriptor `also` has something to read."""
        master = self._master
        ready, _, _ = select.select([also, master] if master >= 0 else [also], [], [], timeout_s)
        if also in ready:
            return None
        try:
            return os.read(master, 4096) if ready else b""
        except OSError:
            return b""

    def send(self, data: bytes) -> None:
        """To the host; what nobody reads is lost when the port's buffer is full."""
        try:
            os.write(self._master, data)
        except OSError:
            pass
