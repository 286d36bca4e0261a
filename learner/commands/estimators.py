"""Estimators in scikit-learn's manner over several owners: ``FederatedRegressor``, ``-Classifier``.

``fit(X, y, owners=labels)`` trains over shards in memory, as a simulation: the noise is that of the
study, no ledger is charged, nothing is protected (``charged_`` is False). With ``study=PATH``,
``fit()`` runs that study: owners with files as ``copriv simulate``, owners with addresses as
``copriv train``, which spends their budgets (``charged_`` is True).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import joblib
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from common.arrays import Vector, unmasked
from common.column_faults import warn_of_inputs
from common.errors import CoprivError
from common.losses import LOSSES
from common.model import Model
from common.names import not_among
from learner.commands.given import (
    checked_numbers,
    checked_pair,
    dealt,
    given_away,
    known_table,
    seed_of,
    warn_of_order,
    warn_of_other_classes,
)
from learner.commands.in_memory import sections, train_in_memory
from learner.commands.runs import Run, simulate, train
from learner.planning.settings import is_elsewhere, load_study
from learner.results.coefficients import coefficients

# The share of the records that is given away as public where nobody says another.
SHARE = 1 / 3
# Arguments that a study's file takes the place of.
OF_RECORDS_HERE = ("epsilon", "public", "public_share", "settings", "guard", "random_state")


class _Federated(BaseEstimator):
    """What both estimators do."""

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        public: tuple[Any, Any] | None = None,
        public_share: float = SHARE,
        settings: Mapping[str, Any] | None = None,
        study: str | Path | None = None,
        out: str | Path | None = None,
        guard: bool = False,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.public = public
        self.public_share = public_share
        self.settings = settings
        self.study = study
        self.out = out
        self.guard = guard
        self.random_state = random_state

    def fit(self, X: Any = None, y: Any = None, *, owners: Any = None) -> Self:
        """Train one model over the owners.

        Args:
          X: Raw records, an array or a data frame with texts, numbers, dates and gaps.
          y: Their targets.
          owners: Whose each record is; None for one owner. With ``study``, X, y and owners are
            left out.

        Raises:
          ValueError: The records or settings cannot be used.

        Warns:
          DoubtWarning: Cells or columns may mean something else than is read.
        """
        try:
            if self.study is None and self.out is not None:
                raise ValueError("out is the run folder of a study; leave it out, or give study")
            if self.study is None:
                return self._fit_here(X, y, owners)
            self._refuse_unread({"X": X, "y": y, "owners": owners})
            return self._run_study()
        except CoprivError as error:
            raise ValueError(str(error)) from error

    def _refuse_unread(self, records: Mapping[str, Any]) -> None:
        """Refuse what somebody counts on and the study of a file does not look at."""
        defaults = type(self)().get_params(deep=False)
        given = {name: getattr(self, name) for name in OF_RECORDS_HERE}
        for name, value in (given | dict(records)).items():
            default = defaults.get(name)
            if value is not None and (default is None or value != default):
                raise ValueError(
                    f"{name} is not read where study is given: the study's file says it; leave "
                    f"{name} out, and change the file if it says otherwise"
                )

    def _run_study(self) -> Self:
        """Run the study of a file, with owners wherever it says."""
        study = Path(str(self.study))
        settings = load_study(study)
        # Before anything is spent: of numbers there are no classes, and the other way round.
        if settings.loss_has_classes != LOSSES[self._loss].has_classes():
            other = "FederatedClassifier" if settings.loss_has_classes else "FederatedRegressor"
            raise ValueError(f"{study}: its target is of another kind; use {other}")
        self.charged_ = is_elsewhere(settings)
        run = (train if self.charged_ else simulate)(study, out=self.out)
        self.run_: Run = run
        self.way_ = run.summary.way or run.summary.algorithm
        self._take(run.model, run.owners)
        return self

    def _fit_here(self, X: Any, y: Any, owners: Any) -> Self:
        """Train over shards in memory."""
        table, targets = self._checked(X, y, reset=True)
        warn_of_order(X, owners, name="owners")
        labels, names = dealt(owners, len(table))
        seed, kept = seed_of(self.random_state), np.ones(len(table), dtype=bool)
        if self.public is None:
            kept = ~given_away(
                self.public_share,
                labels=labels,
                names=names,
                targets=targets,
                num_columns=table.shape[1],
                seed=seed,
            )
            public = table[~kept].assign(**{not_among(table.columns, "y"): targets[~kept]})
        else:
            public = self._public()
        self.public_records_ = len(public)
        trained = train_in_memory(
            table[kept].assign(**{not_among(table.columns, "y"): targets[kept]}),
            public,
            labels=labels[kept],
            names=names,
            settings=sections(
                {} if self.settings is None else self.settings,
                epsilon=self.epsilon,
                loss=self._loss,
                theta_max=self._theta_max,
                positive=self._positive,
            ),
            guard=self.guard,
            seed=seed,
        )
        self.charged_ = False
        self.way_ = trained.way
        self._take(trained.model, trained.owners, keep_columns=True)
        return self

    def _public(self) -> pd.DataFrame:
        """The public records that were given, with their targets."""
        given = checked_pair(self.public, share=self.public_share, usual_share=SHARE)
        try:
            table, targets = self._checked(*given, reset=False)
        except ValueError as error:
            raise ValueError(f"public: {error}") from error
        return table.assign(**{not_among(table.columns, "y"): targets})

    def _take(self, model: Model, owners: pd.DataFrame, *, keep_columns: bool = False) -> None:
        """The attributes of a fitted estimator."""
        self.model_ = model
        self.owners_ = owners
        self.epsilon_spent_ = dict(zip(owners["name"], owners["epsilon_spent"], strict=True))
        if not keep_columns:
            names = [rule.name for rule in model.feature_map.columns]
            self.feature_names_in_ = np.array(names, dtype=object)
            self.n_features_in_ = len(names)
        found = {one.column: one for one in coefficients(model)}
        columns = self._columns()
        values = [found[name].value if name in found else 0.0 for name in columns]
        noise = [found[name].noise_standard_error if name in found else 0.0 for name in columns]
        self.intercept_ = coefficients(model)[-1].value
        self.coef_ = np.array(values)
        self.coef_noise_ = np.array(noise, dtype=np.float64)

    def _columns(self) -> list[str]:
        """The names of the input columns, in their order."""
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return [f"x{j}" for j in range(self.n_features_in_)]
        return [str(name) for name in names]

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[pd.DataFrame, Any]:
        """Raw records and targets, checked as scikit-learn checks them.

        Args:
          X: The records.
          y: Their targets.
          reset: Whether they say which columns and classes there are, or have those that are known.
        """
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        table = self._table(X, reset=reset)
        warn_of_order(X, y, name="y")
        given = column_or_1d(unmasked(_without_gaps(y)), warn=True)
        assert_all_finite(given, input_name="y")
        targets = self._targets(given, reset=reset)
        if len(targets) != len(table):
            raise ValueError(
                f"inconsistent numbers of samples: {len(table)} in X, {len(targets)} in y"
            )
        return table, targets

    def _table(self, X: Any, *, reset: bool = False) -> pd.DataFrame:
        """Raw records as a data frame with the names that the map knows."""
        X = known_table(X)
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if len(X) == 0:
                raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
            # Columns without texts for names are known by their places, as those of an array.
            return X.set_axis(self._columns(), axis=1).reset_index(drop=True)
        values = check_array(X, dtype=None, ensure_all_finite="allow-nan", estimator=self)
        validate_data(self, X, reset=reset, skip_check_array=True)
        table = pd.DataFrame(values, columns=self._columns())
        return table.infer_objects() if values.dtype == object else table

    def _margins(self, X: Any) -> Vector:
        """The margins of raw records; warns of what does not fit the feature map."""
        check_is_fitted(self)
        table = self._table(X)
        features = self.model_.feature_map.features_of(table, where="X")
        warn_of_inputs(table, self.model_.feature_map, where="X")
        return self.model_.margins(features)

    def __sklearn_tags__(self) -> Any:
        """Gaps and texts are welcome; the result has noise."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.non_deterministic = self.random_state is None
        return tags


