"""The files for deployment hold together: validated offline, without an engine or a cluster."""

import ast
import json
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from common.config import check_settings, load_settings
from learner.planning.settings import StudySettings
from owner.policy import OwnerSettings

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {"common", "owner", "learner"}
OWNERS = ("mount-sinai", "nyu-langone", "montefiore")
KUBERNETES = ROOT / "deploy/kubernetes"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def manifests():
    kustomization = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    for name in kustomization["resources"]:
        yield from yaml.safe_load_all((KUBERNETES / name).read_text())


def of_kind(kind):
    return [manifest for manifest in manifests() if manifest["kind"] == kind]


def pods():
    for manifest in (*of_kind("StatefulSet"), *of_kind("Job")):
        yield manifest["spec"]["template"]


@pytest.mark.parametrize(
    "manifest", list(manifests()), ids=lambda m: f"{m['kind']}-{m['metadata']['name']}"
)
def test_manifests_are_what_kubernetes_knows(manifest):
    kubernetes_validate.validate(manifest, "1.30", strict=True)


def test_every_pod_is_confined():
    for pod in pods():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            templates = {"ledger"} if "copriv/owner" in pod["metadata"]["labels"] else set()
            assert mounted == {volume["name"] for volume in spec["volumes"]} | templates


def test_each_owner_keeps_one_ledger_and_answers_probes():
    configs = {m["metadata"]["name"]: m["data"] for m in of_kind("ConfigMap")}
    for stateful in of_kind("StatefulSet"):
        name = stateful["metadata"]["name"]
        assert stateful["spec"]["replicas"] == 1
        (claim,) = stateful["spec"]["volumeClaimTemplates"]
        assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
        settings = check_settings(
            OwnerSettings, tomllib.loads(configs[name]["owner.toml"]), where=name
        )
        assert settings.name == name
        (container,) = stateful["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert settings.listen.endswith(f":{ports['grpc']}")
        assert settings.tls is not None
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["grpc"]["port"] == ports["health"]
            assert str(settings.health).endswith(f":{ports['health']}")
    assert sorted(configs) == sorted(OWNERS)


def test_network_policies_let_only_the_learner_reach_owners():
    policies = {m["metadata"]["name"]: m["spec"] for m in of_kind("NetworkPolicy")}
    assert policies["nobody"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    (ingress,) = policies["learner-to-owners"]["ingress"]
    assert ingress["from"] == [{"podSelector": {"matchLabels": {"copriv/role": "learner"}}}]
    owners = {"matchLabels": {"copriv/role": "owner"}}
    assert policies["learner-to-owners"]["podSelector"] == owners
    assert "egress" not in policies["learner-to-owners"]


def test_the_learners_study_names_the_services():
    study = load_settings(StudySettings, KUBERNETES / "study.toml")
    services = {service["metadata"]["name"] for service in of_kind("Service")}
    hosts = {str(owner.address) for owner in study.owners}
    assert hosts == {f"{name}.copriv.svc.cluster.local:50051" for name in services}
    assert services == set(OWNERS)


def test_compose_confines_everybody_and_publishes_no_owner():
    services = COMPOSE["services"]
    ours = [*OWNERS, "learner", "certs", "prepare"]
    for name in ours:
        service = services[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["user"] == ("0:0" if name == "prepare" else "10001:10001")
        assert "ports" not in service
        assert not service.get("privileged")
    assert services["prepare"]["cap_add"] == ["CHOWN", "SETUID", "SETGID"]
    # The end of any container would be the end of all, and its status the stack's.
    conditions = {
        condition["condition"]
        for name in ours
        for condition in services[name].get("depends_on", {}).values()
    }
    assert conditions == {"service_healthy"}
    for owner in OWNERS:
        assert services[owner]["networks"] == [owner]
        assert COMPOSE["networks"][owner] == {"internal": True}
        condition = services["learner"]["depends_on"][owner]["condition"]
        assert condition == "service_healthy"
    assert sorted(services["learner"]["networks"]) == sorted(OWNERS)
    # Today's tool warns about a version, and old ones take its absence for the newest format.
    assert "version" not in COMPOSE


def test_who_watches_gains_nothing_and_nobody_logs_in():
    services = COMPOSE["services"]
    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["watch"]
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["security_opt"] == ["no-new-privileges:true"]
    assert services["grafana"]["ports"] == ["127.0.0.1:3000:3000"]
    environment = services["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


def test_the_settings_of_the_stack_are_valid_and_fit_each_other():
    study = load_settings(StudySettings, ROOT / "deploy/compose/study.toml")
    for entry in study.owners:
        settings = load_settings(OwnerSettings, ROOT / f"deploy/compose/{entry.name}.toml")
        assert settings.name == entry.name
        assert entry.address == f"{entry.name}:50051"
        assert settings.listen == "0.0.0.0:50051"
        asked = entry.epsilon or study.privacy.epsilon
        assert asked <= settings.policy.epsilon_per_study
        assert f"--owner={entry.name}={entry.name}" in COMPOSE["services"]["certs"]["command"]
    shipped = tomllib.loads((ROOT / "examples/hospitals.toml").read_text())
    ours = tomllib.loads((ROOT / "deploy/compose/study.toml").read_text())
    for table in ("features", "model", "privacy"):
        assert ours[table] == shipped[table]


def test_the_dashboard_asks_for_metrics_that_exist():
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/copriv.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"copriv_[a-z_]+", target["expr"])
    }
    sources = "".join(
        (ROOT / path).read_text()
        for path in ("owner/metrics.py", "learner/results/metrics.py", "common/expiry.py")
    )
    for name in asked:
        assert f'"{name.removesuffix("_bucket")}"' in sources, name
    documented = (ROOT / "docs/deployment.md").read_text()
    for name in re.findall(r'"(copriv_[a-z_]+)"', sources):
        assert f"`{name}`" in documented, name
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = [t for job in scraped["scrape_configs"] for t in job["static_configs"][0]["targets"]]
    assert sorted(targets) == sorted(f"{name}:9464" for name in (*OWNERS, "learner"))


def test_the_dashboard_asks_for_rates_over_what_is_scraped():
    """Of a Prometheus that looks every 15 seconds, a rate over 15 seconds is none."""
    text = (ROOT / "deploy/grafana/dashboards/copriv.json").read_text()
    assert set(re.findall(r"rate\([a-z_]+\[(.*?)\]", text)) == {"$__rate_interval"}
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    sources = ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml"
    (source,) = yaml.safe_load(sources.read_text())["datasources"]
    assert source["jsonData"]["timeInterval"] == scraped["global"]["scrape_interval"]


def test_services_are_started_again_as_the_table_of_statuses_says():
    """A signal ends a learner, and an owner that still reads its table, with a status of ours."""
    text = (ROOT / "docs/deployment.md").read_text()
    rows = re.findall(r"^\| ([0-9, ]+)[|,] .*\| ([^|]+) \|$", text, re.MULTILINE)
    said = {
        int(status): again for row, again in rows for status in row.split(",") if status.strip()
    }
    refused = {status for status, again in said.items() if status and again.startswith("no")}
    stopped = {status for status, again in said.items() if again == "when you like"}
    assert stopped == {128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    for unit in (ROOT / "deploy/systemd").glob("*.service"):
        keys = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))
        assert keys["Restart"] == "on-failure"
        assert set(map(int, keys["RestartPreventExitStatus"].split())) == refused == {2, 3}
        assert set(map(int, keys["SuccessExitStatus"].split())) == stopped


def test_the_unit_of_owners_keeps_compiled_code_where_it_may_write():
    unit = (ROOT / "deploy/systemd/copriv-owner@.service").read_text()
    keys = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    assert (keys["ProtectHome"], keys["ProtectSystem"]) == ("yes", "strict")
    environment = dict(each.split("=") for each in keys["Environment"].split())
    assert environment["XDG_CACHE_HOME"] == f"%C/{keys['CacheDirectory']}"
    assert keys["CacheDirectoryMode"] == "0700"


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="NO systemd-analyze: UNITS WERE NOT VERIFIED"
)
def test_systemd_knows_every_word_of_the_units(tmp_path):
    for unit in (ROOT / "deploy/systemd").glob("*.service"):
        text = unit.read_text()
        # The program is not installed where the unit expects it, on this machine.
        copy = tmp_path / unit.name.replace("@", "@instance")
        copy.write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", text))
        result = subprocess.run(
            ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
        )
        assert copy.name not in result.stderr, result.stderr
        assert result.returncode == 0, result.stderr


