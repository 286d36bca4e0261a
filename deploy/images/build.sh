#!/usr/bin/env bash
# Build both images on a machine that reaches no image registry: base, wheels, owner, learner.
#
#   deploy/images/build.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
base=copriv-base:debian
docker image inspect "$base" "$base-build" >/dev/null 2>&1 || deploy/images/base-image.sh "$base"
deploy/images/wheels.sh "$base"
for target in owner learner; do
  docker build --quiet --target "$target" --tag "copriv-$target:latest" \
    --build-arg BASE_IMAGE="$base" --build-arg BUILD_IMAGE="$base-build" .
done
docker image ls --format '{{.Repository}}:{{.Tag}} {{.Size}}' | grep '^copriv-'
