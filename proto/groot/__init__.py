"""GR00T's wire: one msgpack object a frame, arrays as .npy files inside it. See docs/policy.md for the generations.

W1 is N1.5, W2 is N1.6 (what we write unless told otherwise), W3 is what came after. All of them are read.
"""

from proto.groot.codec import Decoded, Wire, decode, encode
from proto.groot.modality import ActionConfig, ModalityConfig
from proto.groot.reader import Limits

__all__ = ["ActionConfig", "Decoded", "Limits", "ModalityConfig", "Wire", "decode", "encode"]
