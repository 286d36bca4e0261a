"""copriv as it is installed without any extra."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "examples" / "hospitals.toml"
# A module that stands as None is one that Python does not find.
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(","), None))
from learner.cli import main
main()
"""


def running(folder, program, *first, **environment):
    """The command as this program begins it, in a process of its own."""

    def typed(*words):
        return subprocess.run(
            [sys.executable, "-c", program, *first, *map(str, words)],
            cwd=folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return typed


@pytest.fixture
def copriv(tmp_path):
    """The command, in a process that has no package of an extra."""
    return running(tmp_path, WITHOUT, ",".join([*EXTRAS, "numba"]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("forecast", STUDY, "--quick", "--jobs", 1, "--out", "out"), "forecast folder: out"),
        (
            ("sweep", STUDY, "--grid", "privacy.epsilon=1", "--seeds", 2, "--out", "out"),
            "sweep folder: out",
        ),
        (("simulate", STUDY, "--in-memory", "--out", "out"), "run folder: out"),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_no_study_needs_an_extra(copriv, words, said):
    done = copriv(*words)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


HOMELESS = """
import sys, tempfile
def none(*_, **__):
    raise FileNotFoundError("No usable temporary directory found")
tempfile.mkdtemp = none
from learner.cli import main
main()
"""


@pytest.fixture
def homeless(tmp_path):
    """As in a container of another user, whose root file system is read-only."""
    return running(tmp_path, HOMELESS, MPLCONFIGDIR="/dev/null/none")


def test_a_forecast_has_no_picture_where_no_folder_can_be_written_but_its_own(homeless, tmp_path):
    done = homeless("forecast", STUDY, "--quick", "--jobs", "1", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "no forecast.png is drawn: Matplotlib requires access to a writable" in done.stderr
    assert {"forecast.json", "forecast.html"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }


def test_pictures_of_the_papers_need_a_folder_that_can_be_written(homeless):
    done = homeless("reproduce", "A4", "--loans", "loans.csv")
    assert done.returncode == 2
    # Matplotlib says before that which folder it tried.
    *_, said = done.stderr.splitlines()
    needed = "this command needs a folder that matplotlib can write to; set MPLCONFIGDIR to one"
    assert said == f"copriv: {needed}"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("forecast", STUDY, "--quick", "--jobs", "1", "--out", "out"), 0),
        (("reproduce", "A4", "--loans", "loans.csv"), 2),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_a_file_in_the_working_folder_sets_no_pictures(tmp_path, words, status):
    """Matplotlib's settings there may be a stranger's: some versions run what they say."""
    (tmp_path / "matplotlibrc").write_text("figure.dpi: none\n")
    done = running(tmp_path, WITHOUT, "numba")(*words)
    assert done.returncode == status, done.stderr
    assert "matplotlibrc" not in done.stderr
    assert (status == 0) == (tmp_path / "out" / "forecast.png").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("reproduce", "A4", "--loans", "loans.csv"), "copriv: this command needs the package mat"),
        (
            ("sweep", STUDY, "--grid", "privacy.epsilon=1", "--cluster", "localhost:8786"),
            "copriv: --cluster needs the package distributed; pip install 'copriv[cluster]'",
        ),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_what_needs_an_extra_names_it_in_a_sentence(copriv, words, said):
    done = copriv(*words)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("used", "said"),
    [
        ("learner.FederatedRegressor", "FederatedRegressor needs the package scikit-learn; pip i"),
        ("from learner import FederatedClassifier", "needs the package scikit-learn; pip install"),
        (
            "learner.Run.load(sys.argv[1]).plot()",
            "plot() needs the package matplotlib; pip install 'copriv[lab]'",
        ),
    ],
)
def test_what_needs_an_extra_names_it_in_python_too(tmp_path, copriv, used, said):
    program = WITHOUT.partition("from learner")[0] + f"import learner\n{used}"
    if "load" in used:
        assert copriv("simulate", STUDY, "--in-memory", "--out", "out").returncode == 0
    done = running(tmp_path, program, ",".join(EXTRAS))("out")
    *_, last = done.stderr.splitlines()
    assert last.startswith("common.errors.InputError: ")
    assert said in last


def test_pictures_leave_a_notebooks_own_way_of_showing_them(tmp_path):
    """After a picture of ours the notebook showed none of its own."""
    program = (
        "import matplotlib, learner.results.plots, learner.results.forecast_picture, "
        "learner.reproduction.drawings; print(matplotlib.get_backend())"
    )
    done = running(tmp_path, program, MPLBACKEND="svg")()
    assert done.stdout == "svg\n", done.stderr
