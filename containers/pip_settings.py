"""Turns `pip config list` (stdin) into what an image build can use: pip.conf, certificates, folders; in folder argv[1].

Runs on any Python 3 without packages.
"""

import ast
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

KEPT = {"index-url", "extra-index-url", "find-links", "trusted-host", "constraint", "no-index", "timeout", "retries"}
KEPT |= {"default-timeout", "proxy", "pre", "prefer-binary", "only-binary"}
LOCATIONS = {"find-links", "extra-index-url", "index-url", "constraint"}


def local_path(word: str) -> Path | None:
    """The folder or file on this machine that `word` names, None for addresses elsewhere."""
    parts = urlsplit(word)
    path = Path(url2pathname(parts.path)) if parts.scheme == "file" else Path(word)
    return path.resolve() if parts.scheme in ("", "file") and path.exists() else None


def main(target: Path) -> None:
    values, mounts = {}, []
    for line in sys.stdin:
        name, _, text = line.strip().partition("=")
        section, _, key = name.rpartition(".")
        value = ast.literal_eval(text)
        if key == "cert":
            shutil.copy(value, target / "certificates")
        elif key in KEPT and section in ("global", "install", ":env:"):
            values.setdefault(key.removeprefix("default-"), []).append(value)
        mounts += [path for word in str(value).split() if key in LOCATIONS and (path := local_path(word))]
    lines = [
        f"{key} =\n" + "".join(f"    {word}\n" for value in found for word in value.split())
        for key, found in values.items()
    ]
    (target / "pip.conf").write_text("[global]\n" + "".join(lines) if lines else "")
    # The pages of an index folder may point at files beside it, hence its parent.
    folders = sorted({str(path if path.is_dir() and path.name != "simple" else path.parent) for path in mounts})
    (target / "folders").write_text("".join(f"{folder}\n" for folder in folders))


main(Path(sys.argv[1]))
