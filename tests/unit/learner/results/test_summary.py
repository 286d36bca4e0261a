"""A summary comes back as it was written, and a damaged one is one sentence."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import InputError
from learner.commands.runs import Run
from learner.results.card import card_text
from learner.results.report import choice_sentences, sentences
from learner.results.report_page import write_report
from learner.results.summary import (
    Evaluated,
    OwnerSummary,
    QualitySummary,
    StepSummary,
    Summary,
    read_summary,
)
from learner.results.verdict_words import verdict_lines

SCHEMA = json.loads((Path(__file__).parents[4] / "learner/summary.schema.json").read_text())


def owner(name, **changes):
    return {
        "name": name,
        "records": 10,
        "epsilon": "1/3",
        "responses": 2,
        "noise_scale": 0.5,
        "epsilon_spent": "1/3",
        "responses_left": 0,
    } | changes


def table(**changes):
    told = {
        "study": "small",
        "study_id": "small-1",
        "algorithm": "asynchronous",
        "loss": "squared",
        "horizon": 4,
        "seed": 1,
        "insecure_noise": False,
        "profile": "published",
        "split": "horizon",
        "initiative": "learner",
        "clocks": "given",
        "correction": "none",
        "groups": [],
        "average": "last",
        "horizon_chosen": "given",
        "clip": None,
        "clip_chosen": "given",
        "step": {"chosen": "given", "rho": 0.1},
        "versions": {"copriv": "0.1.0"},
        "wall_seconds": 1.5,
        "ticks": 4,
        "queries_per_second": 3.0,
        "theta": [0.1, -0.2],
        "owners": [owner("a"), owner("b")],
    }
    return told | changes


EVALUATED = Evaluated(
    fitness=1.0,
    fitness_optimal=1.0,
    relative_fitness=0.1,
    relative_fitness_noiseless=0.1,
    relative_fitness_alone=(0.2, 0.3),
)


QUALITY = {
    "measure": "rmse",
    "target": "stay",
    "on": "public",
    "records": 100,
    "common": {"value": 8.0, "low": 7.0, "high": 9.0},
    "guess": 8.6,
    "intervals": "bootstrap",
}


FORECAST = {
    "way": "ticks",
    "ways": {"ticks": {"forecast_relative_fitness": 0.0321, "low": 0.02, "high": 0.04}},
    "forecast_relative_fitness_public": 0.0789,
}
UNTOLD = [
    {"way": "x"},
    {"way": None},
    {"ways": {}},
    {"ways": {"newton": FORECAST["ways"]["ticks"]}},
    {"forecast_relative_fitness_public": None},
]
ENDLESS = [
    {"wall_seconds": math.inf},
    {"relative_fitness": math.inf, "fitness": 1.0, "fitness_optimal": 1.0},
    {"owners": [owner("a", relative_fitness_alone=math.inf, gains=False)]},
    {"theta": [math.nan]},
    {"quality": QUALITY | {"guess": math.inf}},
]


def kept(folder, text):
    (folder / "summary.json").write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def test_what_is_written_is_read_and_written_the_same(tmp_path):
    plain = Summary.model_validate(table())
    for summary in (
        plain,
        plain.with_learner("b"),
        plain.with_learner("b").with_evaluation(EVALUATED),
    ):
        text = json.dumps(summary.as_json(), indent=2)
        again = read_summary(kept(tmp_path, text))
        assert json.dumps(again.as_json(), indent=2) == text


def test_the_record_and_the_schema_name_the_same_keys():
    parts = [
        (Summary, SCHEMA),
        (OwnerSummary, SCHEMA["properties"]["owners"]["items"]),
        (StepSummary, SCHEMA["properties"]["step"]),
    ]
    for record, schema in parts:
        fields = record.model_fields
        assert set(fields) == set(schema["properties"])
        required = {name for name, field in fields.items() if field.is_required()}
        assert required == set(schema["required"])


def test_what_was_lost_in_a_crash_is_said(tmp_path):
    owners = [owner("a", responses=5, responses_lost=3), owner("b", responses=5)]
    summary = Summary.model_validate(table(ticks=7, owners=owners))
    assert "Charged, but lost in a crash: a (3)." in write_report(tmp_path, summary).read_text()


def test_of_many_owners_that_were_never_asked_or_did_not_answer_all_the_first_are_named(
    make_model, tmp_path
):
    idle = {"responses": 0, "epsilon_spent": "0"}
    owners = [owner(f"idle-{i}", **idle) for i in range(500)]
    owners += [owner(f"away-{i}", responses_left=1, responses_lost=1) for i in range(500)]
    summary = Summary.model_validate(table(owners=owners, validation_missing={}))
    line = "Never asked, so they promised and spent nothing: idle-0, "
    (printed,) = (each for each in sentences(summary) if each.startswith(line))
    assert printed.endswith("idle-5 and 494 more.")
    assert printed in write_report(tmp_path, summary).read_text()
    card = card_text(summary, make_model())
    assert f"- {printed}" in card
    assert card.count("away-5 and 494 more.") == 2


def test_who_counts_less_than_by_its_records_is_said():
    owners = [owner("a", records=900), owner("b", records=100)]
    told = Summary.model_validate(table(owners=owners, counted=[0.98, 0.02]))
    sentence = "that of b, which has 10.00% of the records, for 2.00%."
    assert sentence in choice_sentences(told)[-1]
    by_records = Summary.model_validate(table(owners=owners))
    assert "counts by its noise" not in " ".join(choice_sentences(by_records))
    nobody = [owner("a", records=0), owner("b", records=0)]
    for changes in ({"owners": nobody}, {"counted": [1.0]}, {"owners": []}):
        odd = Summary.model_validate(table(owners=owners, counted=[0.9, 0.1]) | changes)
        choice_sentences(odd)


def test_a_run_without_noise_that_was_not_made_is_in_no_sentence():
    silent = replace(EVALUATED, relative_fitness_noiseless=None)
    summary = Summary.model_validate(table()).with_evaluation(silent)
    assert summary.is_evaluated
    assert "relative_fitness_noiseless" not in summary.as_json()
    assert "without noise" not in " ".join(sentences(summary))
    assert "without noise 0.1" in " ".join(sentences(summary.with_evaluation(EVALUATED)))


def test_what_does_not_apply_of_the_quality_is_left_out():
    """After ``train`` no owner's own model is known, and there need be no public one."""
    quality = QualitySummary.model_validate(QUALITY | {"public": None, "alone": None})
    summary = Summary.model_validate(table())
    told = summary.model_copy(update={"quality": quality}).as_json()["quality"]
    assert not {"public", "alone"} & set(told)
    unread = quality.model_copy(update={"at_home": {"common": (1.0, None)}})
    told = summary.model_copy(update={"quality": unread}).as_json()["quality"]
    assert told["at_home"] == {"common": (1.0, None)}


