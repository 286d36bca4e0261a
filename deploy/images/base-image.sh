#!/usr/bin/env bash
# Build a base image with Python out of Debian's packages, for machines that reach no image registry.
#
#   deploy/images/base-image.sh [TAG]        (as root; needs mmdebstrap and a Docker engine)
#
# Mirrors, suites and keys are those of this machine's own apt configuration.
set -euo pipefail
tag="${1:-copriv-base:debian}"

for tool in mmdebstrap docker apt-get; do
  command -v "$tool" >/dev/null || {
    echo "base-image: $tool is missing; install it (apt-get install $tool)" >&2
    exit 2
  }
done
sources="$(apt-get indextargets --format 'deb $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sort -u)"
[[ -n "$sources" ]] || { echo "base-image: apt knows no package lists; run apt-get update" >&2; exit 2; }

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
# How this machine reaches its mirrors (proxies and the like) holds for mmdebstrap's apt too.
apt-config dump Acquire >"$work/acquire.conf"

# Neither image holds a compiler or apt; only the one for the build has pip's wheels and strip.
make_image() {
  local name="$1" packages="$2"
  printf '%s\n' "$sources" | mmdebstrap --quiet --variant=essential \
    --aptopt="$work/acquire.conf" \
    --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/* "$1"/usr/share/i18n' \
    "" "$work/base.tar" -
  docker import --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8' \
    "$work/base.tar" "$name" >/dev/null
  echo "$name: $(docker run --rm "$name" python3 --version)"
}
make_image "$tag" python3,libstdc++6,ca-certificates
make_image "$tag-build" python3,python3-venv,libstdc++6,binutils
