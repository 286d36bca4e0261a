"""What owners say of a finished model, put together: numbers, intervals and the verdict."""

import re
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from common.validation import factors_of, unpack_validation
from learner.planning.noise_width import half_width
from learner.planning.validation import ValidationBounds
from learner.results.card import card_text
from learner.results.report import sentences
from learner.results.summary import Interval
from learner.results.validated import summarise_validation
from learner.results.validation_part import validation_part
from learner.results.validation_words import (
    _how_good,
    measure_rows,
    validation_lines,
    warn_if_worse,
)
from learner.results.verdict_words import notes
from learner.training.validation import Answer, Validated

BOUNDS = ValidationBounds(
    loss_bound=4.0, difference_bound=0.5, reference=(0.0,) * 4, difference_spread=0.1
)


def _terms(make_terms):
    return make_terms(
        release="validation",
        responses=1,
        loss_bound=BOUNDS.loss_bound,
        difference_bound=BOUNDS.difference_bound,
        reference=BOUNDS.reference,
    )


@pytest.fixture
def summarised(make_terms):
    """One owner of 10,000 records says a mean loss of 1, and this difference, next to exactly."""

    def found(difference, *, noise=1e-9, **bounds):
        terms = _terms(make_terms)
        factors = factors_of(terms)
        response = np.array([factors.loss, factors.difference * difference])
        validated = Validated(
            bounds=replace(BOUNDS, **bounds),
            terms=(terms,),
            answers=(Answer(shown=False, response=response, noise_scale=noise),),
        )
        told = summarise_validation(validated, names=["a"], num_records=[10_000])
        assert told is not None
        return told

    return found


@pytest.mark.parametrize("share", [0.3, 3.0, 100.0])
def test_an_answer_beyond_what_can_be_is_moved_there_and_its_interval_holds_as_often(
    summarised, make_terms, share, monkeypatch
):
    """True is 0.4 of at most 0.5; the noise is some share of the most that it can be."""
    true, bound = 0.4, 0.5
    rng = np.random.default_rng(7)
    unit = factors_of(_terms(make_terms)).difference
    held, trials = 0, 400
    # The noise is alike in all trials, and so is how far it reaches.
    width = cache(half_width)
    monkeypatch.setattr(
        "learner.results.validated.half_width",
        lambda scales, deviation: width(tuple(scales), deviation),
    )
    for noise in rng.laplace(0.0, share * bound, size=trials):
        found = summarised(true + noise, noise=share * bound * unit).difference
        assert -bound <= found.low <= found.value <= found.high <= bound
        assert found.high - found.low >= min(found.noise, 2.0 * bound) - 1e-12
        held += found.low <= true <= found.high
    # 95 % less three deviations.
    assert held >= trials * 0.95 - 3.0 * (trials * 0.95 * 0.05) ** 0.5


def test_what_the_noise_drowns_is_called_unknown(summarised, summary):
    found = summarised(-22.0, noise=1e6)
    run = summary().model_copy(update={"validation": found})
    good, better = validation_lines(run)
    unknown = "count as 4, unknown, for the noise is larger than 4, the most that it can be"
    assert unknown in good
    assert "it cannot be told from the public records' model" in better
    assert "-22" not in better
    page = validation_part(run)
    assert page.count("unknown for noise") == len(measure_rows(found)) == 2
    assert "unknown" not in validation_part(
        summary().model_copy(update={"validation": summarised(0.1)})
    )


@pytest.mark.parametrize(("share", "is_told"), [(0.99, True), (1.01, False)])
def test_the_noise_drowns_what_it_reaches_over_all_of(
    summarised, summary, make_terms, share, is_told
):
    """A difference lies between -0.5 and 0.5, so a noise of 1 says nothing of it."""
    unit = factors_of(_terms(make_terms)).difference
    found = summarised(0.1, noise=share * unit / half_width([1.0], 0.0))
    assert found.difference.noise == pytest.approx(share)
    told = validation_lines(summary().model_copy(update={"validation": found}))[1]
    assert ("is unknown, for the noise is larger" in told) is not is_told


