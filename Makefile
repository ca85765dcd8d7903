# Everything a newcomer needs: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo quick quick-tests integration-tests test slow setup lint docs clean

demo: $(STAMP)
	$(BIN)/python -m benchmarks demo

# Under a minute: lint, types, and the tests that start no Ray and take no time.
quick: $(STAMP) lint quick-tests

quick-tests: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not ray and not slow" tests/test_space.py tests/test_hyper.py \
	  tests/test_tuner.py tests/test_imports.py tests/nn/test_responses.py tests/nn/test_attach.py tests/analysis/test_load.py \
	  tests/analysis/test_record.py tests/analysis/test_tables.py tests/analysis/test_curves.py stn_tune

# Lightning, Transformers and Accelerate, without Ray.
integration-tests: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not ray and not slow" tests/integrations

# Everything but the slow tests.
test: $(STAMP) lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

# Whole studies, clusters that lose nodes, killed commands: minutes each. CI runs these, too.
slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in docs/_build/html; warnings are errors, an undocumented public name and a broken link among them.
docs: $(STAMP)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

setup: $(STAMP)

# torch first, at the tested version: a CPU build of it that is already there is kept.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "stn_tune: the tested versions need Python 3.11 or newer; try: make PYTHON=python3.11"; exit 2; }
	@echo "Setting up $(VENV) (a few minutes, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench,dev,docs]'
	@touch $(STAMP)

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
