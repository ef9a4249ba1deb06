"""Every module has a test file of its name and folder, or is listed under the one that holds it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]

HELD_BY = {
    "integration_tests/adapters/tandem_openrlhf/test_recipes.py": [
        "adapters/tandem_openrlhf/on_cpu.py",
        "tandem_plugin/lab/recipes/on_cpu/sitecustomize.py",
    ],
    "integration_tests/adapters/tandem_skyrl/test_recipes.py": [
        "adapters/tandem_skyrl/on_cpu.py",
    ],
    "integration_tests/adapters/tandem_verl/test_recipes.py": [
        "adapters/tandem_verl/on_cpu.py",
    ],
    "integration_tests/engine/speculative/test_engine.py": [
        "tandem_plugin/engine/speculative/senior.py",
    ],
    "integration_tests/engine/test_engine.py": [
        "tandem_plugin/engine/runners/v1/processor.py",
    ],
    "integration_tests/engine/test_refusals.py": [
        "tandem_plugin/engine/configure.py",
        "tandem_plugin/engine/runners/__init__.py",
    ],
    "integration_tests/engine/test_vllm_hooks.py": [
        "tandem_plugin/engine/plugin.py",
    ],
    "tests/adapters/tandem_openrlhf/test_advantages.py": [
        "adapters/tandem_openrlhf/patches/training.py",
    ],
    "tests/adapters/tandem_openrlhf/test_hooks.py": [
        "tandem_plugin/patching/after_import.py",
    ],
    "tests/adapters/tandem_openrlhf/test_patches.py": [
        "adapters/tandem_openrlhf/patches/__init__.py",
        "adapters/tandem_openrlhf/patches/generation.py",
        "adapters/tandem_openrlhf/patches/loss.py",
    ],
    "tests/adapters/tandem_openrlhf/test_rollouts.py": [
        "tandem_plugin/training/shared_calls.py",
        "adapters/tandem_openrlhf/without_flash_attn/flash_attn/bert_padding.py",
        "adapters/tandem_openrlhf/without_flash_attn/flash_attn/utils/distributed.py",
    ],
    "tests/adapters/tandem_openrlhf/test_settings.py": [
        "adapters/tandem_openrlhf/train_ppo_ray.py",
        "tandem_plugin/training/ray_workers.py",
    ],
    "tests/adapters/tandem_skyrl/test_environment.py": [
        "tandem_plugin/grading/rewards/skyrl_reward.py",
    ],
    "tests/adapters/tandem_skyrl/test_batch.py": [
        "adapters/tandem_skyrl/experiment.py",
        "adapters/tandem_skyrl/rollouts.py",
        "adapters/tandem_skyrl/trainer.py",
    ],
    "tests/adapters/tandem_skyrl/test_start.py": [
        "adapters/tandem_skyrl/__main__.py",
        "adapters/tandem_skyrl/settings.py",
    ],
    "tests/adapters/tandem_trl/test_batch.py": [
        "adapters/tandem_trl/checkpoints.py",
        "adapters/tandem_trl/start.py",
    ],
    "tests/adapters/tandem_trl/test_grpo.py": [
        "adapters/tandem_trl/settings.py",
    ],
    "tests/adapters/tandem_verl/test_configuration.py": [
        "adapters/tandem_verl/settings.py",
    ],
    "tests/adapters/tandem_verl/test_trainer.py": [
        "adapters/tandem_verl/batch.py",
        "adapters/tandem_verl/loss.py",
    ],
    "tests/boundaries/test_markers.py": [
        "tandem_plugin/boundaries/marked_text.py",
    ],
    "tests/boundaries/test_round_trip.py": [
        "tandem_plugin/boundaries/vocabulary_families.py",
    ],
    "tests/boundaries/test_vocabularies.py": [
        "tandem_plugin/boundaries/resolvers.py",
        "tandem_plugin/boundaries/vocabulary.py",
    ],
    "tests/cli/test_cli.py": [
        "tandem_plugin/cli/__init__.py",
        "tandem_plugin/terminal/root.py",
    ],
    "tests/conformance/test_conformance_of_rewards.py": [
        "tandem_plugin/grading/rewards/openrlhf_reward.py",
        "tandem_plugin/grading/rewards/trl_reward.py",
    ],
    "tests/docs/test_docs.py": [
        "tandem_plugin/plugins/hookspecs.py",
        "tandem_plugin/schedules/parameters.py",
    ],
    "tests/docs/test_site.py": [
        "tandem_plugin/_version.py",
    ],
    "tests/engine/speculative/test_drafting.py": [
        "tandem_plugin/engine/speculative/draft_model.py",
    ],
    "tests/engine/speculative/test_state.py": [
        "tandem_plugin/engine/runners/v2/state.py",
        "tandem_plugin/engine/speculative/slot_flags.py",
    ],
    "tests/engine/test_admission.py": [
        "tandem_plugin/engine/patches/requests.py",
    ],
    "tests/engine/test_composite.py": [
        "tandem_plugin/engine/senior.py",
    ],
    "tests/engine/test_layer_tensors.py": [
        "tandem_plugin/engine/patches/worker.py",
    ],
    "tests/engine/test_measures.py": [
        "tandem_plugin/engine/token_scores.py",
    ],
    "tests/files/test_files.py": [
        "tandem_plugin/files/__init__.py",
    ],
    "tests/grading/rewards/test_own.py": [
        "tandem_plugin/grading/rewards/own_openrlhf.py",
        "tandem_plugin/grading/rewards/own_trl.py",
        "tandem_plugin/grading/rewards/own_verl.py",
    ],
    "tests/grading/rewards/test_rewards.py": [
        "tandem_plugin/grading/rewards/__init__.py",
        "tandem_plugin/grading/rewards/verl_reward.py",
    ],
    "tests/grading/symbolic/test_proof.py": [
        "tandem_plugin/grading/equality.py",
        "tandem_plugin/grading/symbolic/algebra.py",
    ],
    "tests/grading/test_hostile.py": [
        "tandem_plugin/grading/symbolic/worker.py",
        "tandem_plugin/grading/symbolic/worker_forkserver.py",
    ],
    "tests/grading/test_limits.py": [
        "tandem_plugin/grading/grader.py",
    ],
    "tests/grading/test_spelling.py": [
        "tandem_plugin/grading/answers.py",
    ],
    "tests/grading/test_suite.py": [
        "tandem_plugin/grading/comparison.py",
        "tandem_plugin/grading/expressions.py",
        "tandem_plugin/grading/outcomes.py",
        "tandem_plugin/grading/tree.py",
        "tandem_plugin/grading/units.py",
        "tandem_plugin/grading/written.py",
    ],
    "tests/lab/commands/test_eval.py": [
        "tandem_plugin/lab/evaluation/run.py",
    ],
    "tests/lab/commands/test_replay.py": [
        "tandem_plugin/lab/rollouts/audit.py",
        "tandem_plugin/terminal/arguments.py",
    ],
    "tests/lab/commands/test_resumed_commands.py": [
        "tandem_plugin/lab/commands/options.py",
        "tandem_plugin/lab/rollouts/run.py",
    ],
    "tests/grading/test_generated.py": [
        "tandem_plugin/lab/data/generated.py",
    ],
    "tests/lab/data/test_instructions.py": [
        "tandem_plugin/lab/data/problem.py",
    ],
    "tests/lab/data/test_layouts.py": [
        "tandem_plugin/lab/data/sources.py",
    ],
    "tests/lab/data/test_prepare.py": [
        "tandem_plugin/lab/data/preparation.py",
    ],
    "tests/lab/evaluation/test_comparison.py": [
        "tandem_plugin/lab/commands/compare.py",
        "tandem_plugin/lab/evaluation/tables.py",
    ],
    "tests/lab/evaluation/test_generation.py": [
        "tandem_plugin/lab/evaluation/engine_process.py",
        "tandem_plugin/lab/evaluation/inputs.py",
        "tandem_plugin/lab/evaluation/solo_handoff.py",
    ],
    "tests/lab/evaluation/test_report.py": [
        "tandem_plugin/lab/evaluation/rendering.py",
    ],
    "tests/lab/evaluation/test_results.py": [
        "tandem_plugin/lab/evaluation/legibility.py",
    ],
    "tests/lab/evaluation/test_significance.py": [
        "tandem_plugin/lab/evaluation/measures.py",
    ],
    "tests/lab/recipes/test_trainers.py": [
        "tandem_plugin/lab/recipes/openrlhf.py",
        "tandem_plugin/lab/recipes/run.py",
        "tandem_plugin/lab/recipes/skyrl.py",
        "tandem_plugin/lab/recipes/summary.py",
        "tandem_plugin/lab/recipes/trl.py",
        "tandem_plugin/lab/recipes/verl.py",
    ],
    "tests/lab/rollouts/test_rollout_file.py": [
        "tandem_plugin/lab/evaluation/text_handoff.py",
        "tandem_plugin/lab/rollouts/rollout.py",
    ],
    "tests/lab/viewer/test_page.py": [
        "tandem_plugin/lab/commands/view.py",
    ],
    "tests/plugins/test_plugins.py": [
        "tandem_plugin/plugins/contracts.py",
        "tandem_plugin/plugins/loading.py",
        "tandem_plugin/plugins/selection.py",
    ],
    "tests/schedules/test_schedules.py": [
        "tandem_plugin/_replay.py",
        "tandem_plugin/schedules/bernoulli.py",
        "tandem_plugin/schedules/handover.py",
        "tandem_plugin/schedules/schedule.py",
        "tandem_plugin/schedules/solo.py",
        "tandem_plugin/schedules/step.py",
    ],
    "tests/terminal/test_output.py": [
        "tandem_plugin/__main__.py",
        "tandem_plugin/terminal/safe_console.py",
    ],
    "tests/test_doors.py": [
        "tandem_plugin/variables.py",
    ],
    "tests/test_refusal_codes.py": [
        "tandem_plugin/errors.py",
    ],
    "tests/training/test_checks.py": [
        "tandem_plugin/training/rows.py",
    ],
    "tests/training/test_random_loops.py": [
        "tandem_plugin/training/response_authorship.py",
    ],
    "tests/training/test_run.py": [
        "tandem_plugin/training/validation.py",
    ],
    "tests/training/test_calls.py": [
        "tandem_plugin/training/authorship_wire.py",
    ],
}
"""Modules without a test of their name: what is several modules' one subject is tested together,
and what works inside an engine or another process alone, there."""


def own_tests(module: Path) -> list[Path]:
    """Where the test of a module's name would be: ``_draws.py`` is tested in ``test_draws.py``."""
    place = module.relative_to("tandem_plugin") if module.parts[0] == "tandem_plugin" else module
    name = f"test_{module.stem.lstrip('_')}.py"
    return [ROOT / tests / place.parent / name for tests in ("tests", "integration_tests")]


def only_names(module: Path) -> bool:
    """Whether a package's ``__init__.py`` defines nothing but names."""
    body = ast.parse((ROOT / module).read_text(encoding="utf-8")).body
    made = (node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    return module.name == "__init__.py" and all(node.name.startswith("__") for node in made)


def test_every_module_has_a_test_of_its_name_or_is_listed_under_the_one_that_holds_it() -> None:
    modules = (
        file.relative_to(ROOT)
        for folder in ("tandem_plugin", "adapters")
        for file in sorted((ROOT / folder).rglob("*.py"))
    )
    without = {
        module.as_posix()
        for module in modules
        if not only_names(module) and not any(test.exists() for test in own_tests(module))
    }
    assert {module for modules in HELD_BY.values() for module in modules} == without


def test_what_holds_a_module_is_there() -> None:
    assert [test for test in HELD_BY if not (ROOT / test).is_file()] == []
