#!/usr/bin/env bash
# Makes the base image from Debian's packages alone, for machines that reach no image registry: debootstrap, then import.
#   containers/make_base.sh [IMAGE]      (default so101-base; then BASE_IMAGE=so101-base containers/build)
# Needs root, debootstrap, and docker or podman. Packages come from where this machine's apt gets them;
# DEBIAN_MIRROR and DEBIAN_SUITE choose otherwise.
set -euo pipefail

image="${1:-so101-base}"
suite="${DEBIAN_SUITE:-bookworm}"
. "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
say() { echo "containers: $*" >&2; }
die() {
    say "$*"
    exit 1
}
[ -n "$engine" ] || die "found no working docker or podman"

[ "$(id -u)" = 0 ] || die "debootstrap needs root; run: sudo $0 $*"
command -v debootstrap >/dev/null || die "needs debootstrap; run: apt-get install -y --no-install-recommends debootstrap"

find_mirror() { # the first source that has Debian's main archive
    apt-get indextargets --format '$(REPO_URI) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' |
        awk '$2 == "main" && $3 == "Debian" { print $1; exit }'
}
mirror="${DEBIAN_MIRROR:-$(find_mirror)}"
if [ -z "$mirror" ] && apt-get update -qq; then mirror="$(find_mirror)"; fi
[ -n "$mirror" ] || die "found no Debian archive in apt's sources; name one: DEBIAN_MIRROR=... $0"

rootfs="$(mktemp -d)"
trap 'rm -rf "$rootfs"' EXIT
say "making $image: Debian $suite by debootstrap (about a minute)"
packages="$(paste -sd, "$(dirname "${BASH_SOURCE[0]}")/packages.txt")"
if ! debootstrap --variant=minbase --include="$packages" "$suite" "$rootfs" "$mirror" >"$rootfs.log" 2>&1; then
    tail -n 20 "$rootfs.log" >&2
    die "debootstrap failed (messages above; all of them in $rootfs.log)"
fi
rm -rf "$rootfs"/var/cache/apt/archives/*.deb "$rootfs"/var/lib/apt/lists/* \
    "$rootfs"/usr/share/{doc,man,locale}/*
chmod 755 "$rootfs"
if ! tar -C "$rootfs" --numeric-owner -c . | "$engine" import - "$image" >"$rootfs.log" 2>&1; then
    die "$engine could not import it: $(cat "$rootfs.log")"
fi
rm -f "$rootfs.log"
say "made $image"
