# Sourced by the scripts of this folder. Sets `engine` (docker or podman; empty when none works) and `compose` (its compose
# command, an array; empty when there is none). ENGINE=docker|podman chooses, COMPOSE=... names another compose command.

# A client alone is no engine: docker's is often there without its daemon.
engine_works() { command -v "$1" >/dev/null && "$1" info >/dev/null 2>&1; }

engine=""
for candidate in ${ENGINE:-docker podman}; do
    if engine_works "$candidate"; then
        engine="$candidate"
        break
    fi
done

compose=()
if [ -n "${COMPOSE:-}" ]; then
    read -ra compose <<<"$COMPOSE"
elif [ "$engine" = docker ] && docker compose version >/dev/null 2>&1; then
    compose=(docker compose)
elif [ "$engine" = podman ] && command -v podman-compose >/dev/null; then
    compose=(podman-compose)
fi