@pytest.mark.parametrize(("own", "gains"), [(None, [True, True]), ("b", [False, True])])
def test_nobody_gains_from_a_model_that_stays_with_another(own, gains):
    summary = Summary.model_validate(table())
    summary = summary if own is None else summary.with_learner(own)
    told = summary.with_evaluation(EVALUATED).as_json()
    assert [owner["gains"] for owner in told["owners"]] == gains


@pytest.mark.parametrize(("alone", "verb"), [(0.2, "gains"), (0.05, "does not gain")])
def test_where_an_owner_is_the_learner_only_it_is_told_whether_it_gains(tmp_path, alone, verb):
    evaluated = replace(EVALUATED, relative_fitness_alone=(alone, 0.3))
    summary = Summary.model_validate(table()).with_learner("a").with_evaluation(evaluated)
    words = f"a, which alone has the model, {verb}"
    assert any(words in line for line in sentences(summary))
    assert any(words in line for line in verdict_lines(summary))
    page = write_report(tmp_path, summary).read_text()
    assert "owner of 2 gains" not in page
    assert "who gain from taking part" not in page


def test_one_of_a_kind_is_told_in_the_singular(tmp_path):
    alone = Summary.model_validate(table(ticks=1, horizon=1, owners=[owner("a")]))
    page = write_report(tmp_path, alone).read_text()
    assert "<caption>1 owner</caption>" in page
    assert "1 of 1 communication in" in page
    assert sentences(alone)[0].startswith("1 communication in ")
    evaluated = replace(EVALUATED, relative_fitness_alone=(0.2, 0.05))
    two = Summary.model_validate(table()).with_evaluation(evaluated)
    for lines in (verdict_lines(two), sentences(two)):
        who = "By taking part, judged on all records, 1 owner of 2 gains: a."
        assert any(who in line for line in lines)


