"""Finding the serial port of an arm."""

from __future__ import annotations

from so101.robot.base import BusError

AUTO = "auto"


def find_port(port: str, key: str) -> str:
    """`port` itself, or with "auto" the only USB serial device there is.

    Args:
        key: where the user sets it, for the error.

    Raises:
        BusError: none or several are there; says which.
    """
    if port != AUTO:
        return port
    found = usb_ports()
    if len(found) == 1:
        return next(iter(found))
    listed = ", ".join(f"{device} ({text})" for device, text in found.items()) or "none"
    raise BusError(
        f"{key} is auto and there is not exactly one USB serial device; found: {listed}. "
        f"Plug the arm in, or name its port: --set {key}=/dev/ttyACM0"
    )


def usb_ports() -> dict[str, str]:
    """Device names of USB serial ports, and what they call themselves."""
    from serial.tools import list_ports  # of pyserial, which the servo SDK brings

    return {port.device: port.description for port in sorted(list_ports.comports()) if port.vid is not None}
