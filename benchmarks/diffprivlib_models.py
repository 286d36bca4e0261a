"""Models of diffprivlib's LinearRegression, for an environment that has no copriv.

python diffprivlib_models.py ASKED.npz ANSWER.npy
"""

from __future__ import annotations

import sys

import numpy as np
from diffprivlib.models import LinearRegression


def main(asked: str, answer: str) -> None:
    """Write one model for each seed, shape (seeds, p)."""
    given = np.load(asked)
    bound, target_bound = given["feature_bound"], float(given["target_bound"])
    models = []
    for seed in range(int(given["seeds"])):
        model = LinearRegression(
            epsilon=float(given["epsilon"]),
            bounds_X=(-bound, bound),
            bounds_y=(-target_bound, target_bound),
            fit_intercept=False,  # the constant is one of the features
            random_state=seed,
        )
        models.append(model.fit(given["features"], given["targets"]).coef_)
    np.save(answer, np.stack(models))


if __name__ == "__main__":
    main(*sys.argv[1:])