def test_a_model_no_better_than_a_constant_is_told_of_in_the_terminal_and_on_the_page(tmp_path):
    words = "The model is no better than always predicting the same."
    for guess, is_told in ((8.0, True), (9.0, False)):
        summary = Summary.model_validate(table(quality=QUALITY | {"guess": guess}))
        assert (words in sentences(summary)) == is_told
        assert (words in write_report(tmp_path, summary).read_text()) == is_told


def test_a_model_that_reads_the_same_as_a_constant_is_told_of_except_by_accuracy():
    """0.9997 and 1 are both "1" there: a reader sees no difference, and nothing said so."""
    words = "The model is hardly better than always predicting the same."
    close = QUALITY | {"common": {"value": 0.9997, "low": 0.98, "high": 1.02}, "guess": 1.0}
    assert words in sentences(Summary.model_validate(table(quality=close)))
    right = close | {"measure": "accuracy", "guess": 0.9996}
    assert "always predicting the same." not in " ".join(
        sentences(Summary.model_validate(table(quality=right)))
    )


def test_a_page_names_every_value_that_the_prediction_1_stands_for(tmp_path, make_model):
    model = make_model("logistic", also_positive=("lost",))
    (tmp_path / "model.json").write_text(model.to_json())
    page = write_report(tmp_path, Summary.model_validate(table(quality=QUALITY))).read_text()
    assert "whether class = late or lost: 100 public records" in page
    assert "Change of the log-odds for one more unit" in page


def test_a_column_named_like_a_heading_keeps_its_name(tmp_path, make_model):
    model = make_model()
    rule = model.feature_map.columns[0].model_copy(update={"name": "The values as a table"})
    columns = (rule, *model.feature_map.columns[1:])
    feature_map = model.feature_map.model_copy(update={"columns": columns})
    named = replace(model, feature_map=feature_map)
    (tmp_path / "model.json").write_text(named.to_json())
    page = write_report(tmp_path, Summary.model_validate(table())).read_text()
    assert "<summary>The model in raw units</summary>" in page
    assert ">The values as a table</th>" in page


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "invalid JSON"),
        ("{}", "study: field required"),
        ("[]", "should be an object"),
        ("[" * 100_000, "invalid JSON"),
        (b"\xff\xfe", "invalid JSON"),
        (json.dumps(table())[:-30], "invalid JSON"),
        (json.dumps(table(owners=[{}])), "name of entry 1 of owners: field required"),
        (
            json.dumps(table(owners=[owner("a", epsilon="1e999999999")])),
            "epsilon.constrained-str of entry 1 of owners",
        ),
        (
            json.dumps(table(owners=[owner("a", epsilon_spent="1/0")])),
            "epsilon_spent of entry 1 of owners",
        ),
        (json.dumps(table(owners=[owner("[/bold]")])), "name of entry 1 of owners"),
        (json.dumps(table(horizon=-1)), "horizon"),
        (json.dumps(table(horizon="many")), "horizon"),
        (
            json.dumps(table(horizon=1)).replace('"horizon": 1', f'"horizon": {"9" * 5000}'),
            "number",
        ),
        (json.dumps(table(relative_fitness=0.1)), "what a simulation evaluates is missing"),
        *(
            (json.dumps(table(**FORECAST | changes)), "of learning were forecast is missing")
            for changes in UNTOLD
        ),
        (json.dumps(table(delta_chosen="auto")), "delta is missing"),
        *((json.dumps(table(**changes)), "finite number") for changes in ENDLESS),
    ],
    # The texts themselves would be long names.
    ids=map(str, range(25)),
)
def test_a_damaged_summary_is_one_sentence(tmp_path, text, named):
    with pytest.raises(InputError) as refusal:
        read_summary(kept(tmp_path, text))
    said = str(refusal.value)
    assert named in said
    assert said.startswith(str(tmp_path))
    assert "\n" not in said


def test_a_summary_longer_than_any_is_not_read(tmp_path, monkeypatch):
    text = json.dumps(table())
    monkeypatch.setattr("learner.results.summary.LARGEST_TEXT", len(text))
    assert read_summary(kept(tmp_path, text)).study == "small"
    with pytest.raises(InputError, match="longer than any run's"):
        read_summary(kept(tmp_path, text + " "))


def test_a_folder_without_a_summary_is_no_finished_run(tmp_path):
    (tmp_path / "summary.json").mkdir()
    (tmp_path / "file").touch()
    for folder, why in {".": r"holds no summary\.json", "no": "no such", "file": "a file"}.items():
        with pytest.raises(InputError, match=why):
            read_summary(tmp_path / folder)


def test_the_table_of_owners_has_numbers_where_the_summary_keeps_fractions(tmp_path):
    owners = Run.load(kept(tmp_path, json.dumps(table()))).owners
    told = [name for name in owners if name.startswith("epsilon")]
    assert "epsilon_for_validation" in told
    assert all(owners[name].dtype == float for name in told)


def test_a_device_in_the_place_of_a_runs_file_is_not_read(tmp_path):
    run = Run.load(kept(tmp_path, json.dumps(table())))
    for name in ("trace.parquet", "summary.json"):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to(os.devnull)
    with pytest.raises(InputError, match=r"trace\.parquet: cannot be read as a trace \(OSError\)"):
        _ = run.trace
    with pytest.raises(InputError, match=r"holds no summary\.json"):
        read_summary(tmp_path)


def page_and_memory(folder):
    """The page of a run, and how much of a table was held for it at most."""
    whole = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(whole)
    pa.set_memory_pool(counted)
    try:
        page = write_report(folder, Summary.model_validate(table()))
    finally:
        pa.set_memory_pool(whole)
    return page.read_text(), counted.max_memory()


def test_a_trace_whose_rows_share_a_long_name_is_read_in_little_memory(tmp_path):
    rows, name = 2_000, "a" * 100_000
    trace = {"k": range(1, rows + 1), "owner": [name] * rows}
    pq.write_table(pa.table(trace), tmp_path / "trace.parquet")
    assert (tmp_path / "trace.parquet").stat().st_size < 1_000_000
    page, most = page_and_memory(tmp_path)
    assert "When each owner answered" in page
    assert most < rows * len(name) / 10


@pytest.mark.parametrize("column", ["k", "relative_fitness"])
@pytest.mark.parametrize("kind", ["lists", "names"])
def test_a_trace_whose_numbers_are_none_is_not_read(tmp_path, column, kind):
    """A file of a few bytes may say that each of its rows has a long list or text."""
    rows, size = 2_000, 10_000
    trace = {"k": range(1, rows + 1), "owner": ["a"] * rows, "relative_fitness": [0.5] * rows}
    cells = [[0.0] * size] * rows
    if kind == "names":
        cells = pa.DictionaryArray.from_arrays(pa.array([0] * rows), ["1" * size])
    pq.write_table(pa.table(trace | {column: cells}), tmp_path / "trace.parquet")
    assert (tmp_path / "trace.parquet").stat().st_size < 1_000_000
    page, most = page_and_memory(tmp_path)
    assert "When each owner answered" not in page
    assert most < rows * size


