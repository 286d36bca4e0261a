#!/usr/bin/env bash
# Build both images on a machine that reaches no image registry: base, wheels, owner, learner.
#
#   deploy/images/build.sh
#
# Exit status 75: Debian's packages or the wheels could not be had; another time they may be.
set -euo pipefail
cd "$(dirname "$0")/../.."
base=copriv-base:debian

from_outside() {
  timeout 1200 "$@" || {
    # 2: something of this machine is missing, which the step has said.
    [[ $? -ne 2 ]] || exit 2
    echo "build: $1 could not get what it needs from outside" >&2
    exit 75
  }
}

docker image inspect "$base" "$base-build" >/dev/null 2>&1 ||
  from_outside deploy/images/base-image.sh "$base"
from_outside deploy/images/wheels.sh "$base"
for target in owner learner; do
  docker build --quiet --target "$target" --tag "copriv-$target:latest" \
    --build-arg BASE_IMAGE="$base" --build-arg BUILD_IMAGE="$base-build" .
done
docker image ls --format '{{.Repository}}:{{.Tag}} {{.Size}}' | grep '^copriv-'
