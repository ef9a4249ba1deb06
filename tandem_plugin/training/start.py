"""The start of a run: everything that can stop it before a model is loaded, in one order.

An adapter describes one run of its trainer as a :class:`TrainerRun`; :class:`Start` checks it. The
order: versions, tandem's settings, the table of unsupported options, the adapter (LoRA), both
models' files on this machine, the note of an earlier run, sampling. No entry point calls one of
these checks itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.local_models import check_before_start
from tandem_plugin.engine.unsupported import UNPROVEN_OF_ENGINES
from tandem_plugin.errors import ConfigError, TandemError
from tandem_plugin.patching.versions import (
    MADE_FOR,
    check_version,
    judge_version,
    running_version,
)
from tandem_plugin.schedules import TRAINING_STEP
from tandem_plugin.training.checkpoint_note import check_start
from tandem_plugin.training.sampling import warn_of_changed_sampling
from tandem_plugin.unsupported import (
    Option,
    Unproven,
    Unsupported,
    check_supported,
    option_of,
    view_of,
)
from tandem_plugin.variables import check_variables


@dataclass(frozen=True)
class TrainerRun:
    """One run of a trainer, as its adapter describes it: a subclass for each trainer.

    What is not known yet is None: a trainer whose parts know their settings at different moments is
    checked at each of them (:meth:`Start.check`).
    """

    package: ClassVar[str]
    """The trainer's distribution; its versions are judged if
    :data:`~tandem_plugin.patching.versions.MADE_FOR` lists them."""
    unsupported: ClassVar[Sequence[Unsupported]]
    """The trainer's table, in the order in which options are checked."""
    unproven: ClassVar[Mapping[str, str]]
    """The names that ``tandem.unproven`` may contain with this trainer, and their meanings."""

    in_additional_config: ClassVar[bool] = False
    """Whether tandem's settings are the run's own argument of vLLM, as with verl: an adapter with
    settings of its own puts them there, over what a run has there."""

    setting: Option
    """The trainer's own settings, by their names in the table."""
    engine_option: Option
    """The arguments of vLLM that the settings lead to."""
    model: str | None
    """The checkpoint that the senior starts from: a path, or a name on the Hub."""
    resumes: bool | None
    """Whether the run continues its own checkpoint, with which it is then compared.

    False also where a trainer starts as if anew and finds its checkpoint later."""
    sampling: Mapping[str, Any]
    """How training responses are sampled, by names that end with vLLM's after a dot. Names that
    are no sampling option's are ignored."""
    check_adapter: Callable[[], None] | None
    """Raises :class:`ConfigError` for an adapter (LoRA) that the engine would not have; None if
    there is none, or if the table rejects every one."""

    @staticmethod
    def attributes(root: Any, **parts: Any) -> Option:
        """A view of settings that are an object's attributes, by dotted names.

        parts: what the object lacks, by the first part of its names.
        """
        return view_of(option_of(root), **parts)

    @classmethod
    def version(cls) -> str:
        """The trainer's version; raises :class:`ConfigError` if it is not installed."""
        version = running_version(cls.package)
        if version is None:
            raise ConfigError("trainer-not-installed", trainer=cls.package)
        return version

    @classmethod
    def untested_version(cls) -> str:
        """The name in :attr:`unproven` that allows other series of the trainer; may be empty."""
        return "version"

    @staticmethod
    @contextmanager
    def as_command() -> Iterator[None]:
        """Within, an error of tandem ends the program with its type and its sentence."""
        try:
            yield
        except TandemError as error:
            sys.exit(f"{type(error).__name__}: {error}")

    @classmethod
    def begin(cls, tandem: TandemConfig) -> Start:
        """The start of a run whose settings are not all known yet; raises like :class:`Start`."""
        return Start(cls, tandem)

    def start(self, tandem: TandemConfig) -> Start:
        """Check a run whose settings are all known; raises as :class:`Start` does."""
        begun = self.begin(tandem)
        begun.check(self)
        return begun


class Start:
    """The checks of one run. Created once; :meth:`check` may be called again when more is known."""

    def __init__(self, trainer: type[TrainerRun], tandem: TandemConfig) -> None:
        """Check versions and tandem's own settings, which need no trainer.

        Raises :class:`ConfigError` for a trainer that is not installed or of a series that is not
        supported, for a training step among the settings, for an unknown name in ``unproven``, and
        for a misspelt variable of the environment.
        """
        check_variables()
        self._tandem = tandem
        names = {**trainer.unproven, **UNPROVEN_OF_ENGINES}
        self._unproven = Unproven(tandem.unproven, names)
        _check_versions(trainer, self._unproven)
        if TRAINING_STEP in tandem.parameters:
            raise ConfigError("training-step-set", value=tandem.parameters[TRAINING_STEP])
        self._is_noted = self._is_warned = False

    @property
    def warnings(self) -> Sequence[str]:
        """A sentence for each unverified option that the run uses."""
        return self._unproven.warnings

    def check(self, run: TrainerRun) -> None:
        """Check all that is known of a run; raises :class:`ConfigError` or :class:`EngineError`.

        Warnings, and the comparison with an earlier run, come once.
        """
        view = view_of(run.setting, tandem=self._tandem)
        check_supported(run.unsupported, view, self._unproven)
        if not run.in_additional_config:
            _check_apart(run.engine_option("additional_config"))
        if run.check_adapter is not None:
            run.check_adapter()
        self.check_models(run.model, run.engine_option)
        if run.resumes is not None and not self._is_noted:
            self._is_noted = True
            if not run.resumes:
                check_start(run.model or "", self._tandem)
        if run.sampling and not self._is_warned:
            self._is_warned = True
            warn_of_changed_sampling(run.sampling)

    def check_models(self, model: str | None, engine_option: Option) -> None:
        """Raise what the engine would raise of its options and both models' files here."""
        check_before_start(self._tandem, model, engine_option)


def _check_apart(additional: Any) -> None:
    """Raise :class:`ConfigError` for settings of tandem where the adapter would put its own."""
    names = additional if isinstance(additional, Mapping) else ()
    if ours := TandemConfig.recognised(names):
        raise ConfigError("settings-beside-flag", names=", ".join(ours))


def _check_versions(trainer: type[TrainerRun], unproven: Unproven) -> None:
    """Write warnings about the versions of a trainer and of vLLM to the log, or raise."""
    for package in (trainer.package, "vllm"):
        version = trainer.version() if package == trainer.package else running_version(package)
        if version is None or package not in MADE_FOR:
            continue
        verdict = judge_version(package, version, f"{package} {version}")
        name = trainer.untested_version()
        if verdict.status == "problem" and name:
            refusal = ConfigError(
                "trainer-version-untested", message=verdict.message, command=verdict.remedy
            )
            unproven.check(name, refusal)
        elif warning := check_version(package, version):
            print(f"warning: {warning}", file=sys.stderr, flush=True)
