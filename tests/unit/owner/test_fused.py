"""The compiled gradient is the one in blocks, to 1e-12, in one order, and from a safe place."""

import ctypes
import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from common.losses import LOSSES
from common.own_files import compiled_code_folder, own_folder
from common.stretches import BLOCK_CELLS, STRETCHES
from common.terms import Records
from owner import core, fused, gradients
from owner.core import COMPILED_CELLS, exact_answer, is_worth_compiling, mean_gradient
from owner.shards import Shard

EVERY_FLAG = 31
ROOT = Path(core.__file__).parents[1]


def records_of(n, p, *, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, p)).astype(dtype)
    return Records(features=features, targets=np.sign(rng.uniform(-1, 1, n)))


@pytest.fixture(scope="module", autouse=True)
def _compiled_once():
    """Kept where the user keeps it, so that tests compile once for all runs."""
    for name in fused.SLOPES:
        for clipped in (False, True):
            fused.kernel(name, clipped=clipped, kept_in=compiled_code_folder)


def test_every_loss_is_compiled_or_computed_in_blocks():
    assert set(fused.SLOPES) <= set(LOSSES)
    # A loss that is added later may do without; those of today do not.
    assert {"squared", "hinge", "logistic", "huber"} <= set(fused.SLOPES)


@pytest.mark.parametrize("clip", [None, 1e-3, 0.5, 1e6])
@pytest.mark.parametrize("loss", fused.SLOPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 100), (8, 13), (1001, 10), (200, 257)])
def test_the_compiled_gradient_is_the_one_in_blocks(shape, loss, clip):
    kind, records = LOSSES[loss].example(), records_of(*shape)
    theta = np.linspace(-1, 1, shape[1])
    part = gradients.by_compiled_code(records, theta, loss=kind, clip=clip)
    (told,) = part(0, shape[0])
    norms = np.abs(records.features).sum(axis=1)
    (expected,) = gradients.in_blocks(records, norms, theta, loss=kind, clip=clip)(0, shape[0])
    slopes = kind.slopes(records.features @ theta, records.targets)
    if clip is not None:
        slopes = np.clip(slopes, -clip / norms, clip / norms)
    size = np.abs(slopes) @ np.abs(records.features)
    assert np.max(np.abs(told - expected) / np.maximum(size, 1e-300)) < 1e-12


@pytest.mark.parametrize("loss", fused.SLOPES)
def test_slopes_are_those_of_the_loss_everywhere(loss):
    kind = LOSSES[loss].example()
    one = Records(features=np.ones((1, 1)), targets=np.ones(1))
    for z in [0.0, -0.0, 1.0, 1 - 1e-16, 1e-320, -1e-9, 0.5, -3.0, 36.0, -40.0, 299.0, -1e5, 1e100]:
        for y in (-1.0, 1.0):
            one.targets[0] = y
            part = gradients.by_compiled_code(one, np.array([z]), loss=kind, clip=None)
            expected = kind.slopes(np.array([z]), np.array([y]))[0]
            assert part(0, 1)[0][0] == pytest.approx(expected, rel=1e-13, abs=1e-16)


@pytest.mark.parametrize("clip", [None, 0.5, 1e250])
@pytest.mark.parametrize("loss", fused.SLOPES)
def test_no_record_raises_a_flag_of_the_processor(loss, clip):
    """Raising one takes about as long as a record: so a record of zeros could be told by time."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    raised = []
    for record in (0.3, 0.0):
        records = records_of(5, 3)
        records.features[2:5:2] = record
        part = gradients.by_compiled_code(
            records, np.ones(3), loss=LOSSES[loss].example(), clip=clip
        )
        part(0, 5)
        library.feclearexcept(EVERY_FLAG)
        part(0, 5)
        raised.append(library.fetestexcept(EVERY_FLAG))
    assert raised[0] == raised[1]


@pytest.mark.parametrize("loss", fused.SLOPES)
def test_a_slope_passes_its_bound_by_few_roundings(loss):
    """Where it is computed least well, and alone: what is counted is more for each record."""
    kind = LOSSES[loss].example()
    one = Records(features=np.ones((1, 1)), targets=np.ones(1))
    for z in np.linspace(-1.0, 1.0, 2001):
        part = gradients.by_compiled_code(one, np.array([z]), loss=kind, clip=None)
        slope = abs(part(0, 1)[0][0])
        assert slope <= kind.slope_bound(abs(z), 1.0) * (1 + 40 * 2.0**-53)


def test_a_record_of_zeros_has_no_gradient_to_clip():
    zeros = Records(features=np.zeros((5, 3)), targets=np.ones(5))
    for loss in fused.SLOPES:
        part = gradients.by_compiled_code(zeros, np.ones(3), loss=LOSSES[loss].example(), clip=1.0)
        np.testing.assert_array_equal(part(0, 5)[0], 0.0)


@pytest.mark.parametrize("n", [1, 2, 3, 50, 51])
def test_no_record_counts_for_more_than_the_clip_and_each_counts_once(n):
    clip, records = 0.01, records_of(n, 4)
    theta = np.full(4, 0.3)
    for loss in fused.SLOPES:
        kind = LOSSES[loss].example()
        whole = gradients.by_compiled_code(records, theta, loss=kind, clip=clip)
        assert whole is not None
        alone = np.zeros(4)
        for i in range(n):
            (one,) = whole(i, i + 1)
            assert np.abs(one).sum() <= clip * (1 + 1e-12)
            alone += one
        np.testing.assert_allclose(whole(0, n)[0], alone, rtol=1e-10, atol=1e-16)


def test_compiled_gradients_have_the_same_bits_on_any_number_of_threads():
    records = records_of((STRETCHES + 3) * BLOCK_CELLS // 5, 5)
    theta = np.linspace(-1, 1, 5)
    answers = [
        mean_gradient(
            Shard(records, threads=threads),
            theta,
            loss=LOSSES["logistic"](),
            clip=0.5,
            compiled=True,
        )
        for threads in (1, 2, 5)
    ]
    assert any(answers[0])
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


ELSEWHERE = """
import hashlib, sys
import numpy as np
from fractions import Fraction
from common.terms import Records, StudyTerms
from owner.core import Shard, exact_answer, is_worth_compiling
rng = np.random.default_rng(0)
features = rng.normal(size=(50_000, 7))
records = Records(features=features, targets=np.sign(rng.uniform(-1, 1, 50_000)))
terms = StudyTerms(study_id="s", loss="logistic", theta_max=1.0, feature_map="", clip=0.5,
    horizon=10**5, responses=10**5, epsilon=Fraction(1))
shard = Shard(records, threads=int(sys.argv[1]))
assert is_worth_compiling(shard, terms)
print(hashlib.sha256(exact_answer(shard, np.linspace(-1, 1, 7), terms).tobytes()).hexdigest())
"""


@pytest.mark.long
def test_owners_in_other_processes_give_the_same_bits():
    told = {
        subprocess.run(
            [sys.executable, "-c", ELSEWHERE, threads], capture_output=True, text=True, check=True
        ).stdout
        for threads in ("1", "3")
    }
    assert len(told) == 1
    assert len(told.pop().strip()) == 64


def test_code_is_compiled_only_where_a_study_gains(make_terms):
    shard = Shard(records_of(BLOCK_CELLS // 2 + 1, 2))
    enough = COMPILED_CELLS // (BLOCK_CELLS + 2) + 1
    many = {"horizon": 10**6, "responses": enough}
    assert is_worth_compiling(shard, make_terms(loss="hinge", **many))
    assert is_worth_compiling(shard, make_terms(loss="squared", clip=1.0, **many))
    # Moments say all of it.
    assert not is_worth_compiling(shard, make_terms(loss="squared", **many))
    fewer = {"horizon": 10**6, "responses": enough - 1}
    assert not is_worth_compiling(shard, make_terms(loss="hinge", **fewer))
    small = Shard(records_of(BLOCK_CELLS // 2, 2))
    assert not is_worth_compiling(small, make_terms(loss="hinge", horizon=10**6, responses=10**6))


def test_without_numba_blocks_are_added_by_numpy(monkeypatch, make_terms):
    shard = Shard(records_of(BLOCK_CELLS, 2))
    terms = make_terms(loss="logistic", horizon=10**6, responses=10**5)
    told = exact_answer(shard, np.ones(2), terms)
    monkeypatch.setattr(gradients, "find_spec", lambda name: None)
    np.testing.assert_allclose(exact_answer(shard, np.ones(2), terms), told, rtol=1e-11)


def test_the_first_answer_compiles_nothing(make_terms):
    shard = Shard(records_of(BLOCK_CELLS, 2, seed=3))
    terms = make_terms(loss="huber", delta=0.5, horizon=10**6, responses=10**5, clip=0.25)
    core.warm(shard, terms, kept_in=compiled_code_folder)
    kernel = fused.kernel("huber", clipped=True)
    compiled = len(kernel.signatures)
    # As it comes from the wire: read only.
    theta = np.frombuffer(np.ones(2).tobytes())
    exact_answer(shard, theta, terms)
    assert len(kernel.signatures) == compiled


def test_owners_do_not_import_numba_until_a_study_gains():
    text = "import sys, owner.server, learner.training.memory_owner; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


FIRST_KERNEL = """
import os, sys
from pathlib import Path
{before}
from owner import fused
{between}
made = fused.kernel("squared", clipped=True, kept_in=lambda: os.environ["KEPT_IN"])
assert fused._is_right(made, "squared", clipped=True, storage="float64")
import yaml
"""
LIE_IN_WAIT = "Path('.numba_config.yaml').write_text(os.environ['SAYS'])"


@pytest.mark.parametrize(
    ("when", "says"),
    [
        *(("before", says) for says in ("dump_html: {}", "disable_jit: 1", "7: 1")),
        ("before", "cache_locator_classes: a.B"),
        *(("between", says) for says in ("dump_html: {}", "disable_jit: 1")),
    ],
)
def test_a_file_in_the_working_folder_sets_no_compiler(tmp_path, when, says):
    """Numba takes settings from there, if it finds yaml: also which file it shall write to."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    text = FIRST_KERNEL.format(**{"before": "", "between": "", when: LIE_IN_WAIT})
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", text],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "SAYS": says.format(precious), "KEPT_IN": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert precious.read_text() == "mine"


