"""The folder of one owner with random records, for tools that serve it and mistreat it."""

import numpy as np
import pandas as pd
import tomli_w
from maps import map_of

COLUMNS = ("a", "b", "c", "y")


def write_owner(folder, name, *, epsilon_lifetime, enrollments_per_hour=1000, block=1):
    """An owner's folder: settings, 200 records; returns the settings and a feature map's text."""
    rng = np.random.default_rng(3)
    public, private = (
        pd.DataFrame(rng.normal(size=(size, len(COLUMNS))), columns=list(COLUMNS))
        for size in (500, 200)
    )
    fitted = map_of(public)
    private.to_parquet(folder / "shard.parquet")
    settings = {
        "name": name,
        "ledger": {"block": block},
        "data": {"path": "shard.parquet", "columns": list(COLUMNS)},
        "policy": {
            "epsilon_per_study": "1",
            "epsilon_lifetime": epsilon_lifetime,
            "enrollments_per_hour": enrollments_per_hour,
        },
    }
    path = folder / "owner.toml"
    path.write_text(tomli_w.dumps(settings))
    return path, fitted.to_json()
