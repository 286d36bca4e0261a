"""Rules of a site: one finding for each, whatever a site says of itself."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from common.errors import RefusedError, UnreachableError, UntrustedError
from common.findings import State
from common.terms import OwnerDescription
from common.tls import Peer
from common.wire import PROGRAM_VERSION
from learner.training.agreement import RULES, Asked, Seen, findings, refuse_misfits

NOW = datetime(2026, 5, 1, tzinfo=UTC)
PEER = Peer(name="a", role="owner", expires=NOW + timedelta(days=9, hours=1))


@pytest.fixture
def asked(feature_map):
    return Asked(name="a", feature_map=feature_map, loss="squared", epsilon=Fraction(1))


def description(feature_map, **changes):
    values = {
        "name": "a",
        "num_records": 9,
        "columns": feature_map.columns_needed,
        "feature_map_digest": "",
        "epsilon_per_study": Fraction(1),
        "epsilon_left": Fraction(1),
        "losses": ("squared",),
        "version": PROGRAM_VERSION,
        "clock_ms": 1,
        "checked_map_digest": feature_map.digest,
    }
    return OwnerDescription(**values | changes)


def seen(said, **changes):
    values = {"where": "a:1", "encrypted": True, "peer": PEER, "description": said}
    return Seen(**values | {"skew_seconds": 0.0} | changes)


def states(one, asked):
    found = findings(one, asked, now=NOW)
    assert [finding.rule for finding in found] == list(RULES)
    assert all(finding.words for finding in found)
    return {finding.rule: finding.state for finding in found}


def test_a_sound_site_passes_every_rule(asked):
    one = seen(description(asked.feature_map))
    assert set(states(one, asked).values()) == {State.PASSES}
    assert "9 days left" in findings(one, asked, now=NOW)[1].words


@pytest.mark.parametrize(
    ("failure", "peer", "rule"),
    [
        (UnreachableError("nobody"), None, "reached"),
        (UnreachableError("busy"), PEER, "reached"),
        (UntrustedError("of another CA"), None, "certificate"),
    ],
)
def test_what_is_not_reached_is_not_checked(asked, failure, peer, rule):
    found = states(seen(None, failure=failure, peer=peer), asked)
    assert found[rule] is State.FAILS
    later = RULES[RULES.index("name") :]
    assert {found[one] for one in later} == {State.UNCHECKED}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"version": "\x1b[2J" * 1000}, "version"),
        ({"losses": ("\x1b[2J" * 200,)}, "loss"),
        ({"losses": ()}, "loss"),
        ({"columns": ("\x1b",) * 100}, "columns"),
        ({"epsilon_left": Fraction(0)}, "budget"),
        ({"epsilon_left": Fraction(1, 10**59)}, "budget"),
        ({"feature_map_digest": "0" * 64}, "map"),
        ({"feature_map_digest": "\x1b"}, "size"),
        ({"num_records": 2**63}, "size"),
        ({"name": "\x1b[2Jb"}, "name"),
    ],
)
def test_whatever_a_site_says_is_one_short_printable_finding(asked, change, rule):
    one = seen(description(asked.feature_map, **change))
    found = {finding.rule: finding for finding in findings(one, asked, now=NOW)}
    assert found[rule].state is State.FAILS
    assert [f.rule for f in found.values() if f.state is State.FAILS] == [rule]
    assert found[rule].words.isprintable()
    assert len(found[rule].words) < 400


@pytest.mark.parametrize(
    ("left", "cure"), [("1/3", "ask it for less (epsilon in "), ("0", "leave")]
)
def test_of_a_budget_that_is_spent_nobody_is_told_to_ask_for_less(asked, left, cure):
    one = seen(description(asked.feature_map, epsilon_left=Fraction(left)))
    [said] = [
        finding.words for finding in findings(one, asked, now=NOW) if finding.rule == "budget"
    ]
    assert f"{left} of its lifetime budget is left; {cure}" in said


def test_a_clock_that_cannot_be_is_one_finding(asked):
    one = seen(description(asked.feature_map), skew_seconds=2.0**64 / 1000)
    assert states(one, asked)["clock"] is State.FAILS


def test_who_is_asked_for_nothing_refuses_nothing(feature_map, make_terms):
    poor = description(feature_map, epsilon_left=Fraction(1, 9))
    terms = make_terms()
    with pytest.raises(RefusedError, match=r"owner a: budget: .*no owner was enrolled"):
        refuse_misfits([poor], [terms], feature_map)
    refuse_misfits([poor], [make_terms(responses=0)], feature_map)
