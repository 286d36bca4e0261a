"""A host is found by its name as this system finds it, at each of its addresses."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

# A root of a namespace of its own sees another /etc/hosts; nobody else does.
UNSHARED = ("unshare", "--user", "--map-root-user", "--mount")
CALLED = """
import grpc
from common.channels import open_channel
from common.wire import CLIENT_OPTIONS
with open_channel("owner.example:{port}", None, CLIENT_OPTIONS) as channel:
    grpc.channel_ready_future(channel).result(timeout=20)
"""


@pytest.fixture
def port():
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        bound = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield bound
        server.stop(None).wait()


@pytest.mark.parametrize("other", ["::1", "127.0.0.9"])
def test_a_name_of_two_addresses_is_reached_at_the_one_that_listens(other, port, tmp_path):
    if (
        shutil.which("unshare") is None
        or subprocess.run([*UNSHARED, "true"], check=False).returncode
    ):
        pytest.skip("this system gives no namespace of one's own")
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{other} owner.example\n127.0.0.1 owner.example\n")
    script = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
    subprocess.run(
        [
            *UNSHARED,
            "sh",
            "-c",
            script,
            "sh",
            hosts,
            sys.executable,
            "-c",
            CALLED.format(port=port),
        ],
        check=True,
        timeout=60,
    )
