"""Generate common/pb from protos/, or with --check tell whether what is committed is stale."""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ("copriv_pb2.py", "copriv_pb2.pyi")


def generate(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    status = protoc.main(
        [
            "protoc",
            f"-Icommon/pb={ROOT / 'protos'}",
            f"--python_out={target}",
            f"--pyi_out={target}",
            "common/pb/copriv.proto",
        ]
    )
    if status != 0:
        sys.exit(status)


def main() -> None:
    if sys.argv[1:] != ["--check"]:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = [
            name
            for name in GENERATED
            if (Path(folder) / "common/pb" / name).read_bytes()
            != (ROOT / "common/pb" / name).read_bytes()
        ]
    if stale:
        sys.exit(f"common/pb is stale ({', '.join(stale)}): run make protos and commit the result")


if __name__ == "__main__":
    main()
