"""Make mistakes with every command, and write docs/messages.md: what each of them says.

python scripts/messages.py            writes the document
python scripts/messages.py --check    exit status 1 if it would change
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from message_files import INVITED, OWNER, STUDY, write_files

from common.errors import CoprivError
from common.features import load_feature_map
from common.losses import Squared
from common.model import Model
from learner.cli import cli as copriv
from owner.cli import cli as copriv_owner

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "messages.md"
COMMANDS = {"copriv": copriv, "copriv-owner": copriv_owner}

HEAD = """\
# What the commands say

Mistakes that people make, and the sentence that each of them is answered with: what is wrong,
where, what was expected, what to do. None leaves a traceback, writes half a file or charges a
budget. Exit status 2 is bad input, 3 a budget or a policy that refuses, 4 owners that were there
and have gone, a database that is away, or a full disk. An owner that is not there at the very
start is bad input, as a wrong address looks the same
([all cases](deployment.md#exit-status-for-supervisors)).
`python scripts/messages.py` makes the mistakes and writes this page.

| mistake | typed | answer | status |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Mistake:
    """Something typed that is wrong.

    Args:
      what: What is wrong with it.
      typed: The command.
      study: Changes of the study's file: old text, new text.
      owner: Changes of the owner's file.
      files: More files.
    """

    what: str
    typed: str
    study: tuple[str, str] | None = None
    owner: tuple[str, str] | None = None
    files: dict[str, str] = field(default_factory=dict)


def of_study(what: str, old: str, new: str, typed: str = "copriv simulate study.toml") -> Mistake:
    return Mistake(what, typed, study=(old, new))


def of_owner(
    what: str, old: str, new: str, typed: str = "copriv-owner check owner.toml"
) -> Mistake:
    return Mistake(what, typed, owner=(old, new))


def of_set(what: str, *settings: str, command: str = "simulate study.toml") -> Mistake:
    changes = [f"--set {shlex.quote(one)}" for one in settings]
    return Mistake(what, " ".join([f"copriv {command}", *changes]))


MISTAKES = (
    # files
    Mistake("a study that is not there", "copriv simulate spring.toml"),
    Mistake("a file that is not TOML", "copriv simulate bad.toml", files={"bad.toml": "name = \n"}),
    Mistake("an owner's file where a study's is wanted", "copriv simulate owner.toml"),
    Mistake("a study's file where an owner's is wanted", "copriv-owner check study.toml"),
    Mistake("a table where a study's file is wanted", "copriv simulate stays.csv"),
    Mistake(
        "a folder where a study's file is wanted",
        "copriv simulate new",
        files={"new/study.toml": ""},
    ),
    Mistake("a folder where a file is wanted", "copriv export model.json --to sql --out ."),
    Mistake("a file where a run's folder is wanted", "copriv report model.json"),
    # keys
    of_study("a key misspelt", "epsilon = 1", "epsylon = 1"),
    of_study("a key in another table", "theta_max = 2", "theta_max = 2\nhorizon = 3"),
    of_study("a table misspelt", "[privacy]", "[privcy]"),
    of_study("a key that is missing", "theta_max = 2", ""),
    of_study("no owner", STUDY[STUDY.index("[[owners]]") :], ""),
    of_study("an owner twice", 'name = "south"', 'name = "north"'),
    of_study("a name with a space", '"north"', '"north bay"'),
    of_study("a token that is a bare file name", "deadline = 1", 'token = "z.token"'),
    of_study("a text for a number", "theta_max = 2", 'theta_max = "two"'),
    of_study("a list for a text", 'target = "days"', 'target = ["days"]'),
    of_set("a text for a table", "model=small"),
    of_set("a decimal comma", "privacy.epsilon=0,5"),
    of_set("a key that is set to nothing", "privacy.epsilon"),
    of_set("a negative budget", "privacy.epsilon=-1"),
    of_set("a budget that is not a number", "privacy.epsilon=much"),
    of_set("all of epsilon kept for validation", "privacy.validation=1"),
    of_set("an unknown loss", "model.loss=square"),
    of_set("a loss without its parameter", "model.loss=huber"),
    of_set("a parameter of another loss", "model.delta=1"),
    of_set("an unknown algorithm", "algorithm.name=asynchron"),
    of_set("a key of another algorithm", "algorithm.initial_step=1"),
    of_set("a horizon of zero", "algorithm.horizon=0"),
    of_set("a clip without clipping", "privacy.sensitivity=domain", "privacy.clip=1"),
    of_set("a malformed range of rows", "features.public.rows=40"),
    of_set("a malformed condition", "features.public.where.age={above=3}"),
    of_set("a range upside down", "features.public.where.age={min=9,max=3}"),
    of_set("an address without a port", "network.listen=0.0.0.0"),
    of_set("a group of strangers", 'groups=[["west"]]'),
    of_set("a learner's own shard, shown to all", "learner.own=north"),
    # tables
    of_study("a table that is not there", '"stays.csv"', '"stay.csv"'),
    of_study("no table at all", 'path = "stays.csv"', ""),
    of_study("a table of another kind", '"stays.csv"', '"stays.xlsx"'),
    Mistake("a wrong separator", "copriv simulate study.toml --set 'data.separator=;'"),
    Mistake(
        "rows wider than the header",
        "copriv features fit study.toml --data wide.csv",
        files={"wide.csv": "age,days\n1,2,3\n4,5,6\n"},
    ),
    Mistake("a pattern of no file", "copriv features fit study.toml --data 'stays-*.csv'"),
    of_study("a column misspelt", 'target = "days"', 'target = "dayz"'),
    of_study("an input column misspelt", '"sex"]', '"sexe"]'),
    of_study("a condition on a column that is not there", "county =", "country ="),
    of_study("a condition that nothing satisfies", '"North"', '"Nort"'),
    of_study("a database without a query", 'path = "stays.csv"', 'database = "env:STAYS"'),
    Mistake("a database whose address is nowhere", "copriv features fit nodata.toml"),
    of_set("a query for a file", 'data.query="select 1"'),
    # targets
    of_set(
        "a class that no record has",
        "features.target=died",
        "features.positive=1",
        "model.loss=logistic",
    ),
    of_set("classes for a loss of numbers", "features.target=died", "features.positive=yes"),
    of_set("numbers for a loss of classes", "model.loss=logistic"),
    of_set("a target of words", "features.target=died"),
    of_set("records without a target", "features.target=gaps"),
    of_set("more components than columns", "features.components=9"),
    # commands
    Mistake("an unknown option", "copriv simulate study.toml --outt x"),
    Mistake("an option before the command", "copriv --set seed=2 simulate study.toml"),
    Mistake("an option behind the command", "copriv simulate study.toml --log-format json"),
    Mistake("an unknown command", "copriv simulat study.toml"),
    Mistake("a malformed change", "copriv simulate study.toml --set epsilon"),
    Mistake("a run folder that is full", "copriv simulate study.toml --out ."),
    Mistake("train without an address", "copriv train study.toml"),
    Mistake("train without anything", "copriv train"),
    Mistake("a run to go on with that was not begun", "copriv train --resume nothing"),
    of_study(
        "an owner that nobody serves",
        'name = "south"\n',
        'name = "south"\naddress = "127.0.0.1:1"\n',
        """copriv train study.toml --set 'owners=[{name="n",address="127.0.0.1:1"}]' --out run""",
    ),
    Mistake(
        "plain text to another machine",
        'copriv train study.toml --set \'owners=[{name="n",address="n.example:50051"}]\'',
    ),
    Mistake("a report on something that is not a run", "copriv report ."),
    Mistake("a report on a forecast", "copriv report f", files={"f/forecast.json": "{}"}),
    Mistake("a comparison of runs that are not there", "copriv report runs/spring runs/autumn"),
    Mistake(
        "a prediction without a model", "copriv predict runs/spring --data stays.csv --out p.csv"
    ),
    Mistake("a table for a model", "copriv predict stays.csv --data stays.csv --out p.csv"),
    Mistake("a prediction in a sheet", "copriv predict model.json --data stays.csv --out p.xls"),
    Mistake("an export under a name of another", "copriv export model.json --to onnx --out p.json"),
    Mistake("a table without a column", "copriv predict model.json --data bare.csv --out p.csv"),
    Mistake("a quality without the target", "copriv evaluate model.json --data bare.csv"),
    Mistake("an export to no folder", "copriv export model.json --to sql --out gone/spring.sql"),
    of_study(
        "a forecast without public records",
        'public = { rows = ":40" }\ntarget = "days"\ncolumns = ["age", "sex"]',
        'map = "features.json"',
        "copriv forecast study.toml",
    ),
    Mistake(
        "a forecast for a stranger", "copriv forecast study.toml --set forecast.records.west=9"
    ),
    Mistake("a grid of no values", "copriv sweep study.toml --grid privacy.epsilon"),
    Mistake("a grid of a key misspelt", "copriv sweep study.toml --grid privacy.epsylon=1,10"),
    Mistake("a grid of a wrong value", "copriv sweep study.toml --grid privacy.epsilon=1,-1"),
    Mistake("more owners than there are", "copriv sweep study.toml --grid owners=2,3"),
    Mistake("a grid of seeds", "copriv sweep study.toml --grid seed=1,2,3"),
    Mistake(
        "a sweep that is too large",
        "copriv sweep study.toml --grid privacy.epsilon=1,10 --seeds 900000",
    ),
    of_study(
        "a sweep of owners that begin",
        "horizon = 4",
        'horizon = 4\ninitiative = "owner"',
        "copriv sweep study.toml --seeds 3",
    ),
    Mistake(
        "a folder with another sweep's points",
        "copriv sweep study.toml --seeds 3 --out sweep",
        files={"sweep/grid.json": "{}"},
    ),
    Mistake("a certificate for nobody", "copriv certs"),
    Mistake("certificates of owners without an address", "copriv certs study.toml"),
    Mistake("a certificate for a name with a space", "copriv certs --owner a/b=host"),
    Mistake("an unknown figure", "copriv reproduce A99"),
    Mistake("a figure without its records", "copriv reproduce A4"),
    Mistake(
        "predictions in the place of a table",
        "copriv predict model.json --data stays.csv --out north.csv",
    ),
    Mistake(
        "a feature map in the place of a study", "copriv features fit study.toml --out study.toml"
    ),
    Mistake("a new study without a target", "copriv init stays.csv --yes"),
    Mistake(
        "a new study of one class",
        "copriv init stays.csv --target died --positive no --positive yes --yes",
    ),
    Mistake("a new study's target misspelt", "copriv init stays.csv --target dayz --yes"),
    Mistake(
        "owners by a column misspelt", "copriv init stays.csv --target days --owners contry --yes"
    ),
    Mistake(
        "a row of totals below the records", "copriv init totals.csv --target days --owners 2 --yes"
    ),
    Mistake("more owners than records", "copriv init stays.csv --target days --owners 3000 --yes"),
    Mistake(
        "more public rows than there are", "copriv init stays.csv --target days --public 999 --yes"
    ),
    Mistake("a key that is to be explained, misspelt", "copriv settings privacy.epsylon"),
    # several sites
    Mistake("a run to close that was never begun", "copriv close nothing"),
    Mistake("a request before there was an invitation", "copriv admit north.request --yes"),
    Mistake(
        "a request that is not there",
        "copriv admit north.request --yes",
        files={"certs/ca/invited.json": INVITED},
    ),
    Mistake(
        "a request that is a table",
        "copriv admit stays.csv --yes",
        files={"certs/ca/invited.json": INVITED},
    ),
    of_study("an invitation without an address", "", "", "copriv invite study.toml"),
    of_set("a check of sites with a key misspelt", "privacy.epsylon=1", command="check study.toml"),
    of_set(
        "the same, seen by doctor on a machine", "privacy.epsylon=1", command="doctor study.toml"
    ),
    Mistake(
        "an invitation where a study's file is wanted",
        "copriv train north.invitation",
        files={"north.invitation": '{"format": "copriv-invitation/1"}'},
    ),
    Mistake(
        "a request where an owner's file is wanted",
        "copriv-owner serve north.request",
        files={"north.request": '{"format": "copriv-request/1"}'},
    ),
    Mistake(
        "a study where an invitation is wanted", "copriv-owner join study.toml --data north.csv"
    ),
    Mistake("an invitation that is not there", "copriv-owner join gone --data north.csv"),
    Mistake("an invitation that is a table", "copriv-owner join stays.csv --data north.csv"),
    # owners
    Mistake("an owner's key, misspelt", "copriv-owner settings policy.epsilon"),
    Mistake("a column for learners, misspelt", "copriv-owner init stays.csv --column aged --yes"),
    Mistake("an owner's file that is there", "copriv-owner init stays.csv --yes"),
    Mistake(
        "a budget of zero",
        "copriv-owner init stays.csv --out new.toml --epsilon-per-study 0 --yes",
    ),
    Mistake(
        "more for one study than for all",
        "copriv-owner init stays.csv --out new.toml --epsilon-per-study 5 --yes",
    ),
    Mistake("a new owner of a table without a header", "copriv-owner init headless.csv --yes"),
    of_owner("a key of an owner misspelt", "epsilon_per_study", "epsilon_per_studie"),
    of_owner("a policy without a budget", "epsilon_lifetime = 2", ""),
    of_owner(
        "an unknown way to validate",
        "epsilon_lifetime = 2",
        'epsilon_lifetime = 2\nvalidation = "hidden"',
    ),
    of_owner(
        "learners who are all struck off",
        "epsilon_lifetime = 2",
        "epsilon_lifetime = 2\nlearners = []",
    ),
    of_owner("a column that the table does not have", '"days"]', '"day"]'),
    of_owner("a table of an owner that is not there", "north.csv", "nord.csv"),
    of_owner("the same, seen by doctor", "north.csv", "nord.csv", "copriv-owner doctor owner.toml"),
    of_owner("a first line that is a record", "north.csv", "headless.csv"),
    of_owner("a ledger that is another file", "[data]", 'ledger = "stays.csv"\n[data]'),
    of_owner("a file that is not a feature map", "[data]", 'features = "stays.csv"\n[data]'),
    of_owner(
        "targets left out without a feature map", "[policy]", 'missing_target = "drop"\n[policy]'
    ),
    Mistake(
        "a loss that an owner does not know",
        "copriv-owner check owner.toml --features map.json --loss square",
    ),
    Mistake(
        "more epsilon than the policy spends",
        "copriv-owner check owner.toml --features map.json --epsilon 9",
    ),
    of_owner(
        "plain text to everybody", "127.0.0.1:0", "0.0.0.0:0", "copriv-owner serve owner.toml"
    ),
    Mistake("an address without a port, typed", "copriv-owner serve owner.toml --listen here"),
    Mistake("attach to nobody", "copriv-owner attach owner.toml"),
    Mistake("a ledger that is not there", "copriv-owner ledger show gone.sqlite"),
    Mistake("a ledger that is a table", "copriv-owner ledger verify stays.csv"),
    Mistake("a token for a name with a space", "copriv-owner token a/b"),
    Mistake("a token that is there", "copriv-owner token lab --out stays.csv"),
    Mistake("a model that is not there", "copriv-owner evaluate owner.toml gone.json"),
    Mistake("a model adapted to few records", "copriv-owner personalise few.toml model.json"),
    Mistake("the health of an owner that is not there", "copriv-owner health 127.0.0.1:1"),
)


@dataclass(frozen=True)
class Answer:
    """What a mistake was answered with."""

    mistake: Mistake
    said: str
    status: int


def prepare(folder: Path) -> None:
    """The files that mistakes are made with."""
    write_files(folder)
    answer("copriv features fit study.toml --out map.json")
    fitted = load_feature_map(folder / "map.json")
    model = Model(feature_map=fitted, loss=Squared(), theta=np.zeros(fitted.num_features))
    (folder / "model.json").write_text(model.to_json())


def answer(typed: str) -> tuple[str, int]:
    """What a command says, and its exit status; a traceback is an error of this program."""
    name, *arguments = shlex.split(typed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(COMMANDS[name], arguments, prog_name=name)
    if isinstance(result.exception, CoprivError):
        return str(result.exception), result.exception.exit_status
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    return lines[-1].removeprefix("Error: ") if lines else "", result.exit_code


def make(mistake: Mistake, folder: Path) -> Answer:
    """Make one mistake, in a folder that is as it was before."""
    for name, text, change in (
        ("study.toml", STUDY, mistake.study),
        ("owner.toml", OWNER, mistake.owner),
    ):
        old, new = change or ("", "")
        if old not in text:
            raise ValueError(f"{mistake.what}: {old!r} is not in {name}")
        (folder / name).write_text(text.replace(old, new, 1))
    for name, text in mistake.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    before = {path.name for path in folder.iterdir()}
    with contextlib.chdir(folder):
        said, status = answer(mistake.typed)
    for path in folder.iterdir():
        if path.name not in before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return Answer(mistake, said.replace(f"{folder}/", "").replace(str(folder), "."), status)


def answers() -> list[Answer]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        with contextlib.chdir(folder):
            prepare(folder)
        return [make(mistake, folder) for mistake in MISTAKES]


def document(found: list[Answer]) -> str:
    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("\n", "<br>")

    lines = [
        f"| {cell(a.mistake.what)} | `{cell(a.mistake.typed)}` | {cell(a.said)} | {a.status} |"
        for a in found
    ]
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    text = document(answers())
    if "--check" in sys.argv:
        return int(text != DOCUMENT.read_text(encoding="utf-8"))
    DOCUMENT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