def test_the_interval_of_the_difference_holds_what_its_bound_leaves_out(summarised):
    without, found = summarised(0.02).difference, summarised(0.02, cut_below=0.03, cut_above=0.01)
    assert found.difference.value == pytest.approx(0.02)
    assert found.difference.low == pytest.approx(without.low - 0.03)
    assert found.difference.high == pytest.approx(without.high + 0.01)


@pytest.mark.parametrize("owners", [1, 2])
def test_answers_are_told_of_as_many_as_gave_them(summarised, summary, owners):
    found = summarised(0.02).model_copy(update={"owners": owners})
    made = summary().model_copy(
        update={"validation": found, "validation_missing": {"b": "away", "c": "away"}}
    )
    by = {1: "By its answer ", 2: "By their answers "}[owners]
    whose = {1: "of its own", 2: "of their own"}[owners]
    told = validation_lines(made)
    assert told[1].startswith(by)
    assert f"about 10,000 records {whose}: " in validation_part(made)
    assert told[-1].endswith("They spent nothing on it.")
    fewer = made.model_copy(update={"validation_missing": {"b": "away"}})
    assert validation_lines(fewer)[-1].endswith("It spent nothing on it.")


@pytest.mark.parametrize(
    ("difference", "cut_below", "said"),
    [
        (
            0.02,
            0.0,
            "it is worse than the public records' model: at least 1.7% more loss, and copriv "
            "predict and copriv export take that one with --public",
        ),
        (0.02, 0.03, "it cannot be told from the public records' model, which is free"),
        (-0.02, 0.03, "it is better than the public records' model: at least 1.7% less loss"),
    ],
)
def test_the_verdict_is_what_the_whole_interval_says(
    summarised, summary, difference, cut_below, said
):
    found = summarised(difference, cut_below=cut_below)
    lines = validation_lines(summary().model_copy(update={"validation": found}))
    assert f"By its answer {said}." in lines[1]
    # Which of the two has the smaller loss is said where the verdict does not say it.
    less = f"Its mean loss less that of the public records' model is {difference:.3g} ("
    assert less in lines[1]
    assert ": below 0 it is better. Each record's" in lines[1]
    assert (
        "difference counts as at most 0.5; the interval allows for that as far as the public "
        "records show it" in lines[1]
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"relative_fitness": 0.4, "relative_fitness_public": 0.1},
            "free: relative fitness 0.4 against 0.1; do",
        ),
        ({"relative_fitness": 0.1, "relative_fitness_public": 0.4}, None),
        ({"relative_fitness": 0.1 + 1e-9, "relative_fitness_public": 0.1}, None),
        ({"validation": 0.02}, "free, by the owners' answers: at least 1.7% more loss; do"),
        ({"validation": -0.02}, None),
        ({"validation": 0.0001}, None),
        ({}, None),
    ],
)
def test_a_model_that_is_surely_worse_than_what_is_free_is_warned_of(
    summarised, summary, changes, said
):
    unknown = {"relative_fitness": None, "relative_fitness_public": None, "validation": None}
    if "validation" in changes:
        changes = {"validation": summarised(changes["validation"])}
    run = summary().model_copy(update=unknown | changes)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warn_if_worse(run, cure="do")
    assert [str(one.message).endswith(said or "") for one in told] == [True] * (said is not None)


