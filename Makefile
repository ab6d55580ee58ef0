# Two commands do everything: `make demo` and `make test`. Each sets up what it needs in .venv; stamp files make repeat runs quick.

PYTHON ?= python3
CARGO ?= cargo
# Three more than the two cores of a small machine: tests wait for processes, disks and clocks as well.
PYTEST_WORKERS ?= 5
# A test that takes this long hangs: the run then ends, with what each of the test's threads was doing.
TEST_TIMEOUT_SECONDS ?= 600
# Accepted files of `make test-readers`; `make test` has fewer.
READERS_FILES ?= 520
# What `make test-fast` runs.
FAST := tests/unit tests/property tests/vectors tests/behaviour/gate

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
REPORTS := build/test
# The classes that Spark loads: with them the Java processes of the tests start in half the processor time.
SPARK_ARCHIVE := $(REPORTS)/spark.jsa
CHECKED := $(wildcard src tests tools bench examples)
KERNEL_SOURCES := $(wildcard kernel/Cargo.* kernel/*.toml kernel/*.pyi kernel/*.rs) $(shell find kernel/src -name '*.rs')

# Why the native kernel could not be built; there only while it could not.
KERNEL_NOTICE := $(STAMPS)/kernel-notice

PIP := $(BIN)/python -m pip --disable-pip-version-check
PREREQUISITES := PYTHON="$(PYTHON)" CARGO="$(CARGO)" sh tools/prerequisites.sh
# make's jobserver is not for cargo, which would warn that it cannot reach it.
ALONE := env -u MAKEFLAGS -u MFLAGS
# Its tests and its linter need no Python. With one environment for both they share what is compiled.
KERNEL_CARGO := cd kernel && $(ALONE) PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1 "$(CARGO)"
# How the kernel is compiled for Python, and for its tests and its linter (kernel/Cargo.toml has the profiles).
KERNEL_PROFILE ?= release
KERNEL_TEST_PROFILE ?= dev
KERNEL_TEST = $(KERNEL_CARGO) test --lib --locked --quiet --profile $(KERNEL_TEST_PROFILE)

export CARGO
# Hundreds of tests start `pvdm` anew: what was compiled once is not compiled again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup prerequisites kernel demo test test-fast test-python compile-tests compile-kernel-tests reference-server test-readers test-kernel test-kill test-long lint lint-style lint-python lint-kernel \
	format bench bench-kernel bench-steward bench-catalog bench-publish bench-locate bench-storage bench-backfill bench-soak bench-spark bench-long \
	model rck rck-postgresql vectors fuzz wheel clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

setup: $(STAMPS)/python kernel ## build .venv, and the native kernel where cargo is there

prerequisites: ## what this machine lacks, with the package to install
	@$(PREREQUISITES) && echo "all prerequisites are there"

$(STAMPS)/python: pyproject.toml constraints.txt
	@$(PREREQUISITES) python
	@echo "setup: Python packages into $(VENV)"
	@"$(PYTHON)" -m venv $(VENV)
	@$(PIP) install --quiet --no-compile --constraint constraints.txt hatchling maturin pip setuptools
	@DIST_EXTRA_CONFIG=$(CURDIR)/tools/wheels.cfg \
		$(PIP) install --quiet --no-compile --constraint constraints.txt --no-build-isolation --editable '.[aws-durable,dev,kms,lattice,openlineage,pkcs11,postgres,s3,spark,upstream]'
	@mkdir -p $(STAMPS) && touch $@

# A kernel that is older than its sources is never used: it is built again, or taken out where it cannot be.
kernel: $(STAMPS)/python
	@if $(PREREQUISITES) cargo cc > $(KERNEL_NOTICE).new; then \
		rm -f $(KERNEL_NOTICE) $(KERNEL_NOTICE).new && $(MAKE) --no-print-directory --silent $(STAMPS)/kernel; \
	else \
		mv $(KERNEL_NOTICE).new $(KERNEL_NOTICE); \
		$(PIP) uninstall --quiet --yes pvdm-kernel > /dev/null 2>&1; rm -f $(STAMPS)/kernel; \
		echo "notice: the native kernel is not built; digests go through the Python reference, some hundred times slower"; \
		sed 's/^/  /' $(KERNEL_NOTICE); \
		test "$$PVDM_REQUIRE_SERVICES" != 1; \
	fi

$(STAMPS)/kernel: $(KERNEL_SOURCES) $(STAMPS)/python
	@echo "setup: the native kernel (some minutes the first time)"
	@rm -rf build/kernel && mkdir -p build/kernel
	@$(ALONE) $(BIN)/maturin build --quiet --profile $(KERNEL_PROFILE) --compatibility linux --manifest-path kernel/Cargo.toml \
		--interpreter $(BIN)/python --out build/kernel
	@$(PIP) install --quiet --no-index --no-deps --force-reinstall build/kernel/*.whl
	@touch $@

demo: setup ## on real Spark and Iceberg: a good run is published, seven bad ones are refused (needs Java 17)
	@$(BIN)/pvdm demo

# Packages are fetched while the kernel's tests are compiled, and Spark's classes are archived while its module is: none of
# these keeps two cores busy alone. Types are checked beside all that follows, with what it leaves of the processor.
test: ## lint and every test but the long ones; says what it could not start
	@$(PREREQUISITES) python
	@$(MAKE) --no-print-directory --jobs=2 $(STAMPS)/python test-kernel
	@mkdir -p $(REPORTS); status=0; \
	nice -n 19 $(MAKE) --no-print-directory lint-python > $(REPORTS)/lint.txt 2>&1 & lint=$$!; \
	$(MAKE) --no-print-directory --jobs=3 setup $(SPARK_ARCHIVE) compile-tests reference-server && \
	$(MAKE) --no-print-directory test-python lint-kernel || status=1; \
	wait $$lint || { status=1; cat $(REPORTS)/lint.txt; }; \
	exit $$status

# They need no Python; where they cannot be built, `kernel` says why.
test-kernel: compile-kernel-tests
	@if $(PREREQUISITES) cargo cc > /dev/null; then $(KERNEL_TEST); fi

compile-kernel-tests:
	@if $(PREREQUISITES) cargo cc > /dev/null; then $(KERNEL_TEST) --no-run; fi

test-python: setup $(SPARK_ARCHIVE) compile-tests
	@rm -rf build/readers build/readers.json build/kill.json
	@status=0; \
	$(BIN)/pytest -n $(PYTEST_WORKERS) --max-worker-restart=0 --ignore=tests/long -m "not long" \
		-o faulthandler_timeout=$(TEST_TIMEOUT_SECONDS) -o faulthandler_exit_on_timeout=true \
		--junitxml=$(REPORTS)/pytest.xml || status=$$?; \
	$(BIN)/python tools/test_durations.py $(REPORTS)/pytest.xml || status=1; \
	$(BIN)/python tools/not_started.py --notice kernel=$(KERNEL_NOTICE) $(REPORTS)/pytest.xml || status=1; \
	$(BIN)/python tools/readers_report.py || status=1; \
	exit $$status

# Maven takes a minute to fetch it. If it cannot, the tests that need the server say so.
reference-server: $(STAMPS)/python
	-@$(BIN)/python -m bench.catalog --fetch-only

# The workers of pytest need the same compiled modules at the same time.
compile-tests: $(STAMPS)/python
	@$(BIN)/python tools/compile_tests.py

$(SPARK_ARCHIVE): $(STAMPS)/python
	@mkdir -p $(REPORTS) && rm -f $@
	@$(BIN)/python -m tools.spark_archive $@

test-fast: setup ## unit, gate, vector and property tests; starts no Spark and no PostgreSQL
	@PVDM_TEST_FAST=1 $(BIN)/pytest -q -n $(PYTEST_WORKERS) -m "not long" $(FAST)

test-readers: setup ## changed Parquet files that verification accepts, read by four engines; build/readers.json
	@rm -rf build/readers build/readers.json
	@status=0; \
	PVDM_READERS_FILES=$(READERS_FILES) $(BIN)/pytest -n $(PYTEST_WORKERS) tests/readers || status=$$?; \
	$(BIN)/python tools/readers_report.py || status=1; \
	exit $$status

test-kill: setup ## SIGKILL of the process that reaches each fault point, a part of `make test`; build/kill.json
	@rm -f build/kill.json
	@$(BIN)/pytest -n 0 tests/fault/test_kill_walk.py
	@cat build/kill.json

test-long: setup ## what `make test` samples, as a whole: tests marked long, tests/long, property tests with many more examples
	@rm -rf build/random_kills build/random_kills.json build/kill_schedules build/kill_schedules.json
	@status=0; \
	if test -f $(STAMPS)/kernel; then ($(KERNEL_TEST) -- --ignored) || status=1; fi; \
	$(BIN)/pytest -n $(PYTEST_WORKERS) -m long --ignore=tests/long || status=1; \
	HYPOTHESIS_PROFILE=long $(BIN)/pytest -n $(PYTEST_WORKERS) tests/long tests/property || status=1; \
	exit $$status

lint: lint-python lint-kernel ## ruff, mypy --strict, import contracts; rustfmt and clippy where they are installed

lint-style: $(STAMPS)/python
	@$(BIN)/ruff check $(CHECKED)
	@$(BIN)/ruff format --check $(CHECKED)

lint-python: lint-style
	@$(BIN)/mypy $(CHECKED)
	@$(BIN)/lint-imports --no-logo

lint-kernel: setup
	@if test ! -f $(STAMPS)/kernel; then exit 0; fi; \
	for part in fmt clippy; do \
		($(KERNEL_CARGO) $$part --version > /dev/null 2>&1) || { \
			echo "lint: cargo $$part is not installed and was not run (rustup component add rustfmt clippy)"; continue; }; \
		case $$part in \
			fmt) ($(KERNEL_CARGO) fmt --check) || exit 1 ;; \
			clippy) test "$$RUSTC_WORKSPACE_WRAPPER" = clippy-driver || \
				($(KERNEL_CARGO) clippy --quiet --locked --profile $(KERNEL_TEST_PROFILE) --all-targets --features python -- -D warnings) || exit 1 ;; \
		esac; \
	done

format: setup ## rewrite the sources in their one format
	@$(BIN)/ruff check --fix --quiet $(CHECKED) || true
	@$(BIN)/ruff format $(CHECKED)
	@if test -f $(STAMPS)/kernel; then $(KERNEL_CARGO) fmt; fi

bench: bench-kernel bench-steward bench-catalog bench-publish bench-locate bench-storage bench-backfill bench-soak bench-spark ## every benchmark

bench-kernel: setup ## rows a second of the kernel, the reference and the paper's constructions; build/bench/kernel.json
	@mkdir -p build/bench
	@$(BIN)/python -m bench.kernel --out build/bench/kernel.json

bench-steward: setup ## reservations, proofs signed, checked and recorded, log appends and inclusion proofs; build/bench/steward.json
	@mkdir -p build/bench
	@$(BIN)/python -m bench.steward --out build/bench/steward.json

bench-catalog: setup ## commit latency beside PyIceberg's SqlCatalog and Iceberg's Java server (needs mvn); build/bench/catalog.json
	@mkdir -p build/bench
	@$(BIN)/python -m bench.catalog --out build/bench/catalog.json

bench-publish: setup ## what a publication costs on a table of 10,000 files beside one of 10; build/bench/publish.json
	@mkdir -p build/bench
	@$(BIN)/python -m bench.publish --out build/bench/publish.json

bench-locate: setup ## what locating wrong rows costs beside the verification that found them; build/bench/locate.json
	@mkdir -p build/bench
	@$(BIN)/python -m bench.locate --out build/bench/locate.json

bench-storage: setup ## what storage copied costs beside open, on lineitem at scale factor 1; build/bench/storage.json
	@mkdir -p build/bench
	@$(BIN)/python -m bench.storage --out build/bench/storage.json

bench-backfill: setup ## a backfill of 12 chunks on Spark, one chunk at a time beside two (needs Java 17); build/bench/backfill.json
	@mkdir -p build/bench
	@$(BIN)/python -m bench.backfill --out build/bench/backfill.json

bench-soak: setup ## 2,000 publications on one table, then 8 and 32 writers at once: half an hour; build/bench/soak.json
	@mkdir -p build/bench
	@$(BIN)/python -m bench.soak --out build/bench/soak.json

bench-spark: setup ## what proof costs beside Spark's plain write of lineitem (needs Java 17); build/bench/spark.json
	@mkdir -p build/bench
	@$(BIN)/python -m bench.spark --out build/bench/spark.json

bench-long: setup ## the same at scale factors 1 and 10: about an hour on two cores; build/bench/spark.json
	@mkdir -p build/bench
	@$(BIN)/python -m bench.spark --out build/bench/spark.json --scale-factors 1 10

model: $(STAMPS)/python ## check the TLA+ model of publication with TLC, with and without each guard (needs java and mvn); build/model.json
	@$(BIN)/python -m tools.check_model

rck: setup ## Iceberg's REST compatibility kit against the catalog (needs javac and mvn); build/rck.json
	@$(BIN)/python -m tools.rck.run

rck-postgresql: setup ## the same on a PostgreSQL server of its own
	@$(BIN)/python -m tools.rck.run --postgresql --out build/rck-postgresql.json

vectors: setup ## make the conformance vectors, proof examples and hostile proofs again
	@$(BIN)/python -m tools.make_vectors
	@$(BIN)/python -m tools.make_proof_examples
	@$(BIN)/python -m tools.make_hostile_proofs

fuzz: setup ## random bytes to the decoder, random batches to the kernel
	@HYPOTHESIS_PROFILE=long $(BIN)/pytest -n $(PYTEST_WORKERS) tests/long -k fuzz

wheel: setup ## wheels of pvdm and of the kernel for this machine, in dist/
	@rm -rf dist && mkdir -p dist
	@$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@if test -f $(STAMPS)/kernel; then cp build/kernel/*.whl dist/; fi
	@ls dist

clean: ## remove everything that the other targets made
	rm -rf $(VENV) build dist kernel/target .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
