# Everything here builds .venv by itself, from the hashed requirements*.txt, once and again whenever one of them changes.
# Another interpreter for a new .venv: make PYTHON=python3.12 <target>
#
# Written for GNU make 3.81, which macOS has: no .ONESHELL, no .SHELLFLAGS.

VENV := .venv
PY := $(VENV)/bin/python
PIP_INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation
# The build tools come from the lock as well, so pip must not fetch others for the packages that come as sources.
HASHED := $(PIP_INSTALL) --require-hashes
BUILD := $(VENV)/.build-stamp
RUNTIME := $(VENV)/.runtime-stamp
DEV := $(VENV)/.dev-stamp
CLASSES := $(VENV)/spark-classes.jsa
PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python)
COMPILE = CUSTOM_COMPILE_COMMAND="make lock" $(PY) -m piptools compile --quiet --generate-hashes --strip-extras --allow-unsafe \
  --no-emit-options --no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(if $(filter 1,$(UPGRADE)),--upgrade,$(addprefix --upgrade-package ,$(UPGRADE)))

# Those with Spark last. TiDB itself takes no other type or place for a primary key, so two histories are left out; so are tests
# that look at waiting statements as MariaDB shows them, and one with a column that TiDB does not add.
TIDB_LEFT_OUT := duckdb or changes_its_type or moves_to_another_column or alters_a_table or broke_off_is_looked_at or \
  a_persons_statement_computed or exchange_is_not_taken_for_done or has_no_checksum or a_mariadb_is_not_taken
TIDB_TESTS := tests/sinks/test_mysql_writer.py tests/sinks/test_mysql_ledger.py tests/sinks/test_mysql_bags.py \
  tests/sinks/test_mysql_metadata.py tests/test_restart.py tests/test_keys.py tests/test_ddl_decisions.py \
  tests/test_fencing.py tests/test_journal.py tests/test_conformance_storage.py tests/storage_cases/test_mysql_variables.py \
  tests/sources/test_kafka_upstream.py tests/storage_cases/test_hostile_statements.py tests/storage_cases/test_left_keys.py

# Of the costly tests with variants a quarter (tests/sampling.py), unless ALL=1.
SAMPLE := $(if $(filter 1,$(ALL)),,HEADRACE_TEST_SAMPLE=1)

# What is set for another environment must not leak into this one.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
# Without bytecode, every process of every run translates all tests anew: half a minute of two cores.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-fast test-tidb fuzz differential faults soak docs proto lint format bench lock dist clean java

help: ## Show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

demo: $(RUNTIME) java ## Run the real pipeline on a small shop's changes, into a DuckDB file
	@rm -rf headrace-demo
	@$(VENV)/bin/headrace demo

test: lint java $(CLASSES) ## Lint, then the tests, the fast ones first; of costly ones a sample, or all with ALL=1, as CI has it
	@echo "tests without Spark: what is fast, whole pipelines in one process, servers (one of each to a worker)"
	@$(SAMPLE) $(PY) -m pytest -m "not spark" --ignore=tests/support -n auto
	@echo "types and schema changes, in one process that writes down what it observes"
	@$(PY) -m pytest tests/support
	@echo "tests with Spark, on two sessions"
	@$(SAMPLE) $(PY) -m pytest -m spark -n 2 --dist loadscope --no-loadscope-reorder

# Folders that have none of these tests are not even collected, and nothing here waits for a server: a worker for each core is enough.
test-fast: $(DEV) ## The quick tests, within a minute: no Spark, no servers, no whole pipelines, nothing that takes a second
	@$(PY) -m pytest tests -m "not spark and not server and not pipeline and not long" --ignore tests/storage_cases \
	  --ignore tests/support --ignore tests/fuzz -n $$(getconf _NPROCESSORS_ONLN)

test-tidb: $(DEV) java ## The tests that a TiDB can stand in for MariaDB in; builds one into .tidb first (needs Go; minutes, once)
	@echo "building TiDB, unless .tidb has it"
	@$(PY) tests/tidb_server.py
	@$(PY) -m pytest --mysql-server tidb -m server $(TIDB_TESTS) -k "not ($(TIDB_LEFT_OUT))"

$(CLASSES): $(RUNTIME) | java
	@echo "letting Spark's JVM write down what it loads, so that the tests' many sessions start in half the time"
	@$(PY) tests/class_archive.py
	@if [ -e $@ ]; then touch $@; fi

docs: $(DEV) ## Write docs/types-and-ddl.md from what its suites observe, and docs/evidence.md from tests/evidence.yaml
	@HEADRACE_WRITE_DOCS=1 $(PY) -m pytest tests/test_evidence.py
	@HEADRACE_WRITE_DOCS=1 $(PY) -m pytest tests/support

# The second command asks more of each input, and takes a hundred times as long for one.
fuzz: $(DEV) ## Feed the readers a million damaged files, statements, paths, URIs, other ones each time (some minutes)
	@HEADRACE_FUZZ_EXAMPLES=$${HEADRACE_FUZZ_EXAMPLES:-100000} $(PY) -m pytest tests/fuzz -q -n auto --timeout 0
	@HEADRACE_FUZZ_EXAMPLES=$$(( ($${HEADRACE_FUZZ_EXAMPLES:-100000} + 99) / 100 )) \
	  $(PY) -m pytest tests/formats/test_fuzz.py -q -n auto --timeout 0