def test_compiled_code_is_read_only_from_a_folder_of_this_user_alone(tmp_path):
    tmp_path.chmod(0o700)
    mine = own_folder(tmp_path / "a" / "mine")
    assert mine.stat().st_mode & 0o777 == 0o700
    assert own_folder(mine) == mine
    for mode in (0o701, 0o710, 0o770, 0o777, 0o755):
        mine.chmod(mode)
        assert own_folder(mine) is None
    mine.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(mine)
    assert own_folder(link) is None
    file = tmp_path / "file"
    file.touch(mode=0o600)
    assert own_folder(file) is None
    assert own_folder(file / "below") is None
    # Who may write to the folder above may put another one in its place.
    (tmp_path / "a").chmod(0o777)
    assert own_folder(mine) is None
    (mine / "inner").mkdir(mode=0o700)
    assert own_folder(link / "inner") is None
    # Others may not where the folder is sticky, and a group is the user's own.
    for mode in (0o1777, 0o770):
        (tmp_path / "a").chmod(mode)
        assert own_folder(mine) == mine


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away")
def test_a_folder_of_another_user_is_not_used(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 65534, 65534)
    assert own_folder(theirs) is None


def test_code_is_kept_in_the_users_cache_and_nowhere_if_others_may_write_there(tmp_path, caplog):
    tmp_path.chmod(0o700)
    kept = compiled_code_folder({"XDG_CACHE_HOME": str(tmp_path)})
    assert kept == str(tmp_path / "copriv" / "compiled")
    Path(kept).chmod(0o777)
    assert compiled_code_folder({"XDG_CACHE_HOME": str(tmp_path)}) is None
    assert "chmod 700" in caplog.text
    assert compiled_code_folder({"XDG_CACHE_HOME": "relative"}) is None


@pytest.mark.parametrize("other", ["raise AssertionError('loaded')", None])
def test_compiled_code_of_another_version_is_not_loaded(tmp_path, monkeypatch, other):
    """An upgrade under a running owner: its clip may not be the one that the noise is for."""
    records, loss = records_of(8, 3), LOSSES["squared"].example()
    monkeypatch.delitem(sys.modules, "owner.fused")
    monkeypatch.setattr(sys.modules["owner"], "__path__", [str(tmp_path)])
    if other is not None:
        (tmp_path / "fused.py").write_text(other)
    assert gradients.by_compiled_code(records, np.zeros(3), loss=loss, clip=1.0) is None


IN_A_PROCESS = """
import sys, numpy as np
from common.losses import LOSSES
from common.terms import Records
from owner import gradients
rng = np.random.default_rng(0)
records = Records(features=rng.normal(size=(9, 3)), targets=np.sign(rng.uniform(-1, 1, 9)))
theta, norms = np.ones(3), np.abs(records.features).sum(axis=1)
for kernel in sys.argv[2:]:
    name, clipped = kernel.split(":")
    loss, clip = LOSSES[name].example(), 0.125 if clipped == "1" else None
    part = gradients.by_compiled_code(
        records, theta, loss=loss, clip=clip, kept_in=lambda: sys.argv[1]
    )
    [expected] = gradients.in_blocks(records, norms, theta, loss=loss, clip=clip)(0, 9)
    np.testing.assert_allclose(part(0, 9)[0], expected, rtol=1e-11, atol=1e-13)
"""


def in_a_process(folder, *kernels):
    """What a process says that computes by these kernels, compiled or read from a folder."""
    command = [sys.executable, "-c", IN_A_PROCESS, str(folder), *kernels]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_each_kernel_is_kept_under_a_name_of_its_own(tmp_path):
    """Two processes that count alike gave two kernels one symbol: a third one had to fail."""
    for kernels in (("squared:1", "hinge:0"), ("hinge:1", "huber:1")):
        assert in_a_process(tmp_path, *kernels) == ""
    assert in_a_process(tmp_path, "hinge:0", "huber:1") == ""
    kept = [path.name.partition("-")[0] for path in tmp_path.rglob("*.nbc")]
    assert sorted(kept) == [
        "fused.total_hinge_clipped_float64",
        "fused.total_hinge_whole_float64",
        "fused.total_huber_clipped_float64",
        "fused.total_squared_clipped_float64",
    ]


@pytest.mark.parametrize("damage", ["other code", "no code"])
def test_kept_code_that_is_not_right_is_not_used(tmp_path, damage):
    """Without its clip a kernel would give what the noise does not hide."""
    assert in_a_process(tmp_path, "huber:0", "huber:1") == ""
    [clipped], [whole] = (list(tmp_path.rglob(f"*huber_{n}*.nbc")) for n in ("clipped", "whole"))
    clipped.write_bytes(whole.read_bytes() if damage == "other code" else b"damaged")
    assert "cannot be used and is not; remove" in in_a_process(tmp_path, "huber:1")
