# Everything a person does here. Each target makes .venv on its own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Twice as many as there are cores, as many tests wait for other processes or for time to pass; in the
# order in which files come, or the longest, which have one test, would be last.
CORES := $(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)')
WORKERS ?= $(shell expr $(CORES) + $(CORES))
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Every worker, and every process that it starts, would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
COMPILED := src/headrace/records/scan.py src/headrace/records/encode.py src/headrace/log/offset_map.py
INSTALL_INPUTS := pyproject.toml setup.py $(COMPILED)

.PHONY: help demo examples up test test-slow test-spark42 check sim soak chaos bench pages schemas vectors jars clean
help:
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp a set of extras, so that a demo does not install what only tests need.
$(VENV)/.installed-%: $(INSTALL_INPUTS) | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

demo: $(VENV)/.installed-spark ## orders through a broker into a Spark table
	$(BIN)/python examples/demo.py

EXAMPLES := clicks order_queue change_data replay
examples: $(VENV)/.installed-spark ## run the example pipelines: late data, a queue, change data, a replay
	@for name in $(EXAMPLES); do echo "== $$name"; $(BIN)/python examples/$$name/demo.py || exit 1; done

up: $(VENV)/.installed-spark,tables ## start a node: clients on 127.0.0.1:9092, HTTP on 9094
	$(BIN)/headrace up

test: $(VENV)/.installed-dev ## every test but those that take minutes
	$(PYTEST) -m 'not exhaustive and not chaos'
	HEADRACE_PURE=1 $(PYTEST) tests/unit/records tests/unit/log/test_offset_map.py tests/unit/log/test_compaction.py

test-slow: $(VENV)/.installed-slow ## the tests that take minutes, one after the other
	$(BIN)/pytest -m exhaustive
	$(BIN)/pytest tests/sim --seeds 120 --timeout 0

# PySpark 4.2 beside the newest one, which .venv has.
SPARK42 := .venv-spark42
$(SPARK42)/.installed: $(INSTALL_INPUTS)
	$(PYTHON) -m venv $(SPARK42)
	$(SPARK42)/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]' 'pyspark==4.2.*'
	@touch $@

test-spark42: $(SPARK42)/.installed ## the tests with Spark, on PySpark 4.2
	$(SPARK42)/bin/pytest -m 'not exhaustive' tests/spark tests/unit/spark

check: WORKERS := $(CORES)# unit tests wait for nobody
check: $(VENV)/.installed-dev ## what pre-commit runs: format, lint, types, imports, unit tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -m 'not slow and not exhaustive' --hypothesis-profile quick tests/unit

sim: $(VENV)/.installed-dev ## play SEEDS=10000 seeds of the simulations
	$(BIN)/pytest tests/sim --seeds $(or $(SEEDS),10000) --timeout 0

soak: $(VENV)/.installed-dev ## mixed load on a node for MINUTES=60: is anything lost, does the loop stall
	$(BIN)/python -m tools.soak --minutes $(or $(MINUTES),60)

chaos: $(VENV)/.installed-dev ## 162 faults of nodes under load, each judged by what clients were promised
	$(BIN)/pytest -s tests/chaos

BENCHES := $(if $(ONLY),$(ONLY),$(patsubst bench/%.py,%,$(filter-out bench/measure.py bench/broker_%.py,$(wildcard bench/*.py))))
bench: $(VENV)/.installed-dev ## the figures, or one file of them with ONLY=wire; fails if one is missed
	@status=0; for name in $(BENCHES); do $(BIN)/python -m bench.$$name || status=1; done; exit $$status

pages: $(VENV)/.installed-dev ## write the pages again that are made from code: map, states, differences
	$(BIN)/python -m tools.module_map
	$(BIN)/python -m tools.state_diagrams
	$(BIN)/python -m tests.differential.differences

vectors: $(VENV)/.installed-dev ## write the node protocol's test vectors again (needs cargo)
	$(BIN)/python -m tools.cluster_vectors.peer

schemas: jars $(BIN)/python ## write the message definitions again from Apache Kafka's jars
	$(BIN)/python tools/schemas.py .jars

jars: .jars/.complete ## fetch Apache Kafka's jars (needs Java and Maven)
.jars/.complete: tools/jvm/pom.xml
	$(PYTHON) -m tools.jvm.harness

clean: ## remove what was built, but for .venv and .jars
	rm -rf build dist src/headrace.egg-info $(COMPILED:.py=.c) $(COMPILED:.py=.*.so)