differential: $(DEV) ## Put random histories before the targets, other ones each time (15 minutes)
	@HEADRACE_DIFFERENTIAL_SECONDS=$${HEADRACE_DIFFERENTIAL_SECONDS:-900} $(PY) -m pytest tests/test_differential.py -q --timeout 0

faults: $(DEV) ## Let runs meet random crashes, failures, late tasks and takeovers, other ones each time (15 minutes)
	@HEADRACE_FAULTS_SECONDS=$${HEADRACE_FAULTS_SECONDS:-180} $(PY) -m pytest tests/test_fault_model.py tests/test_streams.py tests/test_long_changes.py \
	  tests/test_memory_sink.py -k "history_of_faults or whatever_kills_the_runs or how_far_they_are" -q --timeout 0

soak: $(DEV) java ## Kill runs, servers and connections at random moments; let others live long, and see that nothing grows (an hour)
	@$(PY) tests/soak.py --seconds $${HEADRACE_SOAK_SECONDS:-1800}
	@$(PY) tests/long_life.py

lint: $(DEV) ## ruff, mypy --strict and the import contracts
	@# Without the cache, which keeps what it said of imports when a module moves.
	@$(PY) -m ruff check --no-cache .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports

format: $(DEV) ## Let ruff mend what it can
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

# Only for a change of the definition: nothing else needs the compiler, so it is not in the lock.
proto: $(DEV) ## Generate the protobuf code of binlog and Canal messages again (installs grpcio-tools)
	@$(PIP_INSTALL) "grpcio-tools>=1.85,<2" && $(PY) -m grpc_tools.protoc -Isrc --python_out=src headrace/formats/binlog/slave_binlog.proto headrace/formats/canal/canal.proto

bench: $(DEV) java ## Measure; prints a table and writes bench-result.json
	@$(PY) -m benchmarks.run

# The larger set first: the smaller one then agrees with it, and both fit into one .venv.
lock: $(DEV) ## Resolve requirements*.txt again (UPGRADE=1: to the newest versions, UPGRADE=name: of one package)
	@$(COMPILE) -o requirements-build.txt requirements-build.in
	@$(COMPILE) -o requirements-java.txt requirements-java.in
	@$(COMPILE) -c requirements-build.txt -c requirements-java.txt --extra dev \
	  -o requirements-dev.txt pyproject.toml requirements.in requirements-java.in requirements-dev.in
	@$(COMPILE) -c requirements-dev.txt -o requirements.txt pyproject.toml requirements.in
	@$(PY) release/bill_of_materials.py

# The wheel is built from the sdist. The same files give the same bytes, on any day and machine (tests/test_release.py).
dist: $(DEV) ## Build sdist and wheel into dist, with their bill of materials; prints checksums
	@others=$$(git ls-files --others --exclude-standard -- src/headrace docs); [ -z "$$others" ] || { \
	  echo "A release is what is committed, and these files are not:"; echo "$$others"; exit 1; }
	@rm -rf dist
	@$(PY) -m build --no-isolation --outdir dist . >/dev/null
	@cp headrace.cdx.json dist
	@cd dist && ../$(PY) -c 'from hashlib import sha256; from pathlib import Path; \
	  [print(sha256(path.read_bytes()).hexdigest(), path) for path in sorted(Path().iterdir())]'

clean: ## Remove .venv, the caches, and what demo and bench left; .tidb and .kafka stay, since they take long to get
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -rf headrace-demo spark-warehouse metastore_db derby.log bench-result.json
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A Java that Spark can use, from JAVA_HOME or PATH; where there is none, the one that comes as a package.
java: $(RUNTIME)
	@$(PY) -m headrace.engine.java >/dev/null 2>&1 || { \
	  echo "no Java for Spark (17 to 23) in JAVA_HOME or on PATH: installing one into $(VENV)" && \
	  $(HASHED) -r requirements-java.txt && \
	  $(PY) -m headrace.engine.java >/dev/null; \
	}

$(PY):
	@for python in $(PYTHONS); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "building $(VENV) with $$("$$python" --version)"; \
	    "$$python" -m venv --clear $(VENV) && exit 0; \
	    echo "$$python cannot make a virtual environment; on Debian and Ubuntu install python3-venv" >&2; \
	    exit 1; \
	  fi; \
	done; \
	echo "Headrace needs Python 3.11 or newer, and there is none among: $(PYTHONS)." \
	  "Install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
	exit 1

$(BUILD): requirements-build.txt | $(PY)
	@$(HASHED) -r requirements-build.txt
	@touch $@

$(RUNTIME): $(BUILD) requirements.txt pyproject.toml
	@echo "installing what Headrace runs on (at first that fetches 0.6 GB, most of it Spark, and takes some minutes)"
	@$(HASHED) -r requirements.txt
	@$(PIP_INSTALL) --no-deps --editable .
	@touch $@

$(DEV): $(RUNTIME) requirements-dev.txt examples/headrace-sqlite/pyproject.toml
	@echo "installing what the tests need"
	@$(HASHED) -r requirements-dev.txt
	@$(PIP_INSTALL) --no-deps --editable examples/headrace-sqlite
	@touch $@
