"""Studies and runs from Python: what the command line types, as functions, and a finished run."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console

from common.column_faults import warn_of_inputs
from common.command import plain_console
from common.config import Overrides
from common.errors import InputError
from common.extras import needing_extras
from common.files import open_regular
from common.judging import Judged
from common.model import Model, read_model
from learner.commands.use import judge_table, warn_if_insecure
from learner.planning.grid import experiment_of, grid_of
from learner.planning.settings import load_study
from learner.results.coefficients import coefficients
from learner.results.summary import Summary, read_summary
from learner.results.validation_words import warn_if_worse
from learner.results.verdict_words import as_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A finished run: its folder, what it says of itself, and its model.

    >>> Run.load("nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    common.errors.InputError: nowhere: there is no such folder; give the folder of a finished run
    """

    folder: Path
    summary: Summary

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """The run of a folder.

        Raises:
          InputError: It holds no finished run, or a damaged one.
        """
        _check_path("folder", folder, "the folder of a finished run")
        return cls(folder=Path(folder), summary=read_summary(Path(folder)))

    @cached_property
    def model(self) -> Model:
        """The model with its feature map."""
        return read_model(self.folder)

    @cached_property
    def owners(self) -> pd.DataFrame:
        """One row for each owner: records, epsilon, what it spent, and what a simulation knows."""
        rows = [owner.model_dump(exclude_none=True) for owner in self.summary.owners]
        table = pd.DataFrame(rows)
        for column in ("epsilon", "epsilon_spent", "epsilon_for_validation"):
            table[column] = [as_number(text) for text in table[column]]
        return table

    @cached_property
    def trace(self) -> pd.DataFrame:
        """One row for each response: k, time, owner, sequence, wall seconds, model.

        Raises:
          InputError: The folder holds no trace that can be read.
        """
        path = self.folder / "trace.parquet"
        try:
            with open_regular(path) as file:
                return pd.read_parquet(file)
        except Exception as error:  # Libraries have many names for a file that is no table.
            raise InputError(
                f"{path}: cannot be read as a trace ({type(error).__name__}); give the folder of a "
                "finished run, or restore it from a copy"
            ) from None

    @property
    def coefficients(self) -> pd.DataFrame:
        """The model in raw units: column, kind, value, noise_standard_error; the intercept last."""
        return pd.DataFrame([asdict(one) for one in coefficients(self.model)])

    def predict(self, table: pd.DataFrame, *, public: bool = False) -> pd.DataFrame:
        """What the model predicts for raw records, with the index of the table.

        Args:
          table: The records.
          public: Whether the model of the public records predicts, in place of the common one.

        Raises:
          InputError: It is no data frame, a column is missing, or there were no public records.

        Warns:
          DoubtWarning: A column does not fit the feature map, such as numbers in another form; or
            the common model is worse than that of the public records; or its noise protected
            nobody.
        """
        _check_frame(table)
        model = self.model.of_public_records(where="public=True") if public else self.model
        predicted = model.predictions(table, where="table")
        if not public:
            warn_if_insecure(model, where=str(self.folder))
            warn_if_worse(self.summary, cure="predict(table, public=True) takes that one")
        warn_of_inputs(table, self.model.feature_map, where="table")
        return pd.DataFrame(predicted, index=table.index)

    def evaluate(self, table: pd.DataFrame) -> Judged:
        """How good the model is on raw records with a target, beside the public records' model.

        Raises:
          InputError: It is no data frame, a column is missing, a row is one of totals, or no
            record has a readable target.

        Warns:
          DoubtWarning: As for :meth:`predict`, and of the target.
        """
        _check_frame(table)
        warn_if_insecure(self.model, where=str(self.folder))
        return judge_table(self.model, table, where="table")

    def plot(self) -> Figure:
        """Relative fitness against communications; of a trained run, who spoke when.

        Raises:
          InputError: matplotlib is not installed; it comes with ``copriv[lab]``.
        """
        with needing_extras("plot()"):
            from learner.results.plots import run_figure  # noqa: PLC0415 (an extra)

        return run_figure(self.trace, self.summary)


def _check_typed(study: object, data: object) -> None:
    """Refuse what names no study's file, or no table's."""
    _check_path("study", study, "the path of STUDY.toml")
    if data is not None:
        _check_path("data", data, "the path of a table; write it to a file first")


def _check_path(name: str, given: object, expected: str) -> None:
    """Refuse what is no path."""
    if not isinstance(given, str | PathLike):
        raise InputError(f"{name}: got a {type(given).__name__}, expected {expected}")


def _check_frame(table: object) -> None:
    """Refuse what is no table, such as a file's name."""
    if not isinstance(table, pd.DataFrame):
        kind = type(table)
        known = kind.__name__
        if kind.__module__ != "builtins":
            known = f"{kind.__module__.partition('.')[0]}.{known}"
        cure = "read the file first, as with pandas.read_csv"
        if hasattr(table, "to_pandas"):
            cure = "its to_pandas() makes one"
        elif isinstance(table, pd.Series):
            cure = "its to_frame() makes one of a column, to_frame().T of a row"
        raise InputError(f"table: got a {known}, expected a pandas data frame; {cure}")


