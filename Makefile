# The commands of this repository. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help venv test lint format demo demo-down dev bench faults model features generate histories golden cluster-up cluster-down clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## the whole path on a real cluster: apply, run, kill the worker, go on
	@hack/demo

demo-down: ## take away what the demo made
	@hack/demo down

test: ## all tests; TIERS="unit store" runs some, ARGS="-k name" goes to pytest
	@hack/test $(TIERS) $(if $(ARGS),-- $(ARGS))

lint: ## format, lint, types, layers, generated files
	@hack/test lint

format: venv ## put the code into its format
	@.venv/bin/ruff format
	@.venv/bin/ruff check --fix

dev: venv ## the order example on this machine, without a cluster
	@.venv/bin/perdure dev examples/order/workflow.yaml

bench: venv ## the measures, into docs/benchmarks.md; QUICK=1: in five minutes; PARTS="drain bare": some of them
	@PYTHONPATH=hack:. .venv/bin/python -m benchmarks --size $(if $(QUICK),quick,full) $(PARTS)

faults: venv ## random programs under faults, counted; FAULT_SECONDS=300 SEED=1
	@PYTHONPATH=.:worker_image .venv/bin/python -m tests.faults --seconds $(or $(FAULT_SECONDS),300) --seed $(or $(SEED),1)

model: venv ## every state of larger instances of the protocol's model; minutes
	@.venv/bin/python -m tests.model

features: venv ## write the feature table anew; fails where a test is not there, is skipped or did not pass
	@PYTHONPATH=hack .venv/bin/python -m features

generate: venv ## write the generated files anew: CRDs, reference pages
	@.venv/bin/python -m perdure.resources.crdgen --write
	@.venv/bin/python -m perdure.telemetry.reference docs/reference/metrics.md
	@.venv/bin/python -m perdure_operator.reference docs/reference/settings.md
	@.venv/bin/python -m perdure.cli.reference docs/reference/commands.md
	@PYTHONPATH=hack .venv/bin/python -m apidocs --write

histories: venv ## keep histories of this release in tests/replay/histories, replayed for ever
	@PYTHONPATH=.:worker_image .venv/bin/python -m tests.replay

golden: venv ## write the golden files of the chart and its table of values anew
	@PERDURE_UPDATE_GOLDEN=1 .venv/bin/pytest tests/chart -q -k "golden or readme"

venv: ## .venv with exactly the locked packages
	@hack/venv >/dev/null

cluster-up: ## a cluster for development
	@hack/cluster up

cluster-down: ## end it
	@hack/cluster down

clean: ## remove what can be made again (not the built programs in ~/.cache/perdure)
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist
