# Two commands do everything: `make demo` and `make test`. `make test-long` runs attacks, kills and
# audits at full length, `make test-deployment` containers; `make bench` measures.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests wait for processes now and then: one more at a time than there are cores.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

.PHONY: demo test bench test-long test-deployment images env checks lint types imports protos-check protos unit clean

# Compiled modules are kept, also where the environment says otherwise: to compile them anew takes
# a quarter of a second of each process.
demo: export PYTHONDONTWRITEBYTECODE =
demo: $(VENV)/.installed
	$(BIN)/copriv simulate examples/hospitals.toml

# The checks take one core for half a minute: tests run beside them. Either makes it fail.
test: env
	$(MAKE) --no-print-directory --jobs=2 --keep-going unit checks

checks: lint types imports protos-check

env: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "copriv needs Python 3.11 or later; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(if $(wildcard $@),,--clear) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[lab,dev]'
	$(BIN)/python -m compileall -q common learner owner
	touch $@

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/sizes.py

types: env
	$(BIN)/mypy

imports: env
	$(BIN)/lint-imports

protos: env
	$(BIN)/python scripts/protos.py

protos-check: env
	$(BIN)/python scripts/protos.py --check

# What things cost, as ratios within one run; runs/bench.json. Takes minutes.
bench: export PYTHONDONTWRITEBYTECODE =
bench: env
	$(BIN)/python benchmarks/bench.py

# Containers, network namespaces and troubles in numbers: minutes, not seconds. As root.
test-deployment: images
	$(BIN)/pytest -m 'docker or trouble' -s tests

images: env
	@if docker version >/dev/null 2>&1; then deploy/images/build.sh; \
	else echo '*** NO DOCKER ENGINE: images are not built, their tests will be skipped ***'; fi

# Compiled tests are kept, also where the environment says otherwise: they take seconds to compile.
unit: export PYTHONDONTWRITEBYTECODE =
unit: env
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-long: export PYTHONDONTWRITEBYTECODE =
test-long: env
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m long

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
