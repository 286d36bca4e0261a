"""One suite for every kind of owner: in memory, over TCP or mutual TLS, attached to our port."""

import threading
from contextlib import ExitStack
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import tomli_w
from identities import tls_of, tls_table

from common.errors import BudgetSpentError, MalformedError, OrderError
from common.terms import Query
from common.tls import load_identity
from common.toml_files import read_toml
from learner.network.attachment_server import AttachmentServer
from learner.network.certificates import Party, make_certificates
from learner.network.grpc_owner import GrpcOwner
from learner.training.memory_owner import MemoryOwner
from owner.attaching import open_attachment

SEED = 11


@pytest.fixture(params=["memory", "tcp", "tls", "attached"])
def owner(request, feature_map, owner_folder, serve_owner):
    with ExitStack() as stack:
        if request.param == "memory":
            made = memory_twin(owner_folder(), feature_map)
        elif request.param == "attached":
            learner = stack.enter_context(
                AttachmentServer(["owner-a"], "127.0.0.1:0", deadline=20, patience=20)
            )
            attachment = open_attachment(
                owner_folder(),
                learner=f"127.0.0.1:{learner.port}",
                stay=False,
                insecure=False,
                insecure_noise_seed=SEED,
            )
            stop = threading.Event()
            thread = threading.Thread(target=attachment.run, args=(stop,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(stop.set)
            made = learner.owners[0]
        else:
            settings = owner_folder()
            who = with_tls(settings) if request.param == "tls" else None
            running = serve_owner(settings, insecure_noise_seed=SEED)
            address = f"127.0.0.1:{running.port}"
            made = GrpcOwner("owner-a", address, deadline=20, identity=who)
        stack.callback(made.disconnect)
        yield made


def with_tls(settings):
    """Gives the owner a certificate, and returns the learner's."""
    out = settings.parent / "certs"
    parties = [
        Party(name="owner-a", role="owner", hosts=("127.0.0.1",)),
        Party(name="learner", role="learner"),
    ]
    make_certificates(out, parties, study="test", days=90, ca_days=100, renew=False)
    settings.write_text(tomli_w.dumps(read_toml(settings) | {"tls": tls_table(out / "owner-a")}))
    return load_identity(tls_of(out / "learner"), base=out, side="client")


def memory_twin(settings, feature_map):
    table = pd.read_parquet(settings.parent / "shard.parquet")
    return MemoryOwner("owner-a", feature_map.apply(table, where="test"), seed=SEED)


def ask(owner, sequence, theta=None):
    theta = np.full(4, 0.1 * sequence) if theta is None else theta
    query = Query(study_id="study-1", sequence=sequence, theta=theta)
    response = owner.answer(query)
    assert (response.study_id, response.sequence) == ("study-1", sequence)
    return response.gradient


def test_enrolment_tells_records_and_noise(owner, make_terms):
    enrollment = owner.enroll(make_terms())
    assert enrollment.num_records == 200
    assert (enrollment.responses, enrollment.answered) == (10, 0)
    assert enrollment.epsilon == Fraction(1)
    assert enrollment.noise_scale > 0
    assert enrollment.insecure_noise
    assert owner.describe().num_records == 200


def test_terms_that_ask_for_noise_that_nobody_can_draw_are_refused(owner, make_terms):
    with pytest.raises(MalformedError, match=r"owner .*: epsilon: too small for any noise"):
        owner.enroll(make_terms(responses=1, horizon=1, epsilon=Fraction(1, 10**18)))


def test_the_same_terms_again_are_the_same_enrolment(owner, make_terms):
    first = owner.enroll(make_terms())
    ask(owner, 1)
    again = owner.enroll(make_terms())
    assert again.answered == 1
    assert again.noise_scale == first.noise_scale


def test_all_m_of_m_answers_and_no_more(owner, make_terms):
    owner.enroll(make_terms(responses=5))
    for sequence in range(1, 6):
        ask(owner, sequence)
    with pytest.raises(BudgetSpentError, match="all 5 promised"):
        ask(owner, 6)


def test_retry_is_replayed(owner, make_terms):
    owner.enroll(make_terms())
    first = ask(owner, 1)
    np.testing.assert_array_equal(ask(owner, 1), first)
    with pytest.raises(OrderError, match="another theta"):
        ask(owner, 1, np.zeros(4))
    assert owner.enroll(make_terms()).answered == 1
    assert not np.array_equal(ask(owner, 2), first)


def test_theta_outside_the_box_is_refused(owner, make_terms):
    owner.enroll(make_terms())
    for bad in (
        np.array([0.0, 0.0, 0.0, np.nextafter(2.0, 3.0)]),
        np.array([0.0, np.nan, 0.0, 0.0]),
        np.zeros(3),
        np.zeros(0),
    ):
        with pytest.raises(MalformedError):
            ask(owner, 1, bad)
    assert owner.enroll(make_terms()).answered == 0


def test_an_offer_charges_nothing(owner, make_terms):
    owner.enroll(make_terms())
    assert owner.offer("study-1")
    assert owner.enroll(make_terms()).answered == 0


def test_a_query_before_enrolment_or_out_of_order_is_refused(owner, make_terms):
    with pytest.raises(OrderError, match="enrol"):
        ask(owner, 1)
    owner.enroll(make_terms())
    with pytest.raises(OrderError, match="the next one is 1"):
        ask(owner, 2)


def test_a_closed_study_answers_nothing(owner, make_terms):
    owner.enroll(make_terms())
    ask(owner, 1)
    owner.close("study-1")
    with pytest.raises(OrderError, match="closed"):
        ask(owner, 2)


def test_moments_are_released_once_and_are_the_records_own(owner, make_terms):
    terms = make_terms(release="moments", responses=1, epsilon=Fraction(10))
    enrollment = owner.enroll(terms)
    packed = ask(owner, 1, np.zeros(4))
    assert packed.shape == (14,)
    np.testing.assert_array_equal(ask(owner, 1, np.zeros(4)), packed)
    # The constant feature's own square is 1, and noise is all that hides it.
    assert 0 < abs(packed[9] - 1.0) < 20 * enrollment.noise_scale
    with pytest.raises(BudgetSpentError):
        ask(owner, 2, np.zeros(4))
    with pytest.raises(MalformedError):
        ask(owner, 2, np.zeros(14))


def test_over_the_network_equals_in_memory_bit_for_bit(
    feature_map, owner_folder, serve_owner, make_terms
):
    settings = owner_folder()
    running = serve_owner(settings, insecure_noise_seed=SEED)
    remote = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=20)
    local = memory_twin(settings, feature_map)
    for clip in (None, 0.3):
        terms = make_terms(clip=clip, study_id=f"study-{clip}", epsilon=Fraction(1, 3))
        assert remote.enroll(terms) == local.enroll(terms)
        for sequence in range(1, 11):
            theta = np.full(4, 0.07 * sequence)
            query = Query(study_id=terms.study_id, sequence=sequence, theta=theta)
            a, b = remote.answer(query).gradient, local.answer(query).gradient
            assert a.tobytes() == b.tobytes()
    remote.disconnect()
