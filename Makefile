# Everything that a person or CI runs. `make` alone lists the targets; each one installs what it needs into .venv first.
PYTHON ?= python3
SEED ?= 1
RUNS ?= 1
SEEDS ?= 200
ON ?= local
SHARD ?= 1/1
SAMPLE ?= 0
INPUTS ?= 1000000
TARGET ?=
WEB ?=
COMMIT = $(shell git rev-parse HEAD 2>/dev/null || echo 1)
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/installed-demo
DEV := $(VENV)/installed-dev
TOOLS := $(VENV)/tools
AUDIT := $(VENV)/audit
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' sdk/scar/version.py)
IMAGE = docker.io/library/scar:$(VERSION)
BUILDER ?= $(shell command -v docker || command -v podman || echo buildah)
PROTO := $(wildcard proto/scar/v1/*.proto)
PROTOC = $(BIN)/python -m grpc_tools.protoc -Iproto --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
	--plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc

# A test of real processes or pods that fails is played once more, and its first failure is printed at the end; at most three in a run.
# Not where values or the count of lost pushes were wrong: what is rare there is a defect that is rare, and no bad luck.
REPEATS := --reruns 1 --max-suite-reruns 3 --rerun-show-tracebacks \
	--rerun-except 'Arrays are not|Not equal to tolerance|lost_pushes' --rerun-exclude-path tests/repo \
	--rerun-exclude-path tests/unit --rerun-exclude-path tests/fuzz --rerun-exclude-path tests/simulation --rerun-exclude-path tests/helm

.DEFAULT_GOAL := help
.PHONY: help venv dev demo test replay breaks simulate chaos e2e lint format proto docs site verify bench fuzz lock sbom audit tools image kind clean

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

venv: $(DEMO) ## create .venv with what the `scar` command needs: 45 packages, in the versions of requirements/ci.txt

dev: $(DEV) ## add to .venv what tests, lint and experiments need: 168 packages more

$(DEMO): pyproject.toml requirements/ci.txt hatch_build.py scripts/compile_kernels.py $(shell find sdk services -name "*.[ch]")
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "SCAR needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11")'
	@echo "Installing SCAR and 45 packages into $(VENV): 75 MB to download, 300 MB on disk"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]' -c requirements/ci.txt
	@touch $@

$(DEV): $(DEMO)
	@echo "Installing 168 packages more for tests and development into $(VENV): 530 MB to download, 2.2 GB on disk"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c requirements/ci.txt
	@touch $@

demo: $(DEMO) ## train on this machine, kill servers, watch the cluster heal itself; WEB=1: on a live page, too
	$(if $(WEB),@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[console]' -c requirements/ci.txt)
	$(BIN)/scar demo $(if $(WEB),--web)

test: $(DEV) tools ## the whole test suite but e2e: repository, unit, fuzz, contract, component, simulation, system, browser, wheel, security, chaos, helm
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not timed and not replayed" $(REPEATS)
	$(BIN)/python -m pytest -m "timed and not replayed" $(REPEATS)

replay: $(DEV) ## play again what simulation has found: plans that failed once, and bugs that are put back; SHARD=1/8
	$(BIN)/python -m pytest -n auto --dist worksteal -m replayed --part $(SHARD) tests/simulation

breaks: $(DEV) ## break the sources in over 200 places, in copies, and see that the tests notice: SHARD=1/4, or SAMPLE=40 by the commit; begun within MINUTES=5
	$(BIN)/python -m scripts.break_contracts --shard $(SHARD) --sample $(SAMPLE) $(if $(MINUTES),--minutes $(MINUTES)) --seed $(COMMIT)

fuzz: $(DEV) ## feed every decoder with changed inputs, in two processes: make fuzz INPUTS=10000000, TARGET=epoch; added to a report: REPORT=FILE
	$(BIN)/python -m tests.fuzz --inputs $(INPUTS) $(if $(TARGET),--target $(TARGET)) $(if $(REPORT),--report $(REPORT) --commit $(COMMIT),--seed $(COMMIT))

simulate: $(DEV) ## the whole system in simulated time, by seeds of this commit: make simulate SEEDS=1000; from a seed: FIRST=1; begun within MINUTES=3; added to a report: REPORT=FILE
	$(BIN)/python -m tests.simulation.simulate --seeds $(SEEDS) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(REPORT),--report $(REPORT)) $(if $(FIRST),--first $(FIRST),$(if $(REPORT),,--commit $(COMMIT)))

chaos: $(if $(filter local,$(ON)),$(DEMO),$(DEV)) ## break a cluster by seeded schedules and judge it: make chaos SEED=7 RUNS=3; on a release: ON=kubernetes
	$(BIN)/scar chaos --seed $(SEED) --runs $(RUNS) --on $(ON)

e2e: $(DEV) tools ## install, break, judge and upgrade a release on Kubernetes: any KUBECONFIG, or a kind cluster
	$(BIN)/python -m pytest tests/e2e $(REPEATS)

lint: $(DEV) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy sdk services experiments benchmarks examples scripts

format: $(DEV) ## let ruff write the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(DEV) ## make sdk/scar/v1 again from proto/
	$(PROTOC) --python_out=sdk --grpc_python_out=sdk --mypy_out=sdk --mypy_grpc_out=sdk $(PROTO)

docs: $(DEV) ## make the generated pages, and the example in the README, again from the code
	$(BIN)/python scripts/generate_docs.py

site: $(DEV) ## build the documents, the examples and the API's reference as a site in build/site, every link checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

verify: $(DEV) ## generated code and docs are up to date, layers are kept
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && \
	$(PROTOC) --python_out="$$out" --grpc_python_out="$$out" --mypy_out="$$out" --mypy_grpc_out="$$out" $(PROTO) && \
	diff -ru --exclude=__pycache__ --exclude=__init__.py "$$out/scar/v1" sdk/scar/v1 || \
	{ echo "sdk/scar/v1 is not what proto/ says; run: make proto"; exit 1; }
	$(BIN)/python scripts/generate_docs.py --check
	$(BIN)/python scripts/lock_image.py --check
	$(BIN)/lint-imports

bench: $(DEV) ## measure speed on this machine, beside what is recorded; RECORD=docs/results/bench.json records it
	$(BIN)/python -m benchmarks $(if $(RECORD),--record $(RECORD))

lock: $(DEV) ## write what .venv holds to requirements/ci.txt, and the image's part of it to requirements/image.txt
	@{ head -1 requirements/ci.txt; $(BIN)/python -m pip freeze --disable-pip-version-check --all --exclude-editable --exclude pip --exclude uv | sed "s/+cpu$$//"; } > $(VENV)/ci.txt
	@mv $(VENV)/ci.txt requirements/ci.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python scripts/lock_image.py

sbom: $(DEV) ## print what the container image holds as CycloneDX (JSON)
	@$(BIN)/python scripts/make_sbom.py --only requirements/image.txt

audit: ## look the image's packages up in the database of known vulnerabilities; says so where that cannot be reached
	@$(PYTHON) -m venv $(AUDIT) && $(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check --timeout 20 pip-audit || \
		{ echo "SKIPPED: pip-audit cannot be installed here; nothing was looked up"; exit 0; }; \
	$(PYTHON) scripts/audit_packages.py $(AUDIT)/bin/pip-audit

tools: $(DEV) ## helm, helm3 and kubectl for the tests of the chart, unless they are on PATH
	@$(BIN)/python scripts/get_helm.py $(TOOLS) || true

image: ## build the container image scar:VERSION by docker, podman or buildah; BASE=python:3.11-slim-bookworm@sha256:... takes no other base
	$(BUILDER) build -t $(IMAGE) --build-arg VERSION=$(VERSION) $(if $(BASE),--build-arg PYTHON=$(BASE)) \
		--build-arg REVISION=$$(git rev-parse --short HEAD 2>/dev/null || echo unknown) -f $(or $(DOCKERFILE),docker/Dockerfile) .

kind: image ## create a kind cluster called scar, with the image on its nodes
	kind get clusters 2>/dev/null | grep -qx scar || kind create cluster --name scar --config deploy/kind.yaml
	$(BUILDER) save $(IMAGE) -o $(or $(TMPDIR),/tmp)/scar-image.tar
	kind load image-archive $(or $(TMPDIR),/tmp)/scar-image.tar --name scar
	@rm -f $(or $(TMPDIR),/tmp)/scar-image.tar

clean: ## remove everything that can be made again
	rm -rf $(VENV) build dist .scar .fuzz .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
