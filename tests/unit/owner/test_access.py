import hashlib

import pytest

from common.config import check_settings
from common.errors import BusyError, IdentityError, InputError, PolicyError
from owner.access import Access, RateLimit
from owner.policy import Policy

TOKEN = "correct-horse-battery"  # noqa: S105 (a test's)
DIGEST = f"sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}"


@pytest.fixture
def access(tmp_path):
    def make(clock=lambda: 0.0, **policy):
        budget = {"epsilon_per_study": "1", "epsilon_lifetime": "1"}
        checked = check_settings(Policy, budget | policy, where="test")
        return Access(checked, base=tmp_path, clock=clock)

    return make


def test_a_token_tells_who_asks(access, tmp_path):
    (tmp_path / "ben.token").write_text("copriv_long-token-of-ben\n")
    one = access(tokens={"ann": DIGEST, "ben": "file:ben.token"})
    assert one.identify(token=TOKEN, certificate=None) == "ann"
    assert one.identify(token="copriv_long-token-of-ben", certificate="any") == "ben"  # noqa: S106
    for wrong in ("", TOKEN[:-1], TOKEN + " ", TOKEN.upper(), DIGEST, "\udcff"):
        with pytest.raises(IdentityError, match="not one that this owner knows"):
            one.identify(token=wrong, certificate=None)
    with pytest.raises(IdentityError, match="wants a token"):
        one.identify(token=None, certificate=None)


def test_the_example_of_the_settings_names_the_file_that_a_new_token_is_in(
    access, typed, tmp_path, monkeypatch
):
    """It named the file of a digest, which is refused."""
    monkeypatch.chdir(tmp_path)
    ((learner, _),) = Policy.EXAMPLES["tokens"].items()
    said = typed("copriv-owner", "token", learner)
    one = access(tokens=Policy.EXAMPLES["tokens"])
    token = (tmp_path / f"{learner}.token").read_text().strip()
    assert one.identify(token=token, certificate=None) == learner
    assert DIGEST[:7] in said.stdout


@pytest.mark.parametrize("name", ["ann\nWARNING all is well", "\x1b[2J", "a\u202eb"])
def test_a_certificates_name_that_cannot_be_printed_is_refused(access, name):
    """It would write lines of its own into the log."""
    with pytest.raises(IdentityError, match="cannot be printed"):
        access().identify(token=None, certificate=name)
    assert access().identify(token=None, certificate="Bank of Åland") == "Bank of Åland"


def test_a_certificate_that_names_nobody_is_refused_and_a_token_beside_it_counts(access):
    with pytest.raises(IdentityError, match="no common name"):
        access().identify(token=None, certificate="")
    assert access(tokens={"ann": DIGEST}).identify(token=TOKEN, certificate="") == "ann"


def test_a_certificate_does_not_stand_in_for_a_token(access):
    one = access(tokens={"ann": DIGEST})
    with pytest.raises(IdentityError, match="send it"):
        one.identify(token=None, certificate="ann")
    both = access(tokens={"ann": DIGEST}, learners=["ann", "carl"])
    assert both.identify(token=None, certificate="ann") == "ann"
    assert both.identify(token=None, certificate="carl") == "carl"
    both.admit_query("carl")
    with pytest.raises(
        PolicyError, match="does not serve this learner, 'dora'; ask it to add that name"
    ):
        both.admit_query("dora")
    assert both.admit(token=None, certificate="carl") == "carl"
    with pytest.raises(PolicyError, match="does not serve this learner"):
        both.admit(token=None, certificate="dora")


def test_without_tokens_and_names_anybody_who_reaches_the_owner_is_served(access):
    one = access()
    assert one.identify(token=None, certificate=None) == "anonymous"
    assert one.identify(token=None, certificate="carl") == "carl"
    one.admit_query("anonymous")
    with pytest.raises(IdentityError):
        one.identify(token=TOKEN, certificate=None)


def test_a_token_is_compared_with_every_digest(access, monkeypatch):
    compared = []

    def compare(a, b):
        compared.append(a)
        return a == b

    monkeypatch.setattr("owner.access.hmac.compare_digest", compare)
    others = {name: f"sha256:{hashlib.sha256(name.encode()).hexdigest()}" for name in "bcd"}
    assert access(tokens={"ann": DIGEST, **others}).identify(token=TOKEN, certificate=None) == "ann"
    assert len(compared) == 4


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ({"ann": "plain-text-token-here"}, "ann: expected"),
        ({"ann": "sha256:abc"}, "ann: expected"),
        ({"anonymous": DIGEST}, "learner's name"),
        ({"a b": DIGEST}, "letters a-z, digits and . _ - @ only"),
        ({"ann": "file:absent"}, r"token cannot be read \(No such file or directory\); give"),
        ({"ann": "file:accented"}, r"token cannot be read \(it is no ASCII\); give a file with"),
        ({"ann": "file:short"}, "at least 24 characters"),
        ({"ann": "file:other"}, "begins with copriv_"),
    ],
)
def test_a_token_that_is_none_is_refused(access, tmp_path, tokens, words):
    (tmp_path / "short").write_text("copriv_short")
    (tmp_path / "other").write_text("a-long-token-that-no-learner-would-send")
    (tmp_path / "accented").write_text("copriv_\u00e9", encoding="utf-8")
    with pytest.raises(InputError, match=words):
        access(tokens=tokens)


def test_queries_are_limited_for_each_learner(access):
    now = [0.0]
    one = access(lambda: now[0], queries_per_second=10)
    for _ in range(10):
        one.admit_query("ann")
    with pytest.raises(BusyError, match="nothing was charged") as busy:
        one.admit_query("ann")
    assert busy.value.retry_after == pytest.approx(0.1)
    one.admit_query("ben")
    now[0] = 0.1
    one.admit_query("ann")
    with pytest.raises(BusyError):
        one.admit_query("ann")


def test_in_the_long_run_no_more_pass_than_the_rate():
    now = [0.0]
    limit = RateLimit(per_second=5.0, burst=3, clock=lambda: now[0])
    passed = 0
    for step in range(10_000):
        now[0] = step / 1000
        passed += limit.wait() == 0.0
    assert passed == pytest.approx(3 + 5 * 10, abs=1)


def test_a_long_silence_saves_up_no_more_than_a_burst():
    now = [0.0]
    limit = RateLimit(per_second=5.0, burst=3, clock=lambda: now[0])
    now[0] = 3600.0
    assert sum(limit.wait() == 0.0 for _ in range(10)) == 3


def test_enrolments_are_limited_by_the_hour(access):
    now = [0.0]
    one = access(lambda: now[0], enrollments_per_hour=2)
    one.admit_enrollment("ann")
    one.admit_enrollment("ann")
    with pytest.raises(BusyError, match="for 1800 seconds") as busy:
        one.admit_enrollment("ann")
    now[0] = busy.value.retry_after
    one.admit_enrollment("ann")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("losses", ["absolute"]),
        ("losses", []),
        ("queries_per_second", 0),
        ("enrollments_per_hour", 0),
        ("max_features", 0),
        ("min_num_records", 0),
        ("kappa", 0),
        ("epsilon_lifetime", "nan"),
    ],
)
def test_a_wrong_policy_is_named(access, key, value):
    with pytest.raises(InputError, match=key):
        access(**{key: value})
