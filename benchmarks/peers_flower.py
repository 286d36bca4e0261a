"""Seconds per update of Flower's simulation: run by ``peers.py``, by an interpreter that has flwr.

The same three owners and the same logistic gradient as copriv is given, one owner for each update.
"stock" is FedAvg with one client for each round, "tuned" the bare messages. Prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

KIND, RECORDS, FEATURES, UPDATES, SEED = sys.argv[1], *map(int, sys.argv[2:6])
WARM = 5
STEP = 0.1
OWNERS = 3


def shard(owner: int) -> tuple[Any, Any]:
    """An owner's records; each process makes them once."""
    # This function is sent to the processes anew; a module is there once in each.
    made: dict[int, tuple[Any, Any]] = vars(np).setdefault("made_shards", {})
    if owner not in made:
        rng = np.random.default_rng([SEED, owner])
        x = rng.uniform(-1, 1, size=(RECORDS, FEATURES))
        made[owner] = x, np.where(x.sum(axis=1) + rng.normal(size=RECORDS) > 0, 1.0, -1.0)
    return made[owner]


client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """One gradient step on an owner's records."""
    x, y = shard(int(context.node_config["partition-id"]))
    theta = message.content["arrays"].to_numpy_ndarrays()[0]
    slopes = -y / (1.0 + np.exp(y * (x @ theta)))
    moved = theta - STEP * (slopes @ x) / len(y)
    told = {"arrays": ArrayRecord([moved]), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(content=RecordDict(told), reply_to=message)


server = ServerApp()
taken: dict[str, float] = {}


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Updates one after the other."""
    del context
    theta = np.zeros(FEATURES)
    if KIND == "stock":
        for rounds in (WARM, UPDATES):
            strategy = FedAvg(
                fraction_train=1 / OWNERS,
                fraction_evaluate=0.0,
                min_train_nodes=1,
                min_available_nodes=OWNERS,
            )
            began = time.perf_counter()
            strategy.start(grid=grid, initial_arrays=ArrayRecord([theta]), num_rounds=rounds)
            taken["seconds"] = (time.perf_counter() - began) / rounds
        return
    while len(nodes := list(grid.get_node_ids())) < OWNERS:
        time.sleep(0.1)
    for k in range(WARM + UPDATES):
        if k == WARM:
            began = time.perf_counter()
        content = RecordDict({"arrays": ArrayRecord([theta]), "config": ConfigRecord()})
        asked = Message(
            content=content, message_type="train", dst_node_id=nodes[k % OWNERS], group_id="0"
        )
        (answer,) = grid.send_and_receive([asked])
        if answer.has_error():
            raise RuntimeError(answer.error.reason)
        theta = answer.content["arrays"].to_numpy_ndarrays()[0]
    taken["seconds"] = (time.perf_counter() - began) / UPDATES


if __name__ == "__main__":
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=OWNERS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    print(json.dumps(taken))
