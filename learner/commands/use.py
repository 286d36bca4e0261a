"""``copriv predict``, ``evaluate`` and ``export``: what a finished run is for."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import pandas as pd

from common.column_faults import warn_of_inputs, warn_of_marks, warn_of_misfits
from common.config import check_settings
from common.errors import DoubtWarning, InputError
from common.extras import needing_extras
from common.files import real_path, refuse_to_replace, write_or_refuse
from common.judging import Judged, judge, sample_of
from common.looking import look_at
from common.model import Model, read_model
from common.suggestions import check_columns
from common.tables import TableSource, open_source, placed, read_header, read_table
from common.totals import refuse_totals
from learner.results.run_folder import JOURNAL, parquet_bytes, settings_of_run, why_unfinished
from learner.results.summary import read_summary
from learner.results.validation_words import warn_if_worse

READ_BY_ALL = 0o004
ENTERED_BY_ALL = 0o001
ELSEWHERE = "give another path with --out"
# What a folder has that is or will be of another kind than a finished run.
OF_OTHERS = (JOURNAL, "forecast.json", "sweep.parquet")
# Forms in which predictions stand beside the inputs.
BESIDE_INPUTS = ("onnx", "sql")
# So begin the names of all that such a form computes on the way.
OWN = "copriv_"


def predict_table(
    run: Path, place: Mapping[str, str], out: Path, *, public: bool
) -> tuple[int, str]:
    """Write a raw table with the columns of the prediction.

    Args:
      run: The run's folder, or a model's file.
      place: Settings of the table, as :class:`~common.tables.TablePlace` has them.
      out: The file to write.
      public: Whether the model of the public records predicts, in place of the common one.

    Returns:
      (how many records it has, what the prediction 1 stands for; nothing for a number).

    Raises:
      InputError: The model or the table cannot be used, or the file cannot be written.

    Warns:
      DoubtWarning: Numbers or columns of the table may mean something else than is read, or the
        common model is worse than that of the public records, or its noise protected nobody.
    """
    write = _writer(out)
    source, data = _placed(place)
    if out.exists() and data.exists() and out.samefile(data):
        raise InputError(
            f"{out}: is the table itself, which is left as it is; give another path with --out"
        )
    _check_out(out)
    model = _chosen(run, public=public)
    _check_names(model, run)
    table = read_table(source, base=Path())
    _check_columns(model.feature_map.columns_needed[:-1], table, where=str(data))
    columns = model.predictions(table, where=str(data))
    for name in columns:
        if name in table.columns:
            raise InputError(f"{data}: already has a column {name!r}; rename it")
    content = write(table.assign(**columns))
    mode = _mode_of(model) or _mode_beside(source, data)
    write_or_refuse(out, content, mode=mode, cure=ELSEWHERE)
    warn_of_inputs(table, model.feature_map, where=str(data), source=source)
    return len(table), model.meaning_of_one


def _mode_of(model: Model) -> int | None:
    """The permissions of what is made of a model: for this user alone if nothing protects it."""
    return None if model.unprotected is None else 0o600


def _mode_beside(source: TableSource, data: Path) -> int | None:
    """The permissions of a copy of a table: for this user alone unless everybody may read it."""
    files = [part.file or data for part in open_source(source, base=Path()).parts]
    return None if all(map(_is_read_by_all, files)) else 0o600


def _is_read_by_all(file: Path) -> bool:
    """Whether every user of the machine may read a file, and come through the folders to it."""
    if not file.is_file() or not file.stat().st_mode & READ_BY_ALL:
        return False
    return all(folder.stat().st_mode & ENTERED_BY_ALL for folder in file.resolve().parents)


def _check_out(out: Path) -> None:
    """Refuse to write over a file without predictions, such as another table."""
    if not out.is_file() or not out.stat().st_size:
        return
    try:
        names = read_header(TableSource(path=out.absolute()), base=Path())
    except InputError:
        names = []
    if "prediction" not in names:
        raise InputError(
            f"{out}: already exists and has no column 'prediction', so it is left as it is; give "
            "another path with --out"
        )


def _model_of(run: Path) -> Model:
    """The model of a run folder, or of a file."""
    # os.path says no of a path that is too long, where Path raises.
    has_none = not any(os.path.exists(run / name) for name in ("model.json", "summary.json"))
    if has_none and any(os.path.isfile(run / name) for name in OF_OTHERS):
        raise InputError(why_unfinished(run))
    return read_model(run)


def _chosen(run: Path, *, public: bool) -> Model:
    """The common model of a run, or that of its public records."""
    model = _model_of(run)
    if public:
        return model.of_public_records(where=str(run))
    warn_if_insecure(model, where=str(run))
    # A model's file says nothing of it, nor does what is damaged.
    with contextlib.suppress(InputError):
        warn_if_worse(read_summary(run), cure="--public takes that one")
    return model


def warn_if_insecure(model: Model, *, where: str) -> None:
    """Say that nothing protects whose records a model was made from.

    Args:
      model: The model.
      where: What the sentence calls it.

    Warns:
      DoubtWarning: Its noise came from a seed.
    """
    if model.insecure_noise:
        warnings.warn(
            f"{where}: INSECURE: the noise of this model came from a seed and protected nobody",
            DoubtWarning,
            stacklevel=3,
        )


def _placed(place: Mapping[str, str]) -> tuple[TableSource, Path]:
    """Where a table is, and what a sentence calls it."""
    source = check_settings(TableSource, place, where="--data")
    return source, Path(place.get("path") or place["database"])


def _check_columns(needed: Sequence[str], table: pd.DataFrame, *, where: str) -> None:
    """Refuse a table without a column that the model needs, such as an owner's with other names."""
    try:
        check_columns(needed, map(str, table.columns), where=where)
    except InputError as error:
        raise InputError(
            f"{error} (rename of an OWNER.toml is not applied here: give a table with the study's "
            "own names)"
        ) from None


