#!/bin/sh
# Inside an image's build, into /opt/copriv:
#
#   install.sh needs owner [learner]     what these rooms need, without what only builds and tests
#   install.sh rooms owner [learner]     copriv itself, and then nothing that installs is left
set -eu
step="$1"
shift
python=/opt/copriv/bin/python
site="$($python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

if [ "$step" = needs ]; then
  needs=""
  for room in "$@"; do needs="$needs --requirement deploy/images/$room.txt"; done
  index=""
  if ls deploy/images/wheels/*.whl >/dev/null 2>&1; then
    index="--no-index --find-links deploy/images/wheels"
  fi
  # shellcheck disable=SC2086 # several words are wanted
  $python -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile $index \
    --only-binary=:all: --constraint constraints.txt $needs 'setuptools>=77'
  # Tests, headers, and Arrow's own server.
  find "$site" -type d \( -name tests -o -name include \) -prune -exec rm -rf {} +
  rm -rf "$site"/pyarrow/src "$site"/pyarrow/libarrow_flight* "$site"/pyarrow/libarrow_python_flight* \
    "$site"/pyarrow/_flight*
  # Its symbols alone would be a fifth of the image. Other wheels do not bear being stripped.
  if command -v strip >/dev/null; then
    strip --strip-unneeded "$site"/opendp/lib/*.so
  fi
else
  # Only the rooms that were copied into this stage become a part of it.
  $python -m pip install --quiet --disable-pip-version-check --no-cache-dir \
    --no-index --no-deps --no-build-isolation .
  case " $* " in *" learner "*) ;; *) rm -f /opt/copriv/bin/copriv ;; esac
  $python -m pip uninstall --quiet --yes setuptools pip
  # Nothing can be written at run time, so a start would compile everything again.
  find "$site" -type d -name __pycache__ -prune -exec rm -rf {} +
  $python -m compileall -q --invalidation-mode unchecked-hash "$site"
fi
