# Two commands set everything up on a fresh machine: `make demo` and `make test`.
.DEFAULT_GOAL = help
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
GPU_OUT ?= runs/gpu
export PYTHONDONTWRITEBYTECODE = # or each of the many processes of a run compiles anew what it imports
# The stack of most tests and of the demo. VLLM=0.27.1 takes another vLLM, of the stacks in constraints/.
STACK = verl-vllm-0.29.0
VLLM_VENV = $(VENV)-verl-vllm-$(or $(VLLM),0.32.0)
OPENRLHF_VENV = $(VENV)-openrlhf$(addprefix -vllm-,$(filter-out 0.29.0,$(VLLM)))
# M chooses tests by the markers in pyproject.toml: make test-vllm M="trainer and speculative"
TRAINERS_HERE = tests/adapters tests/conformance integration_tests/adapters

.PHONY: help browser demo demo-self-pair demo-real study study-real study-gpu bench bench-speculative bench-gpu test test-fast \
  test-docs test-engines test-trainers test-openrlhf-core test-openrlhf test-skyrl test-long test-vllm test-newest-vllm \
  test-oldest-vllm test-newest test-gpu constraints release docs lint clean

help:
	@echo 'make demo        trains a toy with verl by GRPO and in tandem, on the CPU, and shows who can follow it'
	@echo 'make test        units, real engines, real trainers; make test-fast the units alone'
	@echo 'make lint        ruff and mypy; CONTRIBUTING.md lists the other targets.'

# Environments, by the constraint file of a tested stack.
$(VENV)/.demo-ready: EXTRAS = cpu
$(VENV)/.real-ready: EXTRAS = cpu,tasks
$(VENV)/.test-ready: EXTRAS = cpu,dev,tasks
$(VENV)/.test-ready: INCLUDED = $(VENV)/.demo-ready $(VENV)/.real-ready
$(VENV)/.%-ready: pyproject.toml constraints/$(STACK).txt
	$(PYTHON) constraints/install.py $(VENV) $(STACK) --editable ".[$(EXTRAS)]"
	touch $@ $(INCLUDED)
$(VENV)-verl-vllm-%/.ready: pyproject.toml constraints/verl-vllm-%.txt
	$(PYTHON) constraints/install.py $(@D) verl-vllm-$* --editable ".[cpu,dev]"
	touch $@
$(OPENRLHF_VENV)/.ready: pyproject.toml
	$(PYTHON) constraints/install.py $(@D) openrlhf-vllm-$(or $(VLLM),0.29.0) --editable ".[openrlhf-cpu,trl-cpu,dev]"
	touch $@
$(VENV)-skyrl/.ready: pyproject.toml constraints/skyrl-vllm-0.30.0.txt
	$(PYTHON) constraints/install.py $(@D) skyrl-vllm-0.30.0 --editable ".[skyrl-cpu,dev]"
	touch $@
# The page of `tandem view` is tested in a real browser, or not at all.
browser:
	@command -v chromedriver >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq \
	  --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1 || echo "Chromium cannot be installed here."

demo demo-self-pair: $(VENV)/.demo-ready
demo-real: $(VENV)/.real-ready
demo demo-real demo-self-pair:
	$(BIN)/python examples/demo/$(if $(filter demo,$@),run,self_pair).py --out $(or $(OUT),runs/$@) $(addprefix --steps ,$(STEPS)) \
	  $(addprefix --seed ,$(SEED)) $(if $(filter demo-real,$@),--real) $(if $(SOLO),--solo)
study: $(VENV)/.demo-ready
study-real: $(VENV)/.real-ready
study study-real study-gpu: # the last in the environment of PYTHON: MODELS=24, SEEDS=8
	$(if $(filter %gpu,$@),$(PYTHON),$(BIN)/python) examples/study/$(or $(filter-out study,$(@:study-%=%)),run).py --out $(or $(STUDY),runs/$@) $(addprefix --models ,$(MODELS)) $(addprefix --seeds ,$(SEEDS))
bench: $(VENV)/.demo-ready
	$(BIN)/python benchmarks/run.py --out $(or $(BENCHMARKS),runs/benchmarks)
bench-speculative: $(VENV)/.demo-ready
	$(BIN)/python benchmarks/speculative.py --part speculative --out $(or $(BENCHMARKS),runs/benchmarks)