def _writer(out: Path) -> Callable[[pd.DataFrame], bytes]:
    """What makes the bytes of a table, by the file's name."""
    if out.name.endswith(".csv"):
        return lambda table: table.to_csv(index=False).encode("utf-8", "surrogatepass")
    if out.name.endswith((".parquet", ".pq")):
        return parquet_bytes
    raise InputError(f"--out {out}: expected a file ending in .csv or .parquet")


def evaluate_model(run: Path, place: Mapping[str, str]) -> Judged:
    """The quality of a run's model on a table, beside that of the public records' model.

    Args:
      run: The run's folder, or a model's file.
      place: Settings of the table, as for :func:`predict_table`.

    Raises:
      InputError: The model or the table cannot be used, or the table has a row of totals.

    Warns:
      DoubtWarning: It is no run's model, but one that an owner adapted to its own records; or its
        noise protected nobody; or the study names this very table; or numbers or columns of the
        table may mean something else than is read.
    """
    model = _model_of(run)
    warn_if_insecure(model, where=str(run))
    if model.personal:
        warnings.warn(
            f"{run}: what is called the common model here is the one that {model.unprotected} "
            "adapted to its own records",
            DoubtWarning,
            stacklevel=2,
        )
    source, data = _placed(place)
    table = read_table(source, base=Path())
    if model.feature_map.target_name in table.columns:
        _check_columns(model.feature_map.columns_needed, table, where=str(data))
    _warn_if_learnt_from(source, run, where=str(data))
    return judge_table(model, table, where=str(data), source=source)


def _warn_if_learnt_from(source: TableSource, run: Path, *, where: str) -> None:
    """Warn of a table that the study of a run folder took records from."""
    # A model's file has no study beside it, and what a stranger's folder has may be none.
    with contextlib.suppress(InputError):
        settings = settings_of_run(run)
        named = [settings.features.public, *(entry.data for entry in settings.owners)]
        if _records_of(source) in {
            _records_of(placed(each or TableSource(), settings.data)) for each in named
        }:
            warnings.warn(
                f"{where}: the study of {run} has records of this table, so its models look better "
                "here than they are; give records that neither the owners nor the public table "
                "have",
                DoubtWarning,
                stacklevel=3,
            )


def _records_of(source: TableSource) -> tuple[object, ...]:
    """Where records are, however they are read."""
    path = source.path and real_path(source.path.absolute())
    return path, source.database, source.query


