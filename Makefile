# Each target sets up what it needs, in .venv/ (ignored by git), from nothing but Debian and Python 3.11.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := $(shell find src -type f \( -name '*.py' -o -name '*.cpp' -o -name '*.hpp' -o -name '*.js' -o -name '*.html' -o -name '*.css' \)) pyproject.toml setup.py

.PHONY: demo test test-narrow test-federated test-spark java lint bench claim claims table docs clean wheel browser
.DELETE_ON_ERROR:

# A fresh clone is timed from its first file on; `make` alone is timed in an older one.
BEGAN := $(shell date +%s)
demo: .venv/core
	$(BIN)/apportion demo --out demo
	@cloned=$$(stat -c %Y .git/description 2> /dev/null || echo 0); since="git clone"; \
	if [ $$(($(BEGAN) - cloned)) -gt 600 ]; then cloned=$(BEGAN); since="make demo"; fi; \
	echo "From $$since to the explorer page: $$(($$(date +%s) - cloned)) s, installs included. Open demo/explorer.html."

# Two processes of one thread each: libraries that start as many threads as there are cores would get in each other's way.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest

test: .venv/dev browser
	$(PYTEST) -n 2 --dist loadfile tests
	$(PYTEST) --doctest-modules --pyargs apportion -q

# Again without AVX-512: what scores, ranks, sums or solves. Nothing to do on a machine that has none.
NARROW := $(addprefix tests/,linalg engines statistics recommend evaluation published)
test-narrow: .venv/dev
	@switches="$$($(BIN)/python tests/narrow_vectors.py)"; \
	if [ -z "$$switches" ]; then echo "No AVX-512 here: a run without it is the run of make test."; exit 0; fi; \
	echo "$$switches"; env $$switches $(PYTEST) -n 2 --dist loadfile -m "not slow" $(NARROW)

# The tests of Spark again, on Apache Spark itself: classic, then one fit through its own Spark Connect server. PySpark
# with its server and the client alone cannot be in one environment, so this one is its own.
SPARK := .venv-spark/bin
test-spark: .venv-spark/ready java
	@command -v java > /dev/null || { echo "There is no Java and it could not be installed: Apache Spark is not tested."; exit 0; }; \
	test -s .venv-spark/ready || { echo "PySpark could not be installed: Apache Spark is not tested."; exit 0; }; \
	export PYSPARK_PYTHON="$(CURDIR)/$(SPARK)/python" APPORTION_THREADS=1 OMP_NUM_THREADS=1; \
	APPORTION_SPARK=classic $(SPARK)/python -m pytest -q tests/engines/spark && \
	APPORTION_SPARK=connect $(SPARK)/python -m pytest -q tests/engines/spark/test_interactions.py -k "given and ratings"

java:
	@command -v java > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null \
		&& { apt-get install -y -q openjdk-17-jre-headless || { apt-get update -q && apt-get install -y -q openjdk-17-jre-headless; }; } \
		> /dev/null 2>&1; } || true

# Fits over real processes, by HTTPS and by Flower. Flower moves pins of the other environment, so this one is its own.
FEDERATED := .venv-federated/bin
test-federated: .venv-federated/ready
	@test -s .venv-federated/ready || { echo "Flower could not be installed: fits over its processes are not tested."; exit 0; }; \
	OMP_NUM_THREADS=1 timeout 420 $(FEDERATED)/python -m pytest -q tests/transport/test_real_processes.py

# Code, types, layers, spelling and prose.
PROSE = README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md $(wildcard papers/*/README.md docs/*.md \
	$(addsuffix /*.md,$(addprefix docs/,start tutorials concepts howto papers proofs decisions)))
lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/proselint check $(PROSE)
	$(BIN)/python docs/check_words.py

docs: .venv/dev
	$(BIN)/python docs/generate.py
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

# make claim NAME=ml1m-ratings [QUICK=1]; make claims [QUICK=1] runs all of them; make table writes what the docs show of it.
claim: .venv/dev browser
	$(BIN)/python -m benchmarks $(NAME) $(if $(QUICK),--quick)

claims bench: .venv/dev browser
	$(BIN)/python -m benchmarks --all $(if $(QUICK),--quick)

table: .venv/dev
	$(BIN)/python -m benchmarks --table

wheel: .venv/wheel

# Tests of the explorer run in Chromium; where it cannot be installed they are skipped and say so.
browser:
	@command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null \
		&& { apt-get install -y -q chromium || { apt-get update -q && apt-get install -y -q chromium; }; } > /dev/null 2>&1; } \
		|| echo "There is no Chromium and it could not be installed: tests in a browser will be skipped."

.venv/bin/pip:
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --upgrade pip setuptools wheel build

.venv/wheel: .venv/bin/pip $(SOURCES)
	rm -rf build dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . > .venv/wheel.log 2>&1 || (cat .venv/wheel.log; false)
	touch $@

.venv/core: .venv/wheel
	$(BIN)/pip install -q -c constraints.txt dist/*.whl
	$(BIN)/pip install -q --no-deps --force-reinstall dist/*.whl
	touch $@

.venv/dev: .venv/wheel constraints.txt
	$(BIN)/pip install -q -c constraints.txt dist/*.whl torch==2.13.0 --group dev --group peers
	$(BIN)/pip install -q --no-deps --force-reinstall dist/*.whl
	$(BIN)/pip check
	touch .venv/core $@

.venv-federated/ready: .venv/wheel constraints.txt
	$(PYTHON) -m venv .venv-federated
	$(FEDERATED)/pip install -q -c constraints.txt dist/*.whl cryptography hypothesis pytest
	$(FEDERATED)/pip install -q --no-deps --force-reinstall dist/*.whl
	-$(FEDERATED)/pip install -q -c constraints.txt "$$(ls dist/*.whl)[federated]"
	if $(FEDERATED)/python -c "import flwr"; then echo ready > $@; else : > $@; fi

.venv-spark/ready: .venv/wheel constraints.txt
	$(PYTHON) -m venv .venv-spark
	$(SPARK)/pip install -q -c constraints.txt dist/*.whl cryptography duckdb hypothesis pytest "scikit-learn>=1.6,<2"
	$(SPARK)/pip install -q --no-deps --force-reinstall dist/*.whl
	-$(SPARK)/pip install -q -c constraints.txt "pyspark[connect]>=4"
	if $(SPARK)/python -c "import pyspark"; then echo ready > $@; else : > $@; fi

clean:
	rm -rf .venv .venv-federated .venv-spark build dist demo docs/_build docs/reference docs/gallery .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