class FederatedRegressor(RegressorMixin, _Federated):
    """A linear model of a number, trained over several owners under a privacy budget.

    Args:
      epsilon: Each owner's budget for the whole study.
      public: Public records (X, y), which the feature map and all that is chosen come from.
      public_share: Without ``public``: the share of the records that is given away as public. It
        is not trained on, and nothing protects it.
      settings: Sections of a study (docs/settings.md), such as
        ``{"algorithm": {"name": "moments"}, "model": {"loss": "huber", "delta": "auto"}}``. Where
        they have no ``model.theta_max`` it is 1 for numbers, 5 for classes.
      study: A STUDY.toml to run in place of records in memory.
      out: The run folder of that study.
      guard: Whether to refuse to fit what is forecast to be no better than the model of the public
        records. A ``study`` has its own setting.
      random_state: Seed of clocks and noise; None for new ones.

    Attributes:
      coef_: Change of the prediction for one more unit of each raw column (of a category: of its
        code), valid within the public bounds.
      coef_noise_: Standard errors of these from the owners' noise; NaN where unknown.
      intercept_: The prediction where all raw columns are 0.
      epsilon_spent_: What each owner spent, by its name.
      owners_: A data frame of the owners.
      charged_: Whether real budgets were charged.
      way_: How it was learnt, such as "newton": what ``algorithm.name = "auto"`` has chosen.
      model_: The model with its feature map.

    >>> import numpy as np
    >>> x = np.linspace(0, 1, 300)[:, None]
    >>> model = FederatedRegressor(epsilon=1e6, random_state=1,
    ...     settings={"algorithm": {"name": "moments"}}).fit(x, 3 * x[:, 0] + np.cos(99 * x[:, 0]))
    >>> model.predict([[0.5]]).round(1), model.charged_
    (array([1.5]), False)
    """

    _loss = "squared"
    _positive = None
    # Coefficients of standardised columns and targets.
    _theta_max = 1.0

    def predict(self, X: Any) -> Vector:
        """Predictions in the target's own units, shape (n,)."""
        margins = self._margins(X)
        return self.model_.outputs(margins)

    def _targets(self, y: Any, *, reset: bool) -> Any:
        del reset  # Numbers need no list of what they may be.
        if np.asarray(y).dtype.kind in "iufbc":
            return check_array(y, ensure_2d=False, dtype=np.float64)
        return checked_numbers(pd.Series(y, dtype=object))


