"""What travels between processes: typed messages, their codec, sockets with timeouts, heartbeats and keys.

Knows nothing of robots or physics: arrays, numbers and text go in and come out. `docs/wire.md` lists every socket.
"""

PROTOCOL_VERSION = 1  # of our own messages; raised when a message changes in a way that an older peer would misread
