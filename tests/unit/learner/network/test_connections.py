"""The owners of a study, wherever they are."""

import resource
from types import SimpleNamespace
from typing import Any, cast

from learner.network.connections import remote_owners


def test_a_learner_may_open_as_many_files_as_the_system_lets_it(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A study of nobody: each owner would take a connection.
    study = SimpleNamespace(algorithm=SimpleNamespace(initiative="learner"), tls=None, owners=())
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard - 1), hard))
    try:
        with remote_owners(study, cast(Any, None), base=tmp_path):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
