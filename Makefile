# Everything that a person or CI runs. `make` alone lists the targets; each one installs what it needs into .venv first.
PYTHON ?= python3
SEED ?= 1
RUNS ?= 1
ON ?= local
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
TOOLS := $(VENV)/tools
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' sdk/scar/version.py)
IMAGE = docker.io/library/scar:$(VERSION)
BUILDER ?= $(shell command -v docker || command -v podman || echo buildah)
PROTO := $(wildcard proto/scar/v1/*.proto)
PROTOC = $(BIN)/python -m grpc_tools.protoc -Iproto --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
	--plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc

.DEFAULT_GOAL := help
.PHONY: help venv demo test chaos e2e lint format proto docs verify bench lock tools image kind clean

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

venv: $(STAMP) ## create .venv with the exact versions of requirements/ci.txt

$(STAMP): pyproject.toml requirements/ci.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "SCAR needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c requirements/ci.txt
	@touch $@

demo: $(STAMP) ## train on this machine, kill servers, watch the cluster heal itself
	$(BIN)/scar demo

test: $(STAMP) tools ## the whole test suite but e2e: repository, unit, contract, component, system, chaos, helm
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not timed"
	$(BIN)/python -m pytest -m timed

chaos: $(STAMP) ## break a cluster by seeded schedules and judge it: make chaos SEED=7 RUNS=3; on a release: ON=kubernetes
	$(BIN)/scar chaos --seed $(SEED) --runs $(RUNS) --on $(ON)

e2e: $(STAMP) tools ## install, break, judge and upgrade a release on Kubernetes: any KUBECONFIG, or a kind cluster
	$(BIN)/python -m pytest tests/e2e

lint: $(STAMP) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy sdk services experiments

format: $(STAMP) ## let ruff write the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(STAMP) ## make sdk/scar/v1 again from proto/
	$(PROTOC) --python_out=sdk --grpc_python_out=sdk --mypy_out=sdk --mypy_grpc_out=sdk $(PROTO)

docs: $(STAMP) ## make the generated pages, and the example in the README, again from the code
	$(BIN)/python scripts/generate_docs.py

verify: $(STAMP) ## generated code and docs are up to date, layers are kept
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && \
	$(PROTOC) --python_out="$$out" --grpc_python_out="$$out" --mypy_out="$$out" --mypy_grpc_out="$$out" $(PROTO) && \
	diff -ru --exclude=__pycache__ --exclude=__init__.py "$$out/scar/v1" sdk/scar/v1 || \
	{ echo "sdk/scar/v1 is not what proto/ says; run: make proto"; exit 1; }
	$(BIN)/python scripts/generate_docs.py --check
	$(BIN)/python scripts/lock_image.py --check
	$(BIN)/lint-imports

bench: $(STAMP) ## measure speed on this machine
	$(BIN)/python -m benchmarks

lock: $(STAMP) ## write what .venv holds to requirements/ci.txt, and the image's part of it to requirements/image.txt
	@{ head -1 requirements/ci.txt; $(BIN)/python -m pip freeze --disable-pip-version-check --all --exclude-editable --exclude pip; } > $(VENV)/ci.txt
	@mv $(VENV)/ci.txt requirements/ci.txt
	$(BIN)/python scripts/lock_image.py

tools: $(STAMP) ## helm, helm3 and kubectl for the tests of the chart, unless they are on PATH
	@$(BIN)/python scripts/get_helm.py $(TOOLS) || true

image: ## build the container image scar:VERSION by docker, podman or buildah
	$(BUILDER) build -t $(IMAGE) --build-arg VERSION=$(VERSION) \
		--build-arg REVISION=$$(git rev-parse --short HEAD 2>/dev/null || echo unknown) -f docker/Dockerfile .

kind: image ## create a kind cluster called scar, with the image on its nodes
	kind get clusters 2>/dev/null | grep -qx scar || kind create cluster --name scar --config deploy/kind.yaml
	$(BUILDER) save $(IMAGE) -o $(or $(TMPDIR),/tmp)/scar-image.tar
	kind load image-archive $(or $(TMPDIR),/tmp)/scar-image.tar --name scar
	@rm -f $(or $(TMPDIR),/tmp)/scar-image.tar

clean: ## remove everything that can be made again
	rm -rf $(VENV) build dist .scar .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
