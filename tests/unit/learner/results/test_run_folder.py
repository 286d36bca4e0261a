"""What a run leaves can be loaded again from anywhere, and is complete even when it is empty."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tomli_w
from matplotlib.text import Text

from common.cells import written
from common.columns import parse_numbers
from common.config import load_settings
from common.errors import InputError
from learner.planning.guard import NotBegunError
from learner.planning.settings import StudySettings
from learner.results.plots import fitness_figure, ticks_figure
from learner.results.run_folder import (
    Trace,
    create_run_folder,
    new_run_folder,
    run_of,
    why_unfinished,
    write_settings,
    write_table,
)


def write_study(folder, **changes):
    settings = {
        "name": "small",
        "features": {"map": "features.json"},
        "model": {"theta_max": 1.0},
        "privacy": {"epsilon": 1},
        "owners": [{"name": "a", "data": {"path": "a.csv"}}],
    } | changes
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(settings))
    return path


def test_cells_of_several_kinds_are_texts_that_read_the_same(tmp_path):
    """SQLite keeps numbers, texts and bytes in one column."""
    cells = [36, "7.5", b"1.5", None, 2.25, "n/a"] * 2
    table = pd.DataFrame({"mixed": pd.Series(cells, dtype=object), "n": range(12)})
    write_table(tmp_path / "t.parquet", table)
    stored = pd.read_parquet(tmp_path / "t.parquet")
    np.testing.assert_array_equal(parse_numbers(stored["mixed"]), parse_numbers(table["mixed"]))
    assert stored["n"].dtype == np.int64


def test_maps_of_a_database_are_written_as_in_csv(tmp_path):
    cells = pd.Series([[("k", 1)], None, []], dtype=object)
    write_table(tmp_path / "t.parquet", pd.DataFrame({"map": cells}))
    stored = pd.read_parquet(tmp_path / "t.parquet")["map"]
    assert [stored[0], stored[2]] == ["[('k', 1)]", "[]"]
    assert stored.isna().tolist() == [False, True, False]


def test_intervals_of_a_database_are_texts_that_read_the_same(tmp_path):
    """Parquet has no type for months, days and nanoseconds."""
    days = pa.array(
        [pa.MonthDayNano([0, n, 0]) for n in (1, 2)] + [None], pa.month_day_nano_interval()
    )
    table = pa.table({"stay": days}).to_pandas()
    write_table(tmp_path / "t.parquet", table)
    stored = pd.read_parquet(tmp_path / "t.parquet")
    assert list(stored["stay"].map(written)) == list(table["stay"].map(written))
    assert stored["stay"].nunique() == 2


def test_paths_are_made_absolute_and_nothing_else(tmp_path):
    """A column or an owner may be called as a path's setting is."""
    here = tmp_path / "here"
    here.mkdir()
    where = {"key": "a", "path": "b", "map": 7, "ca": "c", "certificate": 1, "token": "file:d"}
    owners = [
        {"name": "map", "data": {"path": "a.csv", "where": where}, "token": "file:one"},
        {"name": "key", "address": "host:1", "token": "env:KEY"},
    ]
    path = write_study(
        here,
        owners=owners,
        forecast={"records": {"map": 3}, "groups": {"key": "a"}},
        tls={"ca": "ca.pem", "certificate": "/own.pem", "key": "../key.pem"},
        network={"token": "file:all"},
    )
    given = load_settings(StudySettings, path)
    run = tmp_path / "run"
    run.mkdir()
    write_settings(run / "study.toml", given, base=here)
    again = load_settings(StudySettings, run / "study.toml")
    data = again.owners[0].data
    assert data.where == where
    assert data.path == here / "a.csv"
    assert [entry.token for entry in again.owners] == [f"file:{here / 'one'}", "env:KEY"]
    assert again.network.token == f"file:{here / 'all'}"
    assert again.features.map == here / "features.json"
    assert [again.tls.ca, again.tls.certificate, again.tls.key] == [
        *(here / "ca.pem", Path("/own.pem"), tmp_path / "key.pem")
    ]
    assert again.forecast == given.forecast
    # The same study goes on there, from its own file too.
    (run / "journal.sqlite").touch()
    assert run_of(run, None, base=Path()) == again
    assert run_of(run, given, base=here) == again
    changed = {"seed": 9, "privacy": given.privacy.model_copy(update={"epsilon": "7"})}
    with pytest.raises(InputError, match=r"with other settings \(privacy\.epsilon, seed\); set"):
        run_of(run, given.model_copy(update=changed), base=here)


