"""What somebody gives an estimator: records, their owners, public records, a seed."""

from __future__ import annotations

import math
import secrets
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from common.arrays import Flags, Indices, unmasked
from common.columns import parse_numbers
from common.errors import DoubtWarning
from common.texts import brief

# Seeds of a study; a journal keeps one as a number of 64 bits.
SEEDS = 2**63
# More public records than this do not make a better map of a few columns.
SPARE_PUBLIC_RECORDS = 2


def dealt(owners: object, num_records: int) -> tuple[Indices, list[str]]:
    """Whose each record is, and the owners' names, from one label for each record.

    Raises:
      ValueError: There is not one label for each record, or one is missing.

    >>> dealt(["b", "a", "b"], 3)
    (array([1, 0, 1]), ['a', 'b'])
    """
    if owners is None:
        return np.zeros(num_records, dtype=np.intp), ["owner"]
    # As an array, a list of texts and gaps is one of texts, among them "nan".
    kind = object if isinstance(owners, list | tuple) else None
    column = pd.Series(np.asarray(unmasked(owners), dtype=kind).ravel())
    if len(column) != num_records:
        raise ValueError(
            f"owners: got {len(column)} labels for {num_records} records; give one for each, such "
            "as the column of a table"
        )
    if column.isna().any():
        raise ValueError("owners: a record has no owner; give each record a label")
    codes, distinct = pd.factorize(column, sort=True)
    return codes.astype(np.intp), [str(name) for name in distinct]


def given_away(
    share: Any, *, labels: Indices, names: Sequence[str], targets: Any, num_columns: int, seed: int
) -> Flags:
    """Which records count as public where no public ones are given: the same share of each owner.

    Args:
      share: Which share of the records, between 0 and 1.
      labels: Whose each record is.
      names: The owners' names.
      targets: The records' targets; of classes, some of each are public.
      num_columns: How many columns there are: enough records for a public model are needed.
      seed: Seed of the draw.

    Raises:
      ValueError: The share is none, or too few records would be public or left, to any owner.
    """
    if not isinstance(share, Real) or not 0 < float(share) < 1:
        raise ValueError(f"public_share: got {share!r}, expected a share between 0 and 1")
    n = len(labels)
    count = max(num_columns + 1 + SPARE_PUBLIC_RECORDS, math.ceil(float(share) * n))
    owners = len(np.unique(labels))
    if count + owners > n:
        raise ValueError(
            f"n_samples={n} is too few for {num_columns} columns and {owners} owners: {count} "
            "would be public records; give more, or public=(X, y)"
        )
    # Spread over owners and, within them, over targets.
    read = parse_numbers(pd.Series(targets))
    order = np.lexsort((np.random.default_rng(seed).random(n), read, labels))
    chosen = np.zeros(n, dtype=bool)
    chosen[order[np.arange(count) * n // count]] = True
    left = np.bincount(labels[~chosen], minlength=owners)
    if not left.all():
        bare = int(np.argmin(left))
        raise ValueError(
            f"owners: {names[bare]} has {np.count_nonzero(labels == bare)} of the records, and all "
            "of these would be public; give it more, or public=(X, y)"
        )
    return chosen


def checked_pair(public: Any, *, share: Any, usual_share: float) -> tuple[Any, Any]:
    """Public records that were given, and their targets.

    Args:
      public: What was given.
      share: The share that would be given away without them, which nobody may have set.
      usual_share: What it is then.

    Raises:
      ValueError: They are no pair, or the share would do nothing.
    """
    if share != usual_share:
        raise ValueError("public_share is not read where public is given; leave it out")
    if not isinstance(public, tuple | list) or len(public) != 2:
        raise ValueError(
            f"public: got a {type(public).__name__}, expected (X, y): the public records and their "
            "targets"
        )
    return public[0], public[1]


def checked_numbers(targets: pd.Series) -> Any:
    """Targets that may be texts, as they are: the feature map reads them as it reads a table's.

    Raises:
      ValueError: One of them is no number.
    """
    unread = np.flatnonzero(np.isnan(parse_numbers(targets)))
    if unread.size:
        raise ValueError(
            f"y has {brief(repr(targets[unread[0]]))}, which is no number; a "
            "regressor needs numbers, and FederatedClassifier takes two classes"
        )
    return targets.to_numpy()


def known_table(X: Any) -> Any:
    """Records as this library knows them: a data frame where they are a table of another one.

    As an array such a table would lose what its columns are, such as dates.
    """
    if not isinstance(X, pd.DataFrame | pd.Series) and hasattr(X, "to_pandas"):
        return X.to_pandas()
    return unmasked(X)


def warn_of_order(X: Any, column: Any, *, name: str) -> None:
    """Warn of rows that have the labels of ``X`` in another order: they go together by place.

    Args:
      X: The records as they were given.
      column: What belongs to them, a value for each.
      name: What it is called.

    Warns:
      DoubtWarning: Both are of pandas, and their labels are the same in another order.
    """
    if not all(isinstance(one, pd.DataFrame | pd.Series) for one in (X, column)):
        return
    rows, others = X.index, column.index
    if len(rows) != len(others) or rows.equals(others):
        return
    if rows.is_unique and others.is_unique and others.isin(rows).all():
        warnings.warn(
            f"{name}: its rows have the labels of X in another order, and go with those of X by "
            f"their place; give {name}.loc[X.index], unless that is meant",
            DoubtWarning,
            stacklevel=2,
        )


def warn_of_other_classes(y: Any, classes: Any) -> None:
    """Warn of targets that are neither class: whatever is predicted, they count as told wrongly.

    Args:
      y: The targets.
      classes: The two classes.

    Warns:
      DoubtWarning: A target is none of both, as where it is spelt otherwise.
    """
    given = np.asarray(unmasked(y), dtype=object).ravel()
    others = given[~pd.Series(given, dtype=object).isin(list(classes)).to_numpy()]
    if others.size:
        first, second = classes.tolist()
        warnings.warn(
            f"y: {others.size:,} of {given.size:,} records have another class than {first!r} and "
            f"{second!r}, such as {brief(repr(others[0]))}, and count as told wrongly; spell them "
            "as these",
            DoubtWarning,
            stacklevel=2,
        )


def seed_of(random_state: Any) -> int:
    """The seed that a ``random_state`` means.

    Raises:
      ValueError: It is none of NumPy's or scikit-learn's, or no seed of a study.
    """
    if random_state is None:
        return secrets.randbits(32)
    if isinstance(random_state, int | np.integer):
        if not 0 <= random_state < SEEDS:
            raise ValueError(
                f"random_state: got {random_state}, expected None or a whole number from 0 to "
                f"{SEEDS - 1}"
            )
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))