@pytest.mark.parametrize(
    ("measure", "free", "psi_of_free", "is_told", "warning"),
    [
        ("rmse", 7.9, 0.4, True, "free: typical error (RMSE) 8 against 7.9; do"),
        ("log_loss", 7.9, 0.4, True, "free: log loss 8 against 7.9; do"),
        ("accuracy", 8.1, 0.4, True, None),
        ("rmse", 8.1, 0.4, False, None),
        ("rmse", 8.0, 0.4, False, None),
        ("rmse", 7.9, 0.01, False, "free: relative fitness 0.1 against 0.01; do"),
    ],
)
def test_a_model_that_is_worse_in_raw_units_alone_is_told_as_that_everywhere(
    make_model, summary, quality, measure, free, psi_of_free, is_told, warning
):
    """Only the page said so; the same run's table and its sentences said that owners gain."""
    found = quality(
        measure=measure,
        common=Interval(value=8.0),
        public=Interval(value=free),
        guess=12.0 if measure != "accuracy" else 1.0,
    )
    told = {"relative_fitness": 0.1, "relative_fitness_public": psi_of_free, "quality": found}
    run = summary().model_copy(update=told)
    words = "give a better model than this one, for free; relative fitness, which says who gains"
    for text in (" ".join(sentences(run)), card_text(run, make_model()), " ".join(notes(run))):
        assert (words in text) == is_told
    assert ("targets as they are" in " ".join(notes(run))) == (is_told and measure == "rmse")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_if_worse(run, cure="do")
    assert [str(one.message).endswith(warning or "") for one in caught] == [True] * bool(warning)


def test_however_little_better_the_verdict_has_a_number_or_none(summarised, summary):
    found = summarised(-0.02)
    less = found.difference.model_copy(update={"high": -0.00002})
    for loss, said in ((1.0, ": at least 0.0019% less loss."), (-1.0, ", with less loss.")):
        changed = {"loss": found.loss.model_copy(update={"high": loss}), "difference": less}
        run = summary().model_copy(update={"validation": found.model_copy(update=changed)})
        assert f"better than the public records' model{said}" in validation_lines(run)[1]


def test_at_least_so_much_less_loss_is_of_the_whole_loss_and_rounded_down(summarised, summary):
    """Of a free model that loses 2.2 in all, 1.2 of it beyond the bound, 0.2 less is a tenth."""
    found = summarised(-0.02)
    less = found.difference.model_copy(update={"high": -0.2})
    for high, said in ((1.0, "9"), (1.1, "8.3")):
        loss = found.loss.model_copy(update={"high": high})
        changed = {"loss": loss, "difference": less, "cut_off_in_public": 0.5}
        run = summary().model_copy(update={"validation": found.model_copy(update=changed)})
        better = validation_lines(run)[1]
        assert f"better than the public records' model: at least {said}% less loss." in better


def test_one_owner_says_and_several_say(summarised):
    one = summarised(0.02)
    assert _how_good(one, None).startswith("1 owner says, with noise, of its 10,000 records: ")
    two = one.model_copy(update={"owners": 2})
    assert _how_good(two, None).startswith("2 owners say, with noise, of their 10,000 records: ")


def test_the_learners_own_shard_is_not_among_those_that_answer_with_noise(summarised, summary):
    found = summarised(0.02)
    for owners, who in (
        (3, "2 owners, with noise, and a, the learner, exactly, say of their"),
        (2, "1 owner, with noise, and a, the learner, exactly, say of their"),
        (1, "a, the learner, says exactly of its"),
    ):
        told = {"validation": found.model_copy(update={"owners": owners}), "own": "a"}
        run = summary().model_copy(update=told)
        assert validation_lines(run)[0].startswith(f"{who} 10,000 records: ")
    silent = run.model_copy(update={"validation_missing": {"a": "it forbids it"}})
    assert validation_lines(silent)[0].startswith("1 owner says, with noise, of its 10,000 ")