def imported_by(*rooms):
    """The distributions that the modules of these rooms import, at their top or inside."""
    modules = set()
    for path in (path for room in rooms for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules.add(str(node.module))
    of_module = packages_distributions()
    tops = {module.split(".")[0] for module in modules} - sys.stdlib_module_names - ROOMS
    # `google` is a namespace that several share; protobuf is ours.
    named = {"google": ["protobuf"]}
    return {
        canonicalize_name(name)
        for top in tops
        for name in named.get(top) or of_module.get(top, [top])
    }


@pytest.mark.parametrize(
    ("rooms", "lists"), [(("common", "owner"), ["owner"]), (tuple(ROOMS), ["owner", "learner"])]
)
def test_an_image_holds_what_its_rooms_import(rooms, lists):
    lines = [
        line
        for name in lists
        for line in (ROOT / "deploy/images" / f"{name}.txt").read_text().splitlines()
    ]
    held = {Requirement(line).name for line in lines if line and not line.startswith("#")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    optional = {
        Requirement(need).name
        for extra in ("sql", "export", "cluster", "fast")
        for need in extras[extra]
    }
    # pydantic brings its core along, numba its compiler.
    assert imported_by(*rooms) - optional - {"pydantic-core", "llvmlite"} <= held


def test_an_installation_that_was_stopped_is_begun_anew(tmp_path):
    def steps():
        make = ["make", "--dry-run", "--always-make", f"VENV={tmp_path}", "env"]
        return subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert f"-m venv --clear {tmp_path}\n" in steps()
    (tmp_path / ".installed").touch()
    assert "--clear" not in steps()