def _without_gaps(y: Any) -> Any:
    """Targets, none of which may be missing: numpy and scikit-learn fail on None and pd.NA."""
    if not isinstance(y, list | tuple | pd.Series | np.ndarray) or getattr(y, "ndim", 1) != 1:
        return y
    gaps = int(pd.Series(y, dtype=object).isna().sum())
    if gaps:
        raise ValueError(
            f"Input y contains NaN or None: {gaps:,} of {len(y):,} records have no target; leave "
            "them out"
        )
    return y


class FederatedClassifier(ClassifierMixin, _Federated):
    """A linear model of two classes, by logistic loss; arguments as of :class:`FederatedRegressor`.

    Attributes:
      classes_: The two classes; probabilities are of the second.
    """

    _loss = "logistic"
    _positive = "1"
    # Log-odds: room for a class of one record in a hundred, and for columns that say much of it.
    _theta_max = 5.0

    def predict(self, X: Any) -> Any:
        """The class of each record, shape (n,)."""
        is_second = self._margins(X) > 0
        return self.classes_[is_second.astype(np.intp)]

    def decision_function(self, X: Any) -> Vector:
        """The margins, shape (n,)."""
        return self._margins(X)

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, shape (n, 2)."""
        check_is_fitted(self)
        if not self.model_.has_probabilities:
            raise ValueError(f"{self.model_.loss.name} loss knows no probabilities; use predict")
        of_second = self.model_.outputs(self._margins(X))
        return np.stack([1.0 - of_second, of_second], axis=1)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the records that is told right; warns of classes that are none of both."""
        check_is_fitted(self)
        warn_of_other_classes(y, self.classes_)
        return float(super().score(X, y, sample_weight))

    def _targets(self, y: Any, *, reset: bool) -> Any:
        if reset:
            self.classes_ = self._two_classes(y)
        stray = ~pd.Series(y).isin(self.classes_).to_numpy()
        if stray.any():
            first, second = self.classes_.tolist()
            raise ValueError(
                f"y has the class {y[stray].tolist()[0]!r}, expected {first!r} or {second!r}, as "
                "the owners' records have them"
            )
        if len(np.unique(y)) < 2:
            raise ValueError(f"y has the class {y.tolist()[0]!r} alone; give records of both")
        return (y == self.classes_[1]).astype(np.int64)

    def _two_classes(self, y: Any) -> Any:
        """The two classes of some targets."""
        check_classification_targets(y)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {classes}")
        if len(classes) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{type_of_target(y)}."
            )
        return classes

    def _take(self, model: Model, owners: pd.DataFrame, *, keep_columns: bool = False) -> None:
        super()._take(model, owners, keep_columns=keep_columns)
        if not keep_columns:
            self.classes_ = np.array([0, 1])

    def __sklearn_tags__(self) -> Any:
        """Two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def estimator_bytes(model: Model) -> bytes:
    """A fitted estimator as a joblib file; of classes, 1 is the map's positive value."""
    estimator = FederatedClassifier() if model.has_classes else FederatedRegressor()
    estimator.charged_ = False
    no_owners = pd.DataFrame({"name": [], "records": [], "epsilon": [], "epsilon_spent": []})
    estimator._take(model, no_owners)
    with io.BytesIO() as file:
        joblib.dump(estimator, file)
        return file.getvalue()
