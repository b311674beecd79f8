# Sourced by the scripts of this folder: `engine` (docker or podman; empty when none works), say, die.
# ENGINE=docker|podman chooses.
say() { echo "containers: $*" >&2; }
die() {
    say "$*"
    exit 1
}

# A client alone is no engine: docker's is often there without its daemon.
engine_works() { command -v "$1" >/dev/null && "$1" info >/dev/null 2>&1; }

engine=""
for candidate in ${ENGINE:-docker podman}; do
    if engine_works "$candidate"; then
        engine="$candidate"
        break
    fi
done