@pytest.mark.parametrize("noise", [1e-9, 1e6])
def test_a_share_predicted_right_stands_beside_that_of_the_larger_class(make_terms, summary, noise):
    """Of 95 % of one class 95 % are right by saying so, and a model may be no better."""
    edges = (-1.0, 0.0, 1.0)
    terms = replace(_terms(make_terms), edges=edges)
    table = np.array([[0.5, 0.01], [0.4, 0.02], [0.04, 0.01], [0.01, 0.01]])
    factors = factors_of(terms)
    response = np.array([factors.loss, 0.0, *(factors.cell * table.ravel())])
    validated = Validated(
        bounds=replace(BOUNDS, edges=edges),
        terms=(terms,),
        answers=(Answer(shown=True, response=response, noise_scale=noise),),
    )
    found = summarise_validation(validated, names=["a"], num_records=[10_000])
    assert found.accuracy.value == pytest.approx(0.92)
    assert found.accuracy_of_guess.value == pytest.approx(0.95)
    assert found.accuracy_of_guess.noise == pytest.approx(found.accuracy.noise)
    line = validation_lines(summary().model_copy(update={"validation": found}))[0]
    beside = ", of always predicting the larger class 95.0% (94.6% to 95.4%); mean loss"
    assert (beside in line) == (noise < 1)
    assert len(measure_rows(found)) == 4
    known = found.model_copy(
        update={"accuracy_of_guess": found.accuracy_of_guess.model_copy(update={"exact": 0.951})}
    )
    line = validation_lines(summary().model_copy(update={"validation": known}))[0]
    beside = "always predicting the larger class 95.0% (94.6% to 95.4%; exactly 95.1%)"
    assert (beside in line) == (noise < 1)


def test_the_exact_share_of_the_larger_class_is_of_the_one_that_is_larger(make_terms):
    """Noise may make the other class look larger; then the exact share was that of the smaller."""
    edges = (0.0,)
    terms = replace(_terms(make_terms), edges=edges)
    cells = factors_of(terms).cell
    exact, noisy = np.array([[0.2, 0.1], [0.5, 0.2]]), np.array([[0.1, 0.3], [0.2, 0.4]])
    validated = Validated(
        bounds=replace(BOUNDS, edges=edges),
        terms=(terms,),
        answers=(
            Answer(shown=True, response=np.array([0, 0, *(cells * noisy.ravel())]), noise_scale=1),
        ),
    )
    truth = unpack_validation(np.array([0, 0, *(cells * exact.ravel())]), terms)
    found = summarise_validation(validated, names=["a"], num_records=[10_000], exact=[truth])
    assert found.accuracy_of_guess.value == pytest.approx(0.7)
    assert found.accuracy_of_guess.exact == pytest.approx(0.7)
    assert found.accuracy.exact == pytest.approx(0.4)


def test_sampling_makes_a_loss_as_unsure_as_public_records_vary_or_more_where_it_is_larger(
    summarised,
):
    """The loss of 1 is twice the public records'; no spread is larger than the bound allows."""
    for known, spread in (
        ({"loss_mean": 0.5, "loss_spread": 0.2}, 0.4),
        ({"loss_mean": 2.0, "loss_spread": 0.2}, 0.2),
        ({"loss_mean": 0.01, "loss_spread": 0.2}, 3.0**0.5),
        ({}, 3.0**0.5),
    ):
        loss = summarised(0.0, **known).loss
        half = 1.959964 * spread / 10_000**0.5
        assert (loss.low, loss.high) == pytest.approx((1.0 - half, 1.0 + half), rel=1e-5)


def test_the_noise_of_an_error_in_raw_units_is_half_of_what_its_ends_are_apart(make_terms):
    """Of a mean squared loss of 1, known to 0.3 for noise, in units of 5."""
    terms = _terms(make_terms)
    factors = factors_of(terms)
    scale = 0.3 / half_width([1.0], 0.0) * factors.loss
    answer = Answer(shown=False, response=np.array([factors.loss, 0.0]), noise_scale=scale)
    validated = Validated(bounds=BOUNDS, terms=(terms,), answers=(answer,))
    found = summarise_validation(validated, names=["a"], num_records=[10_000], raw_scale=5.0)
    assert found.loss.noise == pytest.approx(0.3)
    assert found.rmse.value == pytest.approx(5.0)
    assert found.rmse.noise == pytest.approx(5.0 * (1.3**0.5 - 0.7**0.5) / 2.0)