@pytest.mark.parametrize("name", ["it's.csv", 'a "b".csv', "a\\b.csv", "ä b.csv"])
def test_a_table_may_have_any_name(tmp_path, name):
    path = write_study(tmp_path)
    settings = load_settings(StudySettings, path, values={"data.path": tmp_path / name})
    assert settings.data.path == tmp_path / name
    write_settings(tmp_path / "again.toml", settings, base=tmp_path)
    assert load_settings(StudySettings, tmp_path / "again.toml").data.path == tmp_path / name


def test_a_trace_without_a_tick_has_its_columns_and_its_pictures(tmp_path):
    trace = Trace(["a", "b"])
    assert trace.central_models(3).shape == (0, 3)
    for psi in (None, np.empty(0)):
        table = trace.table(psi)
        table.to_parquet(tmp_path / "trace.parquet", index=False)
        kept = pd.read_parquet(tmp_path / "trace.parquet")
        assert list(kept.columns[:6]) == ["k", "time", "owner", "sequence", "wall_seconds", "theta"]
        assert ("relative_fitness" in kept.columns) == (psi is not None)
    assert ticks_figure(table, trace.names).axes
    for public in (None, 0.25):
        drawn = fitness_figure(table, [("a", 0.5)], public)
        assert ("public model" in _named(drawn)) == (public is not None)


def _named(figure):
    """The names of a picture's lines, from above to below as they are drawn."""
    figure.draw_without_rendering()
    texts = figure.findobj(lambda artist: isinstance(artist, Text) and artist.get_fontsize() == 8)
    boxes = [(text.get_window_extent(), text.get_text()) for text in texts if text.get_text()]
    assert not any(a.overlaps(b) for (a, _), (b, _) in combinations(boxes, 2))
    return [name for box, name in sorted(boxes, key=lambda entry: -entry[0].y0)]


@pytest.mark.parametrize("owners", [2, 7])
def test_names_of_lines_that_end_together_stand_apart_from_the_worst_to_the_best(owners):
    table = pd.DataFrame({"k": [1, 2], "relative_fitness": [0.1, 0.01]})
    drawn = fitness_figure(table, [(str(k), 0.5 + k / 1e6) for k in range(owners)], 0.500003)
    between = ["alone: the middle of 7,\nand eight in ten"] if owners == 7 else []
    beside = between or ["alone: 1", "alone: 0"]
    assert sorted(_named(drawn)) == sorted([*beside, "public model", "together"])
    assert _named(drawn)[-1] == "together"


@pytest.mark.parametrize(
    ("kind", "name"), [("forecast", "forecast.json"), ("sweep", "sweep.parquet")]
)
def test_a_folder_of_something_else_than_a_run_says_what_it_holds(tmp_path, kind, name):
    (tmp_path / name).touch()
    told = why_unfinished(tmp_path)
    assert f"this folder holds a {kind} and no run; give the folder of a run, or op" in told
    assert told.endswith(f"open {kind}.html there")


def test_a_folder_of_runs_of_each_owner_says_where_they_are(tmp_path):
    (tmp_path / "each-learns.json").touch()
    told = why_unfinished(tmp_path)
    assert told.endswith(
        "holds a run of each owner, in folders of their names; give one of these, or several"
    )


def test_runs_that_begin_at_once_have_each_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # As if the other began between the look and the making.
    monkeypatch.setattr(Path, "exists", lambda *_, **__: False)
    folders = [create_run_folder(None, name="spring") for _ in range(3)]
    assert len({*folders}) == 3
    assert all(folder.is_dir() for folder in folders)


def test_a_folder_of_runs_that_leads_nowhere_is_refused(tmp_path, monkeypatch):
    """A link to a disk that is not mounted: another name was looked for without an end."""
    monkeypatch.chdir(tmp_path)
    Path("runs").symlink_to(tmp_path / "disk" / "runs")
    with pytest.raises(InputError, match=r"^runs/small-.*: the run folder cannot be made \("):
        create_run_folder(None, name="small")


@pytest.mark.parametrize("others", [False, True])
def test_a_run_that_was_refused_leaves_no_folder_of_runs_that_it_made(
    tmp_path, monkeypatch, others
):
    monkeypatch.chdir(tmp_path)
    if others:
        (tmp_path / "runs").mkdir()
    with pytest.raises(NotBegunError), new_run_folder(None, name="a"):
        raise NotBegunError("refused")
    assert list(tmp_path.rglob("*")) == [tmp_path / "runs"] * others
