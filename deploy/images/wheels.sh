#!/usr/bin/env bash
# Fill a folder with the wheels of an image, for a build that reaches no package index.
#
#   deploy/images/wheels.sh [BASE_IMAGE]
#
# The wheels fit the Python of the base image, in the versions of constraints.txt. Where they come
# from is the machine's own pip configuration.
set -euo pipefail
cd "$(dirname "$0")/../.."
base="${1:-copriv-base:debian}"
python="${PYTHON:-.venv/bin/python}"
target=deploy/images/wheels

version="$(docker run --rm "$base" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
mkdir -p "$target"
"$python" -m pip download --quiet --disable-pip-version-check --dest "$target" \
  --only-binary=:all: --python-version "$version" \
  --constraint constraints.txt \
  --requirement deploy/images/owner.txt --requirement deploy/images/learner.txt 'setuptools>=77'
echo "$target: $(ls "$target" | wc -l) wheels for Python $version"