def test_the_share_of_positives_in_a_bin_is_as_unsure_as_its_two_cells_make_it(make_terms):
    """And nothing is said of it where noise is as large as the bin."""
    edges = (0.0,)
    terms = replace(_terms(make_terms), edges=edges)
    factors = factors_of(terms)
    cells, noise = np.array([0.06, 0.24, 0.4, 0.3]), 0.002
    response = np.array([0, 0, *(factors.cell * cells)])

    def bins(noise):
        answer = Answer(shown=True, response=response, noise_scale=noise * factors.cell)
        validated = Validated(
            bounds=replace(BOUNDS, edges=edges), terms=(terms,), answers=(answer,)
        )
        return summarise_validation(validated, names=["a"], num_records=[10_000]).table

    told = bins(noise)[0].positive
    drawn = cells[:2] + np.random.default_rng(3).laplace(0.0, noise, size=(100_000, 2))
    off = np.abs(drawn[:, 1] / drawn.sum(axis=1) - 0.8)
    assert told.value == pytest.approx(0.8)
    assert told.noise == pytest.approx(np.quantile(off, 0.95), rel=0.03)
    # Two cells of noise reach as far as 0.3, the share of the bin.
    full = 0.3 / half_width([1.0, 1.0], 0.0)
    assert bins(0.99 * full)[0].positive is not None
    assert bins(1.01 * full)[0].positive is None


def test_a_bin_that_noise_makes_less_than_empty_is_empty(make_terms):
    """And one of all records and more has all; readers of ``summary.json`` add no minus to them."""
    edges = (0.0,)
    terms = replace(_terms(make_terms), edges=edges)
    cells = factors_of(terms).cell * np.array([0.7, 0.5, -0.2, 0.1])
    validated = Validated(
        bounds=replace(BOUNDS, edges=edges),
        terms=(terms,),
        answers=(Answer(shown=True, response=np.array([0, 0, *cells]), noise_scale=1e-9),),
    )
    found = summarise_validation(validated, names=["a"], num_records=[10_000])
    assert [each.share for each in found.table] == [1.0, 0.0]


def test_what_can_be_opened_says_what_it_is(summarised, summary):
    """Both were called "The values as a table", below a table that they are not the values of."""
    found = summarised(0.1)
    bins = [{"up_to": 0.0, "share": 0.5}]
    one = {"name": "a", "loss": found.loss}
    given = found.model_dump() | {"table": bins, "by_owner": [one]}
    run = summary().model_copy(update={"validation": type(found).model_validate(given)})
    page = validation_part(run)
    opened = re.findall("<summary>([^<]+)</summary>", page)
    assert opened == ["Calibration", "Owners who agree to be shown"]


def test_what_a_bound_cuts_off_is_said_before_the_number(summarised, summary):
    """An error cut at a bound is not the error: it may be less than half of it."""
    found = summarised(0.1)
    cut = {"cut_off_in_public": 0.515, "largest_error": 2.58, "rmse": found.loss}
    for values, name, named in (
        ({"cut_off_in_public": 0.515}, "mean loss", "mean loss, each at most 4"),
        (cut, "typical error (RMSE)", "typical error (RMSE), each at most 2.58"),
    ):
        judged = found.model_copy(update=values)
        run = summary().model_copy(update={"validation": judged})
        line = validation_lines(run)[0]
        assert f"{name}, where " in line
        assert line.index("count as") < line.index("the noise alone")
        assert line.endswith(" On the public records that leaves out 51.5% of the loss.")
        assert named in [what for what, *_ in measure_rows(judged)]
        assert f">{named}<" in validation_part(run)