@pytest.mark.parametrize("fitness", [[math.inf] * 3, [math.nan] * 3, [5e-324, 0.5, 1.7e308]])
def test_a_trace_of_any_fitness_has_a_report(tmp_path, fitness):
    trace = {"k": [1, 2, 3], "owner": ["a"] * 3, "relative_fitness": fitness}
    pq.write_table(pa.table(trace), tmp_path / "trace.parquet")
    largest = replace(EVALUATED, relative_fitness=1.7e308, relative_fitness_alone=(1.7e308, 0.3))
    summary = Summary.model_validate(table()).with_evaluation(largest)
    page = write_report(tmp_path, summary).read_text()
    assert ("central model against communications" in page) == any(map(math.isfinite, fitness))


def test_a_run_that_nobody_answered_has_a_report(tmp_path):
    idle = [owner("a", responses=0, responses_left=4), owner("b", responses=0)]
    summary = Summary.model_validate(table(ticks=0, wall_seconds=0.0, owners=idle))
    assert sentences(summary)[0] == "0 of 4 communications in 0.00 s."
    assert "spent nothing: b" in write_report(tmp_path, summary).read_text()


def test_a_forecast_is_told_once():
    """As the run begins, or with what came of it; and never beside the chosen step, too."""
    step = {"chosen": "auto", "rho": 0.1, "forecast_relative_fitness": 0.0321}
    summary = Summary.model_validate(table(step=step, **FORECAST))
    assert " ".join(sentences(summary)).count("0.0321") == 1
    assert "0.0321" not in " ".join(sentences(summary, has_shown_start=True))
    assert "rho = 0.1" in " ".join(sentences(summary, has_shown_start=True))
    alone = Summary.model_validate(table(step=step))
    assert " ".join(sentences(alone)).count("forecast relative fitness 0.0321") == 1


def test_a_public_model_at_an_edge_of_its_box_is_told_of_in_the_same_words_everywhere(tmp_path):
    """As a run begins it is printed; later the table, the page and the card have it."""
    edge = "the public model is at an edge of its box (<b>\x1b[2J); enlarge model.theta_max"
    summary = Summary.model_validate(table(edge=edge))
    assert f"warning: {edge}".replace("\x1b", " ") in sentences(summary)
    assert not any("edge" in line for line in sentences(summary, has_shown_start=True))
    page = write_report(tmp_path, summary).read_text()
    told = "the public model is at an edge of its box (&lt;b&gt; [2J); enlarge model.theta_max"
    assert f'<p class="warning">warning: {told}</p>' in page
    assert "an edge" not in write_report(tmp_path, Summary.model_validate(table())).read_text()


@pytest.mark.parametrize(
    ("algorithm", "responses", "validation", "showed"),
    [
        ("asynchronous", 3, "0", True),
        ("asynchronous", 1, "0", True),
        ("newton", 2, "0", True),
        ("newton", 1, "0", False),
        ("moments", 1, "0", False),
        ("moments", 1, "1/10", True),
    ],
)
def test_a_model_of_raw_records_is_told_to_be_shown_where_it_was(
    algorithm, responses, validation, showed, summary, summary_table
):
    own, other = summary_table["owners"]
    other |= {"responses": responses, "responses_left": 0, "epsilon_for_validation": validation}
    run = summary(algorithm=algorithm, own=own["name"], owners=[own, other])
    (said,) = [line for line in sentences(run) if line.startswith("UNPROTECTED")]
    told = "; it must not leave north unless something else protects it"
    seen = ", and the queries showed the other owners models made from these records"
    assert said.endswith(f"{told}{seen if showed else ''}.")
