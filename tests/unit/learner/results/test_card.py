"""A model's card says what was promised in words, and its warnings come first."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from learner.planning.public_side import PublicSide
from learner.results.card import card_text
from learner.results.compare import write_comparison
from learner.results.quality_words import at_home_lines
from learner.results.report_page import write_report
from learner.results.run_quality import Union, quality_of_run
from learner.results.summary import Interval, QualitySummary
from learner.results.verdict_words import notes, verdict_lines


def test_a_card_says_what_each_owner_was_promised(make_model, summary):
    text = card_text(summary(), make_model())
    assert "For north, who spent epsilon 0.5: strong protection, since" in text
    assert "by a factor of at most 1.65" in text
    assert "For south, who spent epsilon 8: weak protection, since" in text
    assert text.count(" protection, ") == 2
    assert "| north | 1,200 | 0.5 | 0.5 | 3 |" in text
    assert "Nobody has measured it" in text
    for part in ("Purpose", "Records and owners", "Privacy", "Quality", "Limits"):
        assert f"\n## {part}\n" in text


def test_what_was_spent_is_never_shown_as_less_and_what_is_left_never_as_more(
    make_model, summary, tmp_path
):
    """As owners' ledgers show it: an officer may hold both side by side."""
    north, south = summary().owners
    half = north.model_copy(update={"epsilon": "1/3", "epsilon_spent": "2/7"})
    made = summary().model_copy(update={"owners": (half, south)})
    text = card_text(made, make_model())
    assert "| north | 1,200 | 0.333334 | 0.285715 | 3 |" in text
    assert "For north, who spent epsilon 0.285715: strong" in text
    assert "spent epsilon 0.285715 to 8: weak" in verdict_lines(made)[-1]
    page = write_report(tmp_path, made).read_text()
    for shown in ("0.333334", "0.285715", "0.047619"):  # 1/21 is left
        assert f">{shown}</td>" in page
    alone = made.model_copy(update={"owners": (half,)})
    assert ">0.285715</td>" in write_comparison({"a": alone}, tmp_path / "c.html").read_text()


def test_warnings_come_first_and_promise_nothing(make_model, summary):
    text = card_text(summary(insecure_noise=True).with_learner("south"), make_model())
    assert text.index("**INSECURE**") < text.index("**UNPROTECTED**") < text.index("## Purpose")
    assert "Nothing is promised" in text
    assert " protection, " not in text


def test_a_card_says_that_the_public_model_is_at_an_edge_of_its_box(make_model, summary):
    """However long the sentence is; nothing in it is Markdown."""
    edge = "the public model is at an edge of its box (*a*), which holds it: " + "why; " * 60
    text = card_text(summary().model_copy(update={"edge": edge}), make_model())
    told = text[: text.index("## Purpose")]
    assert r"at an edge of its box (\*a\*), which holds it: " in told
    assert told.count("why;") == 60
    assert "an edge" not in card_text(summary(), make_model())


def test_of_an_owner_that_is_the_learner_nothing_is_said_to_be_spent_or_protected(
    make_model, summary
):
    made = summary().with_learner("south")
    spent = "Each owner but south spent epsilon 0.5: strong protection of its records."
    assert spent in verdict_lines(made)
    text = card_text(made, make_model())
    assert "Each owner but south added its own noise" in text
    assert "\n- For south: nothing is promised: these records were asked without noise.\n" in text


def test_a_card_names_those_who_answered_less_than_they_promised(make_model, summary):
    north, south = summary().owners
    made = summary().model_copy(
        update={"owners": (north.model_copy(update={"responses_left": 2}), south)}
    )
    said = "Not all that was promised was answered: "
    assert f"{said}north." in card_text(made, make_model())
    assert said not in card_text(summary(), make_model())


def test_a_run_that_ended_early_says_so_and_no_other(summary):
    said = "The run ended after 4 of 6 communications; what was not answered was not spent."
    assert said in notes(summary(ticks=4))
    assert not any("ended" in line for line in notes(summary()))


def test_models_of_single_owners_are_told_from_the_least_error_to_the_largest(summary, quality):
    found = quality(common=Interval(value=2.0), guess=4.0, alone=(3.0, 2.5, 3.5))
    told = verdict_lines(summary().model_copy(update={"quality": found}))[0]
    assert "models of single owners have 2.5 to 3.5, " in told


def test_a_name_cannot_write_the_card(make_model, summary):
    model = make_model()
    target = model.feature_map.target.model_copy(update={"name": "x\n## Free <img> of | charge"})
    feature_map = model.feature_map.model_copy(update={"target": target})
    text = card_text(summary(), replace(model, feature_map=feature_map))
    assert "\n## Free" not in text
    assert "<img>" not in text