def simulate(
    study: str | Path,
    *,
    out: str | Path | None = None,
    overrides: Overrides = (),
    data: str | Path | None = None,
    insecure_noise_seed: int | None = None,
    console: Console | None = None,
) -> Run:
    """What ``copriv simulate STUDY.toml`` does: owners as processes here, and the finished run.

    Args:
      study: STUDY.toml.
      out: The run folder; None for runs/NAME-DATE-TIME.
      overrides: Changes of settings, such as ``{"privacy.epsilon": 1}``.
      data: The table to use instead of data.path.
      insecure_noise_seed: Repeatable noise that protects nobody.
      console: Where to print; None for nowhere.

    Raises:
      CoprivError: Bad input, the study's guard stops it, or an owner does not start.
    """
    _check_typed(study, data)
    from learner.commands.study import run_simulation  # noqa: PLC0415 (import learner stays quick)
    from learner.network.processes import Hosting  # noqa: PLC0415 (as above)
    from learner.network.warm_parent import warm_parent  # noqa: PLC0415 (as above)

    with warm_parent() as parent:
        folder = run_simulation(
            load_study(study, overrides=overrides, data=data),
            Hosting(parent=parent, insecure_noise_seed=insecure_noise_seed),
            base=Path(study).parent,
            out=None if out is None else Path(out),
            console=console or _nowhere(),
        )
    return Run.load(folder)


def train(
    study: str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    overrides: Overrides = (),
    data: str | Path | None = None,
    insecure: bool = False,
    console: Console | None = None,
) -> Run:
    """What ``copriv train STUDY.toml`` does: owners that serve elsewhere, whose budgets it spends.

    Args:
      study: STUDY.toml; None continues ``resume``.
      out: The run folder; None for runs/NAME-DATE-TIME.
      resume: The folder of a run to continue.
      overrides: As for :func:`simulate`.
      data: As for :func:`simulate`.
      insecure: Plain text to owners on other machines.
      console: Where to print; None for nowhere.

    Raises:
      CoprivError: Bad input, the study's guard stops it, or an owner refuses or is not reached.
    """
    from learner.commands.study import run_training  # noqa: PLC0415 (import learner stays quick)

    if study is not None:
        _check_typed(study, data)
    settings = None if study is None else load_study(study, overrides=overrides, data=data)
    if settings is None and resume is None:
        raise InputError("train: give a study, or resume = the folder of a run")
    folder = run_training(
        settings,
        base=Path() if study is None else Path(study).parent,
        out=None if out is None else Path(out),
        resume=None if resume is None else Path(resume),
        insecure=insecure,
        console=console or _nowhere(),
    )
    return Run.load(folder)


def forecast(
    study: str | Path,
    *,
    public: str | Path | None = None,
    out: str | Path | None = None,
    overrides: Overrides = (),
    data: str | Path | None = None,
    compare: Sequence[str] = (),
    quick: bool = True,
    jobs: int = -1,
    console: Console | None = None,
) -> dict[str, Any]:
    """What ``copriv forecast STUDY.toml`` says, from public records alone: what forecast.json has.

    Args:
      study: STUDY.toml.
      public: A table of public records instead of features.public.
      out: The forecast's folder; None for runs/NAME-forecast-DATE-TIME.
      overrides: As for :func:`simulate`.
      data: As for :func:`simulate`.
      compare: Names of other algorithms.
      quick: Only the verdict, without curves.
      jobs: Processes; -1 for one on each core.
      console: Where to print; None for nowhere.

    Raises:
      InputError: The settings or the public records do not allow a forecast.
    """
    _check_typed(study, data)
    from learner.commands.forecast import candidate_of, run_forecast  # noqa: PLC0415 (as above)
    from learner.simulated.sweeps import Workers  # noqa: PLC0415 (as above)

    settings = load_study(study, overrides=overrides, data=data)
    public = None if public is None else Path(public)
    folder = run_forecast(
        candidate_of(settings, base=Path(study).parent, public=public),
        out=None if out is None else Path(out),
        compare=[compare] if isinstance(compare, str) else compare,
        curves=not quick,
        workers=Workers(jobs=jobs),
        console=console or _nowhere(),
    )
    verdict: dict[str, Any] = json.loads((folder / "forecast.json").read_text(encoding="utf-8"))
    return verdict


def sweep(
    study: str | Path,
    grid: Mapping[str, Iterable[object]],
    *,
    seeds: int = 20,
    out: str | Path | None = None,
    overrides: Overrides = (),
    data: str | Path | None = None,
    jobs: int = -1,
    cluster: str | None = None,
    console: Console | None = None,
) -> pd.DataFrame:
    """What ``copriv sweep STUDY.toml`` computes: one row for each point of a grid and seed.

    Args:
      study: STUDY.toml.
      grid: Values of settings by dotted keys, such as ``{"privacy.epsilon": [1, 10]}``; the key
        ``owners`` says how many of the study's owners take part.
      seeds: Runs at each point, at the seeds 1, 2, 3, ...
      out: The folder; None for runs/NAME-sweep-DATE-TIME.
      overrides: As for :func:`simulate`.
      data: As for :func:`simulate`.
      jobs: Processes; -1 for one on each core.
      cluster: Address of a Dask scheduler that computes instead.
      console: Where to print; None for nowhere.

    Raises:
      InputError: The settings, the grid or the records cannot be used.
    """
    _check_typed(study, data)
    from learner.commands.sweep import run_study_sweep  # noqa: PLC0415 (as above)
    from learner.simulated.sweeps import Workers  # noqa: PLC0415 (as above)

    folder = run_study_sweep(
        experiment_of(Path(study), grid_of(grid), seeds=seeds, overrides=overrides, data=data),
        out=None if out is None else Path(out),
        workers=Workers(jobs=jobs, cluster=cluster),
        console=console or _nowhere(),
    )
    return pd.read_parquet(folder / "sweep.parquet")


def _nowhere() -> Console:
    return plain_console(file=io.StringIO(), quiet=True)