# On a GPU: PYTHON is an interpreter that has vLLM, pytest and this package. TESTS="sleep or verl", PART=4b
test-gpu:
	$(PYTHON) -m pytest -m gpu $(if $(TESTS),-k "$(TESTS)") --junitxml $(GPU_OUT)/tests.xml \
	  -o junit_logging=system-out integration_tests
bench-gpu:
	$(PYTHON) benchmarks/gpu.py --out $(GPU_OUT)/benchmarks $(addprefix --part ,$(PART)) $(OPTIONS)

# Each keeps one core busy most of the time: two at a time, the longest first, and so are environments made.
test:
	$(MAKE) --jobs 2 test-openrlhf-core test-engines test-fast test-trainers $(ALSO)
test-fast: $(VENV)/.test-ready
	$(BIN)/python -m pytest tests
test-engines: $(VENV)/.test-ready browser
	$(BIN)/python -m pytest -m "not (trainer or long)" integration_tests
test-trainers: $(VENV)/.test-ready
	$(BIN)/python -m pytest -m "trainer and not long" integration_tests/adapters/tandem_verl
test-openrlhf-core test-openrlhf: $(OPENRLHF_VENV)/.ready
	$(<D)/bin/python -m pytest -m "$(or $(M),(openrlhf or trl)$(if $(filter %core,$@), and not long))" $(TRAINERS_HERE)
test-skyrl: $(VENV)-skyrl/.ready
	$(<D)/bin/python -m pytest -m "$(or $(M),skyrl and not long)" $(TRAINERS_HERE)
test-docs: docs $(VENV)/.test-ready browser
	$(BIN)/python -m pytest integration_tests/docs
test-long: $(VENV)/.test-ready
	$(BIN)/python -m pytest -m "long and not (openrlhf or trl)" integration_tests
	$(MAKE) test-oldest-vllm test-newest-vllm
	$(MAKE) test-vllm VLLM=0.32.0 M="lane and trainer"
test-vllm: $(VLLM_VENV)/.ready
	$(VLLM_VENV)/bin/python -m pytest -m "$(or $(M),engine)" integration_tests
test-newest-vllm:
	$(MAKE) test-vllm VLLM=0.32.0 M="engine and lane and not (v2 or long)"
test-oldest-vllm:
	$(MAKE) test-vllm VLLM=0.24.0 M="lane and not (v2 or long)"
# Hooks and patched symbols in the newest vllm, verl, openrlhf or trl, or in LIBRARY=verl@git+URL@BRANCH, without what is for CUDA.
NAME = $(firstword $(subst @, ,$(subst =, ,$(LIBRARY))))
BESIDE = $(if $(filter verl,$(NAME)),$(VENV),$(if $(filter vllm,$(NAME)),$(VLLM_VENV),$(OPENRLHF_VENV)))
test-newest: $(BESIDE)/$(if $(filter verl,$(NAME)),.test-ready,.ready)
	rm -rf build/newest-$(NAME)
	$(BESIDE)/bin/python -m pip install --quiet --no-deps --target build/newest-$(NAME) $(LIBRARY)
	find build/newest-$(NAME) -name '*.so' -delete
	PYTHONPATH=build/newest-$(NAME) $(BESIDE)/bin/python -m pytest -m hooks \
	  $(if $(filter vllm,$(NAME)),integration_tests/engine,tests/adapters/tandem_$(NAME))

# The constraint file of STACK anew: what goes together today, for Python 3.10 (vLLM 0.32.0 and TRL: 3.11) to 3.12.
constraints:
	mkdir -p build && STACK=$(STACK) sh constraints/compile.sh > build/$(STACK).txt
	mv build/$(STACK).txt constraints/$(STACK).txt
$(VENV)-docs/bin/python $(VENV)-release/bin/python:
	$(PYTHON) -m venv $(@:/bin/python=)
release docs: TOOLS = $(VENV)-$@/bin/python
release: $(VENV)-release/bin/python
	$(TOOLS) -m pip install --quiet build twine
	.ci/release $(TOOLS)
docs: $(VENV)-docs/bin/python
	$(TOOLS) -m pip install --quiet --editable ".[docs]"
	$(TOOLS) docs/generate_cli.py
	$(TOOLS) docs/generate_troubleshooting.py
	NO_MKDOCS_2_WARNING=1 $(TOOLS) -m mkdocs build --strict
lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 --disable-error-code no-any-return --no-warn-unused-ignores
clean:
	rm -rf $(VENV) $(VENV)-* build dist runs .pytest_cache .mypy_cache .ruff_cache