def test_names_with_dollars_tildes_and_ampersands_stay_as_they_are(make_model, summary):
    """Readers of Markdown make a formula of what is between two dollars."""
    model = make_model()
    target = model.feature_map.target.model_copy(update={"name": "a ($) b ($) ~c~ &lt;"})
    feature_map = model.feature_map.model_copy(update={"target": target})
    text = card_text(summary(), replace(model, feature_map=feature_map))
    assert r"It predicts a (\$) b (\$) \~c\~ \&lt; from" in text


def test_a_card_names_every_value_that_it_predicts(make_model, summary):
    text = card_text(summary(), make_model("logistic", also_positive=("lost",)))
    assert "It predicts whether class = late or lost from amount" in text


def test_an_owners_reason_cannot_write_the_card(make_model, summary):
    reason = "no\n# Approved <img src=x> [sign](http://x) `now`"
    made = summary().model_copy(update={"validation_missing": {"north": reason}})
    text = card_text(made, make_model())
    assert "No answer on how good the model is from north: no \\# Approved" in text
    for markup in ("<img", "[sign]", "`now`"):
        assert markup not in text.replace("\\" + markup[0], "")


def test_an_address_in_an_owners_reason_is_no_link(make_model, summary):
    """Some readers of Markdown make a link of it though nothing says that it is one."""
    reason = "go to http://x.example, HTTPS://x.example, www.x.example or a@x.example"
    made = summary().model_copy(update={"validation_missing": {"north": reason}})
    text = card_text(made, make_model())
    assert r"http:\//x.example, HTTPS:\//x.example, www\.x.example or a\@x.example" in text


def test_the_card_tells_whom_epsilon_protects_less_and_where_the_model_is_worth_nothing(
    make_model, summary
):
    text = card_text(summary(), make_model())
    assert "a person with several records is protected less" in text
    same = "The model is no better than always predicting the same."
    assert same not in text
    for value, is_told in ((2.0, False), (3.0, True)):
        quality = QualitySummary(
            on="public",
            records=10,
            measure="rmse",
            target="y",
            common=Interval(value=value, low=None, high=None),
            guess=3.0,
            public=None,
            intervals="95 %",
        )
        made = summary().model_copy(update={"quality": quality})
        assert (same in card_text(made, make_model())) == is_told


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_quality_is_told_on_the_union_in_raw_units_and_else_on_public_records(
    make_model, make_raw_table, loss
):
    model = make_model(loss)
    tables = [make_raw_table(60, seed=i, strange=True) for i in range(2)]
    shards = [model.feature_map.apply(table, where="owner") for table in tables]
    raw = [model.feature_map.target.raw(table[model.feature_map.target_name]) for table in tables]
    alone = np.stack([model.theta, 2 * model.theta])
    public = PublicSide(feature_map=model.feature_map, records=None)
    whole = Union(shards=shards, raw_targets=raw, models_alone=alone)
    found = quality_of_run(model, public, whole)
    assert (found.on, found.records) == ("owners", 120)
    assert found.alone[0] == pytest.approx(found.common.value)
    assert found.common.low < found.common.value < found.common.high
    if loss == "squared":
        table = pd.concat(tables, ignore_index=True)
        off = model.predictions(table, where="t")["prediction"] - table["y"]
        assert found.common.value == pytest.approx(np.sqrt(np.mean(off**2)))
        assert found.guess == pytest.approx(np.std(table["y"]))
    for i, table in enumerate(tables):
        one = Union(shards=shards[i : i + 1], raw_targets=raw[i : i + 1], models_alone=alone[:1])
        by_itself = quality_of_run(model, public, one)
        assert found.at_home["common"][i] == pytest.approx(by_itself.common.value), table
    assert found.at_home["alone"][0] == pytest.approx(found.at_home["common"][0])
    assert set(found.at_home) == {"common", "public", "alone"}
    unread = replace(whole, raw_targets=[raw[0], np.full(60, np.nan)])
    less = quality_of_run(model, public, unread)
    assert less.at_home["common"] == (found.at_home["common"][0], None)
    assert at_home_lines(less)[0].count(" of 1") == 2
    # Of numbers the table's verdict is on targets that are cut.
    assert ("beyond the public bounds" in at_home_lines(less)[0]) == (loss == "squared")
    assert quality_of_run(model, public, None) is None
    known = PublicSide(feature_map=model.feature_map, records=shards[0], raw_targets=raw[0])
    told = quality_of_run(model, known, None)
    assert (told.on, told.alone) == ("public", None)


def test_the_card_is_written_beside_the_model(make_model, summary, tmp_path):
    from learner.results.card import write_card  # noqa: PLC0415

    (tmp_path / "model.json").write_text(make_model().to_json())
    assert write_card(tmp_path, summary()).read_text().startswith("# Model card: small\n")
