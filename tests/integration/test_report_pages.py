"""The pages in a browser: no error, no sideways scroll, readable, whatever width and light.

Contrast and structure are checked by checks of our own (tests/tools/probe_page.js), and by axe-core
where it is installed.
"""

import html
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from learner.forecasting.questions import Answer
from learner.forecasting.verdict import CURVES, OwnerVerdict, Smallest, Verdict
from learner.results.card import card_text
from learner.results.compare import compared_warnings, verdict, write_comparison
from learner.results.forecast_page import write_forecast_page
from learner.results.quality_words import interval_words
from learner.results.report import sentences
from learner.results.report_page import write_report
from learner.results.summary import Summary
from learner.results.verdict_words import notes, verdict_lines

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = (360, 768, 1440)
PAPER = 718  # A4, upright, within a browser's margins.
PROBE = Path(__file__).parents[1] / "tools/probe_page.js"
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


def axe():
    """The source of axe-core, empty where it is not installed."""
    found = importlib.util.find_spec("axe_core_python")
    if found is None or found.origin is None:
        return ""
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def run_folder(folder, summary, model):
    """A run folder with a trace."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    names = [owner.name for owner in summary.owners]
    k = np.arange(1, summary.ticks + 1)
    columns = {"k": k, "owner": rng.choice(names, size=k.size)}
    trace = pd.DataFrame(columns)
    if summary.is_evaluated:
        trace["relative_fitness"] = 0.03 + np.exp(-k / 40)
    trace.to_parquet(folder / "trace.parquet")
    (folder / "model.json").write_text(model.to_json())
    return folder


@pytest.fixture(scope="session")
def evaluated(summary_table):
    """A simulated run of this many owners."""

    def make(count):
        rng = np.random.default_rng(count)
        owners = [
            summary_table["owners"][0]
            | {
                "name": f"hospital-of-the-county-{i}",
                "records": int(rng.integers(200, 9000)),
                "responses_left": int(rng.integers(2)),
                "relative_fitness_alone": float(rng.lognormal(-3, 1)),
                "gains": bool(i % 3),
            }
            for i in range(count)
        ]
        interval = {"value": 7.9, "low": 7.4, "high": 8.5}
        quality = {
            "measure": "rmse",
            "target": "Length of <b>Stay</b>",
            "on": "owners",
            "records": 13358,
            "common": interval,
            "public": interval,
            "guess": 8.6,
            "alone": [8.0] * count,
            "intervals": "bootstrap",
        }
        changes = {
            "owners": owners,
            "fitness": 1.0,
            "fitness_optimal": 1.0,
            "quality": quality,
            "relative_fitness": 0.03,
            "relative_fitness_noiseless": 0.01,
            "relative_fitness_public": 0.0456,
            "forecast_relative_fitness_public": 0.0789,
            "way": "ticks",
            "ways": {"ticks": {"forecast_relative_fitness": 0.0321, "low": 0.02, "high": 0.05}},
            "horizon": 1000,
            "ticks": 987,
        }
        return Summary.model_validate(summary_table | changes)

    return make


@pytest.fixture(scope="module")
def pages(tmp_path_factory, evaluated, summary, make_model):
    """Pages of a few owners, of many, of a training, of a forecast, and of runs compared."""
    folder = tmp_path_factory.mktemp("pages")
    few = evaluated(3)
    wide = few.owners[1].model_copy(update={"name": "MEMORIAL-HOSPITAL-OF-MARYLAND"})
    few = few.model_copy(update={"owners": [few.owners[0], wide, few.owners[2]]})
    runs = {"few": few, "many": evaluated(75), "trained": summary(insecure_noise=True)}
    made = {
        name: write_report(run_folder(folder / name, run, make_model()), run)
        for name, run in runs.items()
    }
    made["compared"] = write_comparison(runs, folder / "comparison.html")
    return made | {"forecast": write_forecast_page(folder, a_forecast())}


def a_forecast():
    """A forecast of thirty owners, with curves and a warning."""
    rng = np.random.default_rng(2)
    owners = tuple(
        OwnerVerdict(
            name=f"hospital-of-the-county-{i}",
            records=100 + i,
            epsilon="1/3",
            relative_fitness_alone=float(rng.lognormal(-3, 1)),
            gains=bool(i % 2),
            one_more_epsilon_is_worth=0.01 * max(i - 2, 0) if i else float("nan"),
            smallest_epsilon_factor=None,
        )
        for i in range(30)
    )

    def answer(fitness):
        return Answer(
            relative_fitness=fitness,
            by_world=[fitness] * 12,
            low=fitness / 2,
            high=2 * fitness,
            alone=[0.05, 0.1],
            public=0.07,
            horizon=100,
            clip=None,
            constant=0.1,
            split="schedule",
            algorithm="asynchronous",
        )

    curves = {kind: {"0.1": answer(0.3), "1": answer(0.1), "10": answer(0.02)} for kind in CURVES}
    return Verdict(
        study="small",
        relative_fitness=0.1,
        interval_90=(0.05, 0.2),
        relative_fitness_public=0.0712,
        design={"algorithm": "asynchronous", "horizon": 100, "clip": None, "split": "schedule"},
        public_records=5000,
        drift=0.5,
        warnings=("the public records change along their table",),
        owners=owners,
        smallest=Smallest(
            epsilon=None,
            records=10.0,
            owners=None,
            epsilon_of_ways={"newton": 0.234, "ticks": None},
        ),
        algorithms={"moments": answer(0.05)},
        curves={"clip": {}, "split": {}} | curves,
        failures={"unit-0": "it failed"},
    )


def bad(page):
    """The page with faults that the probe must see."""
    page = page.replace("--ink: #1b1f24", "--ink: #bbbbbb")
    faults = '<div style="width:2000px">wide</div><input><script>nothing()</script>'
    return page.replace("<main>", f"<main>{faults}")


def on_paper(page):
    """The page as it is printed: in a frame it cannot be."""
    page = page.replace("@media print", "@media all")
    return page.replace("@media screen", "@media not all")


def framed(text, name, width):
    """A page with the probe in it, in a frame: a window is never as narrow as a phone."""
    watch = (
        "<script>window.probed_errors = []; addEventListener('error', (e) => "
        "probed_errors.push(e.message)); console.error = (m) => probed_errors.push(m);</script>"
    )
    # axe-core takes seconds for a long page; what it sees does not depend on the width.
    checker = axe() if width == WIDTHS[0] and name != "many" else ""
    script = f"<script>{checker}</script><script>{PROBE.read_text(encoding='utf-8')}</script>"
    inner = text.replace("<style>", watch + "<style>", 1).replace("</body>", script + "</body>")
    return (
        f'<iframe name="{name}" width="{width}" height="900" style="border:0" '
        f'srcdoc="{html.escape(inner, quote=True)}"></iframe>'
    )


GATHER = """<script>
const look = setInterval(() => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const told = frame.contentDocument.getElementById("probed");
    if (!told) return;
    found[`${frame.name} ${frame.width}`] = JSON.parse(told.textContent);
  }
  clearInterval(look);
  document.body.innerHTML = '<pre id="told"></pre>';
  document.getElementById("told").textContent = JSON.stringify(found);
}, 50);
</script>"""


def probed(frames, folder, *, dark):
    """What the probe finds in each frame, by its name and width."""
    outer = folder / "frames.html"
    outer.write_text(f'<!doctype html><body style="margin:0">{"".join(frames)}{GATHER}</body>')
    assert CHROMIUM is not None
    options = ["--blink-settings=preferredColorScheme=0"] if dark else []
    said = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *(f"--user-data-dir={folder}/profile", "--virtual-time-budget=60000", *options),
            *("--dump-dom", outer.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    (told,) = re.findall(r'<pre id="told">(.*?)</pre>', said.stdout, re.DOTALL)
    return json.loads(html.unescape(told))


@pytest.fixture(scope="module")
def looked_at(pages, tmp_path_factory):
    """Every page at every width, in the light and in the dark."""
    texts = {name: page.read_text(encoding="utf-8") for name, page in pages.items()}
    printed = [framed(on_paper(text), f"printed {name}", PAPER) for name, text in texts.items()]
    texts["bad"] = bad(texts["few"])
    frames = [framed(text, name, width) for name, text in texts.items() for width in WIDTHS]
    frames += printed
    return {
        dark: probed(frames, tmp_path_factory.mktemp("browser"), dark=dark)
        for dark in (False, True)
    }


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["few", "many", "trained", "forecast", "compared"])
def test_a_page_is_readable_at_every_width(looked_at, name, width, dark):
    found = looked_at[dark][f"{name} {width}"]
    assert (found["width"], found["dark"]) == (width, dark)
    assert found["scroll"] <= width
    assert found["errors"] == []
    assert found["contrast"] == []
    assert found["missing"] == []
    assert found.get("sorted", []) == sorted(found.get("sorted", []))
    assert found.get("axe", []) == []
    if name == "many":
        assert len(found["searched"]) < 75


@needs_chromium
@pytest.mark.parametrize("name", ["few", "many", "trained", "forecast", "compared"])
def test_a_printed_page_has_tables_with_their_heads_and_all_that_is_folded(looked_at, name):
    found = looked_at[False][f"printed {name} {PAPER}"]
    assert found["scroll"] <= PAPER
    assert found["unseen"] == []
    assert found["lines"] == 0
    # Chromium repeats no button on a table's next page: columns had no heads there.
    assert found["boxes"] == 0


@needs_chromium
def test_the_probe_sees_what_is_wrong(looked_at):
    found = looked_at[False]["bad 768"]
    assert found["scroll"] > 768
    assert found["errors"]
    assert found["contrast"]
    assert found["missing"] == ["input without a label"]
    assert found["unseen"]
    assert found["lines"]
    if axe():
        assert {rule for rule, _ in looked_at[False]["bad 360"]["axe"]} >= {
            "color-contrast",
            "label",
        }


def test_a_forecasts_page_says_of_one_more_epsilon_what_its_table_says(pages):
    worth = re.findall(r'data-head="one more epsilon"[^>]*>([^<]+)<', pages["forecast"].read_text())
    assert worth[:4] == ["-", "nothing", "nothing", "-0.01"]


def test_every_column_of_a_forecasts_owners_is_explained(pages):
    table = pages["forecast"].read_text().partition("30 owners</caption>")[2]
    head = table.partition("</thead>")[0]
    assert re.findall(r'<th scope="col">(.*?)</th>', head)
    assert not re.findall(r'<th scope="col">(?!<abbr title=")', head)


def test_a_card_on_a_phone_says_what_its_name_is(pages):
    assert '<th scope="row" data-head="run">few</th>' in pages["compared"].read_text()


def test_a_page_of_75_owners_is_small(pages):
    assert pages["many"].stat().st_size < 2**20 / 4


def test_a_page_fetches_nothing_and_shows_names_as_they_are(pages):
    for page in pages.values():
        text = page.read_text()
        assert not re.search(r"(?:src|href)\s*=|url\(|@import|http", text)
    assert "Length of &lt;b&gt;Stay" in pages["few"].read_text()
    assert "<b>Stay" not in pages["few"].read_text()


def test_warnings_stand_before_all_else(pages):
    text = pages["trained"].read_text()
    assert text.index("INSECURE") < text.index('class="verdict"')
    forecast = pages["forecast"].read_text()
    assert forecast.index("warning: the public records change") < forecast.index('class="verdict"')


def test_what_is_free_stands_beside_what_was_learnt(pages, evaluated):
    forecast, run = pages["forecast"].read_text(), pages["few"].read_text()
    for text, fitness in ((forecast, "0.0712"), (run, "0.0456")):
        assert "public model</th>" in text or "public model</abbr>" in text
        assert f">{fitness}</td>" in text
    assert re.search(r"newton</t[dh]><td[^>]*>0.234</td>", forecast)
    assert "none that was tried" in forecast
    assert "Learnt by ticks. Forecast relative fitness: ticks 0.0321, and 0.0789 for" in run
    assert "2 of 3 owners gain; the one that does not:" in run
    beaten = evaluated(3).model_copy(update={"relative_fitness_public": 0.02})
    assert "the public model, which is free, is better" in " ".join(verdict_lines(beaten))
    level = {"relative_fitness_public": beaten.relative_fitness}
    said = " ".join(verdict_lines(beaten.model_copy(update=level)))
    assert "the public model, which is free, is as good" in said
    quality = beaten.quality
    assert quality is not None
    for factor, what in ((0.5, "a better model than this one"), (1.0, "a model as good as this")):
        value = factor * quality.common.value
        free = quality.model_copy(
            update={"public": quality.common.model_copy(update={"value": value})}
        )
        told = " ".join(notes(beaten.model_copy(update={"quality": free})))
        assert f"The public records alone give {what}" in told
    # After a training, too, the verdict tells what is free; no other line of the page's top does.
    trained = quality.model_copy(update={"on": "public", "alone": None, "at_home": {}})
    (verdict, *_) = verdict_lines(beaten.model_copy(update={"quality": trained}))
    assert "the public records' own model (which has seen them) 7.9" in verdict


def test_the_public_model_stands_in_every_table_and_picture_of_models(pages, evaluated, make_model):
    """A curve, tables of ways and of runs, and the card had what was learnt alone."""
    curves = re.findall(r"<figure>.*?</figure>", pages["few"].read_text(), flags=re.DOTALL)
    of_fitness = [curve for curve in curves if "relative fitness (0 is the best)" in curve]
    assert len(of_fitness) == 1
    assert ">public model</text>" in of_fitness[0]
    assert re.search(r">public model</t[dh]><td[^>]*>0.0712</td>", pages["forecast"].read_text())
    compared = pages["compared"].read_text()
    assert ">public model</" in compared
    assert ">0.0456</td>" in compared
    card = card_text(evaluated(3), make_model())
    assert (
        "Relative fitness 0.03 (0 is the best linear model of all records), without noise" in card
    )
    assert ", of the public model 0.0456; 2 of 3 owners gain" in card


def test_a_page_tells_as_the_terminal_who_gains_on_its_own_records(tmp_path, evaluated):
    """Who gains for all records together may lose on its own."""
    run = evaluated(3)
    at_home = {"common": (7.0, 8.0, 9.0), "public": (7.5, 7.5, 8.5), "alone": (6.0, 9.0, 8.0)}
    run = run.model_copy(update={"quality": run.quality.model_copy(update={"at_home": at_home})})
    why = "(whether an owner gains is judged by the loss on all records together, and may differ)"
    assert any(why in line for line in sentences(run))
    told = "the common model is better than the public one at 1 of 3, and than the owner"
    assert any(told in line for line in sentences(run))
    assert told in write_report(tmp_path, run).read_text()


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "on its records; its own model has 8, the public records alone"),
        (3, "on their records; models of single owners have 8, the public records alone"),
    ],
)
def test_one_owner_is_not_spoken_of_as_many(evaluated, count, said):
    assert said in verdict_lines(evaluated(count))[0]


def test_compared_runs_have_intervals_and_are_said_to_be_single_draws(evaluated, tmp_path):
    """Two runs of one study differed by their noise, and one was simply the best."""
    run = evaluated(3)
    page = write_comparison({"a": run, "b": run}, tmp_path / "compared.html").read_text()
    assert f"RMSE {interval_words(run.quality.common)}" in page
    assert "Each run drew its noise once; copriv sweep says how far" in page


def test_a_run_that_protected_nobody_is_said_so_beside_those_it_is_compared_with(
    evaluated, summary, tmp_path
):
    """Its epsilon stood beside that of the others as if it were the same."""
    sound, own = evaluated(3), evaluated(3).owners[0].name
    seeded, learner = {"insecure_noise": True, "in_memory": True}, {"own": own}
    runs = {
        "a": sound,
        "b": sound.model_copy(update=seeded),
        "c": sound.model_copy(update=learner),
        "d": summary(insecure_noise=True),
    }
    said = compared_warnings(runs)
    assert [line.split(":")[:2] for line in said] == [
        ["b", " IN MEMORY"],
        ["b, d", " INSECURE"],
        ["c", " UNPROTECTED"],
    ]
    page = write_comparison(runs, tmp_path / "compared.html").read_text()
    shown = re.findall(r'<p class="warning">(.*?)</p>', page)
    assert list(map(html.unescape, shown)) == said
    assert page.index(shown[-1]) < page.index('class="verdict"')
    assert compared_warnings({"a": sound}) == []


def test_runs_are_compared_only_where_they_were_judged_on_the_same(evaluated, summary):
    one = evaluated(3)
    better = one.quality.model_copy(
        update={"common": one.quality.common.model_copy(update={"value": 6.0})}
    )
    other = one.model_copy(update={"quality": better})
    assert verdict({"a": one, "b": other}) == "Best: b, with RMSE 6 on the same 13,358 records."
    hardly = one.quality.common.model_copy(update={"value": 6.0001})
    third = one.model_copy(update={"quality": better.model_copy(update={"common": hardly})})
    level = "Level: b, c, with RMSE 6 on the same 13,358 records."
    assert verdict({"a": one, "b": other, "c": third}) == level
    apart = "These runs were not judged on the same"
    assert verdict({"a": one, "b": summary()}).startswith(apart)
    elsewhere = better.model_copy(update={"target": "another"})
    assert verdict({"a": one, "b": one.model_copy(update={"quality": elsewhere})}).startswith(apart)
    others = [owner.model_copy(update={"name": f"x{i}"}) for i, owner in enumerate(one.owners)]
    strangers = other.model_copy(update={"owners": tuple(others)})
    assert verdict({"a": one, "b": strangers}).startswith(apart)


@pytest.mark.parametrize(("silent", "is_cost"), [(0.01, True), (0.9, False)])
def test_only_what_noise_made_worse_is_called_the_cost_of_privacy(
    evaluated, make_model, tmp_path, silent, *, is_cost
):
    run = evaluated(3).model_copy(update={"relative_fitness_noiseless": silent})
    text = write_report(run_folder(tmp_path / "run", run, make_model()), run).read_text()
    assert f"the same run without noise reaches {silent:.3g}" in text
    assert ("the rest is the cost of privacy" in text) == is_cost
    assert ("here the noise did no harm" in text) != is_cost


def test_what_a_run_missed_is_explained_where_it_shows(pages):
    text = pages["few"].read_text()
    assert "13 ticks were missed" in text
    assert "here the average begins" in text
    assert "Away at some of their ticks, so answers are left" in text


def test_a_page_needs_nothing_but_the_summary(tmp_path, evaluated):
    (tmp_path / "trace.parquet").write_bytes(b"no table")
    (tmp_path / "model.json").write_text("no model")
    text = write_report(tmp_path, evaluated(3)).read_text()
    assert "2 of 3" in text
    assert "communication k" not in text
