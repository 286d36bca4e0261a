"""What Prometheus looks for: each rule asks for what is there, and fires when it should."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy/prometheus"
RULES = PROMETHEUS / "rules.yml"
DAY = 86400
# By alert: labels and values that it fires at, and values of the same that it does not fire at.
# Prometheus's tests begin at 0 seconds since 1970.
INSTANCE = "bank:9464"
BANK = f'job="owners", instance="{INSTANCE}"'
LEFT, HELD, EACH = (f"copriv_epsilon_{of}{{{BANK}}}" for of in ("left", "held", "per_study"))
CASES = {
    "CertificateEnds": (
        {f"copriv_certificate_end_seconds{{{BANK}}}": 13 * DAY},
        {f"copriv_certificate_end_seconds{{{BANK}}}": 15 * DAY},
    ),
    "OwnerDoesNotServe": ({f"up{{{BANK}}}": 0}, {f"up{{{BANK}}}": 1}),
    "LedgerFails": (
        {f"copriv_ledger_works{{{BANK}}}": 0},
        {f"copriv_ledger_works{{{BANK}}}": 1},
    ),
    "BudgetNearlySpent": (
        {LEFT: 0.2, HELD: 2.8, EACH: 1},
        {LEFT: 0.5, HELD: 2.5, EACH: 1},
    ),
    "OwnerAway": (
        {'copriv_owner_away{job="learner", instance="lab:9464", owner="bank"}': 1},
        {'copriv_owner_away{job="learner", instance="lab:9464", owner="bank"}': 0},
    ),
}


def rules():
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return group["rules"]


def promtool(*arguments):
    command = ["promtool", *map(str, arguments)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


def test_rules_ask_for_metrics_that_exist_and_are_documented():
    sources = "".join(
        (ROOT / path).read_text()
        for path in ("owner/metrics.py", "learner/results/metrics.py", "common/expiry.py")
    )
    documented = (ROOT / "docs/deployment.md").read_text()
    for rule in rules():
        asked = re.findall(r"copriv_[a-z_]+", rule["expr"])
        assert asked or rule["expr"].startswith('up{job="owners"}'), rule
        for name in asked:
            assert f'"{name}"' in sources, name
        assert f"`{rule['alert']}`" in documented, rule["alert"]
        assert rule["annotations"]["summary"].endswith(".")
    assert [rule["alert"] for rule in rules()] == list(CASES)
    jobs = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert jobs["rule_files"] == [RULES.name]
    assert "owners" in {job["job_name"] for job in jobs["scrape_configs"]}
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert "./deploy/prometheus:/etc/prometheus:ro" in services["prometheus"]["volumes"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="NO promtool: RULES WERE NOT RUN")
@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_rules_fire_when_they_should_and_only_then(rule, tmp_path):
    def case(series, *, fires):
        labels = dict(re.findall(r'(\w+)="([^"]+)"', next(iter(series))))
        summary = rule["annotations"]["summary"]
        for name, value in labels.items():
            summary = summary.replace(f"{{{{ $labels.{name} }}}}", value)
        assert "{{" not in summary
        alert = {"exp_labels": labels, "exp_annotations": {"summary": summary}}
        return {
            "interval": "1m",
            "input_series": [
                {"series": name, "values": f"{value}x30"} for name, value in series.items()
            ],
            "alert_rule_test": [
                {
                    "eval_time": "20m",
                    "alertname": rule["alert"],
                    "exp_alerts": [alert] if fires else [],
                }
            ],
        }

    fires, holds = CASES[rule["alert"]]
    tests = [case(fires, fires=True), case(holds, fires=False)]
    (tmp_path / "tests.yml").write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests})
    )
    promtool("test", "rules", tmp_path / "tests.yml")
    promtool("check", "config", PROMETHEUS / "prometheus.yml")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="NO promtool: RULES WERE NOT RUN")
@pytest.mark.parametrize(("each", "fires"), [(1, 1), (3, 0), (5, 0)])
def test_a_budget_for_one_study_is_spent_as_it_was_planned(tmp_path, each, fires):
    """It is all held from the first moment on, as `copriv-owner join` writes it."""
    (rule,) = [rule for rule in rules() if rule["alert"] == "BudgetNearlySpent"]
    told = {"summary": rule["annotations"]["summary"].replace("{{ $labels.instance }}", INSTANCE)}
    alert = {"exp_labels": {"job": "owners", "instance": INSTANCE}, "exp_annotations": told}
    case = {
        "interval": "1m",
        "input_series": [
            {"series": series, "values": f"{value}x30"}
            for series, value in ((LEFT, 0), (HELD, 3), (EACH, each))
        ],
        "alert_rule_test": [
            {"eval_time": "20m", "alertname": rule["alert"], "exp_alerts": [alert] * fires}
        ],
    }
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [case]}))
    promtool("test", "rules", path)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="NO promtool: RULES WERE NOT RUN")
def test_a_run_without_any_owner_that_is_started_again_and_again_is_told_of(tmp_path):
    """Its port is there for a minute, by the default of network.patience, and then is not."""
    labels = {"job": "learner", "instance": "lab:9464", "owner": "bank"}
    series = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    (rule,) = [rule for rule in rules() if rule["alert"] == "OwnerAway"]
    summary = re.sub(
        r"{{ \$labels.(\w+) }}", lambda use: labels[use[1]], str(rule["annotations"]["summary"])
    )
    case = {
        "interval": "15s",
        "input_series": [
            {"series": f"copriv_owner_away{{{series}}}", "values": "1 1 1 1 stale " * 20 + "0x40"}
        ],
        "alert_rule_test": [
            {
                "eval_time": when,
                "alertname": rule["alert"],
                "exp_alerts": [{"exp_labels": labels, "exp_annotations": {"summary": summary}}]
                * fires,
            }
            for when, fires in (("5m", 0), ("24m", 1), ("27m", 0))
        ],
    }
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [case]}))
    promtool("test", "rules", path)