def judge_table(
    model: Model, table: pd.DataFrame, *, where: str, source: TableSource | None = None
) -> Judged:
    """The quality of a model on a raw table.

    Args:
      model: The model.
      table: The table.
      where: What sentences call it.
      source: Where it was read; None for a data frame.

    Raises:
      InputError: A column is missing, a row is one of totals, or no target can be read.

    Warns:
      DoubtWarning: Numbers or columns of the table may mean something else than is read.
    """
    needed = list(model.feature_map.columns_needed)
    if model.feature_map.target_name in table.columns:
        check_columns(needed, map(str, table.columns), where=where)
        refuse_totals(look_at(table[needed]), where=where)
    # First: where nothing of the target is read, this may be why.
    warn_of_marks(table, model.feature_map, source=source)
    sample = sample_of(model, table, where=where)
    warn_of_misfits({where: sample.table}, model.feature_map)
    return judge(sample, sample.margins())


def export_model(run: Path, form: str, out: Path, *, public: bool) -> None:
    """Write a run's model with its whole pipeline in another form.

    Args:
      run: The run's folder, or a model's file.
      form: The form.
      out: The file to write.
      public: As for :func:`predict_table`.

    Raises:
      InputError: The model cannot be used, a package is missing, or the file is another one, is
        named as one of another form or cannot be written.

    Warns:
      DoubtWarning: The common model is worse than that of the public records, or its noise
        protected nobody.
    """
    refuse_to_replace(out, mark=MARKS[form], what=f"model exported to {form}")
    _check_ending(out, form)
    model = _chosen(run, public=public)
    if form in BESIDE_INPUTS:
        _check_names(model, run, own=OWN)
        _check_named(model, run, form)
    if form == "sql":
        _check_writable(model, run)
    with needing_extras(f"--to {form}"):
        module, writer = EXPORTS[form]
        content = getattr(import_module(module), writer)(model)
    write_or_refuse(out, content, mode=_mode_of(model), cure=ELSEWHERE)


def _check_ending(out: Path, form: str) -> None:
    """Refuse a file whose name says that it is of another form."""
    meant = next((other for other, end in ENDINGS.items() if out.name.lower().endswith(end)), form)
    if meant != form:
        raise InputError(
            f"--out {out}: is named as --to {meant} is, and --to {form} is typed; give --to "
            f"{meant}, or a file ending in {ENDINGS[form]}"
        )


def _check_names(model: Model, run: Path, *, own: str | None = None) -> None:
    """Refuse a model with an input named as a column that a prediction adds, or so beginning."""
    for name in (rule.name for rule in model.feature_map.columns):
        if name in model.names_added or (own is not None and name.lower().startswith(own)):
            raise InputError(
                f"{run}: the model's own input {name!r} has the name of a column that a prediction "
                "adds; rename it in all tables and train again (copriv export --to json and "
                "--to sklearn take it as it is)"
            )


def _check_named(model: Model, run: Path, form: str) -> None:
    """Refuse a model with an input that has no name, which neither graphs nor queries can have."""
    if not all(rule.name for rule in model.feature_map.columns):
        raise InputError(
            f"{run}: an input of the model has an empty name, and --to {form} needs one for each; "
            "name its column in all tables and train again (copriv export --to json and --to "
            "sklearn take it as it is)"
        )


def _check_writable(model: Model, run: Path) -> None:
    """Refuse a model with an input whose name no query can have, or would be read on as one."""
    from learner.results.export_sql import UNWRITABLE  # noqa: PLC0415 (as the others)

    for name in (rule.name for rule in model.feature_map.columns):
        if UNWRITABLE & set(name):
            raise InputError(
                f"{run}: the model's own input {name!r} has a backslash or the character 0 in its "
                "name, which some databases take for a sign of their own; rename it in all tables "
                "and train again, or export to another form"
            )


# What writes each form that a model can be exported to; its module may need an extra.
EXPORTS = {
    "onnx": ("learner.results.export_onnx", "onnx_bytes"),
    "sklearn": ("learner.commands.estimators", "estimator_bytes"),
    "json": ("learner.results.export_json", "json_text"),
    "sql": ("learner.results.export_sql", "sql_query"),
}

# How the name of a file of each form ends; other endings say nothing.
ENDINGS = {"onnx": ".onnx", "sklearn": ".joblib", "json": ".json", "sql": ".sql"}

# What stands in the first bytes of each.
MARKS = {
    "onnx": b"\x06copriv",
    "sklearn": b"learner.commands.estimators",
    "json": b'"copriv-pipeline/',
    "sql": b"-- Predicts ",
}
