"""Seconds per update of APPFL: run by ``peers.py``, by an interpreter that has appfl.

Three owners and their logistic gradients, one owner for each update: its trainer moves the model by
one step on all its records, the server's FedAsync takes it in. "stock" is its VanillaTrainer with
one batch of all records; "tuned" a trainer of its own that computes one gradient from tensors that
are there. Both in one process, the models serialised as its gRPC does, without its network: less
than a deployment needs. Prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "WANDB_MODE": "disabled"}

import torch
from appfl.algorithm.aggregator import FedAsyncAggregator
from appfl.algorithm.trainer import BaseTrainer, VanillaTrainer
from appfl.comm.grpc.utils import deserialize_model, serialize_model
from omegaconf import OmegaConf
from torch.utils.data import TensorDataset

KIND, RECORDS, FEATURES, UPDATES, SEED = sys.argv[1], *map(int, sys.argv[2:6])
WARM, OWNERS, STEP = 1, 3, 0.1
torch.set_num_threads(1)


class Silent:
    """A logger that says nothing."""

    def __getattr__(self, name: str) -> Any:
        """Whatever it is told."""
        return lambda *arguments, **named: None


class OneGradient(BaseTrainer):
    """One gradient of all records."""

    def train(self, **kwargs: Any) -> None:
        """Move the model by one step."""
        x, y = self.train_dataset.tensors
        (weight,) = self.model.parameters()
        with torch.no_grad():
            margins = x @ weight[0] * y[:, 0]
            slopes = -y[:, 0] * torch.sigmoid(-margins)
            weight[0] -= STEP * (slopes @ x) / len(x)

    def get_parameters(self) -> Any:
        """The model as it is sent."""
        return self.model.state_dict()


class Logistic(torch.nn.Module):
    """The mean of log(1 + exp(-y margin))."""

    def forward(self, margins: Any, y: Any) -> Any:
        """The loss."""
        return torch.nn.functional.softplus(-margins * y).mean()


def trainer(owner: int) -> Any:
    """An owner's trainer, with its records."""
    torch.manual_seed(SEED + owner)
    x = 2 * torch.rand(RECORDS, FEATURES, dtype=torch.float64) - 1
    noisy = x.sum(1, keepdim=True) + torch.randn(RECORDS, 1, dtype=torch.float64)
    y = torch.where(noisy > 0, 1.0, -1.0).double()
    configs = {
        "mode": "step",
        "num_local_steps": 1,
        "optim": "SGD",
        "optim_args": {"lr": STEP},
        "train_batch_size": RECORDS,
        "train_data_shuffle": False,
        "device": "cpu",
    }
    kind = VanillaTrainer if KIND == "stock" else OneGradient
    return kind(
        model=torch.nn.Linear(FEATURES, 1, bias=False, dtype=torch.float64),
        loss_fn=Logistic(),
        metric=lambda true, predicted: 0.0,
        train_dataset=TensorDataset(x, y),
        train_configs=OmegaConf.create(configs),
        logger=Silent(),
        client_id=str(owner),
    )


def main() -> None:
    """Updates one after the other."""
    model = torch.nn.Linear(FEATURES, 1, bias=False, dtype=torch.float64)
    configs = OmegaConf.create(
        {"alpha": 0.9, "num_clients": OWNERS, "optimize_memory": KIND == "stock"}
    )
    server = FedAsyncAggregator(model=model, aggregator_configs=configs, logger=Silent())
    trainers = [trainer(owner) for owner in range(OWNERS)]
    state = server.get_parameters()
    began = 0.0
    for k in range(WARM * OWNERS + UPDATES):
        if k == WARM * OWNERS:
            began = time.perf_counter()
        owner = trainers[k % OWNERS]
        owner.load_parameters(deserialize_model(serialize_model(state)))
        owner.train(round=k // OWNERS)
        told = owner.get_parameters()
        told = told[0] if isinstance(told, tuple) else told
        told = deserialize_model(serialize_model(told))
        state = server.aggregate(str(k % OWNERS), dict(told))
    print(json.dumps({"seconds": (time.perf_counter() - began) / UPDATES}))


if __name__ == "__main__":
    main()
