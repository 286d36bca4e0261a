"""What a training run shows while it goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from rich.console import Console

from common.texts import counted
from learner.planning.boxes import edge_sentence
from learner.planning.guard import unit_sentence, ways_sentence
from learner.planning.plan import Plan
from learner.planning.public_side import PublicSide, public_groups, strangers_sentence
from learner.planning.validation import public_theta
from learner.planning.ways import way_of
from learner.results.metrics import LearnerMetrics
from learner.results.progress import Advance, Stages, progress
from learner.results.run_folder import Trace
from learner.simulated.cross_validation import CrossValidation
from learner.training.line import OwnerLine
from learner.training.runner import Applied

# Studies of so many features are planned in a minute.
QUICKLY_PLANNED = 50


def listening(console: Console) -> Callable[[int], None]:
    """What says at which port owners may come."""
    return lambda port: console.print(f"listening on port {port} for owners", highlight=False)


class Display(ExitStack):
    """Keeps the trace of a run, and shows how it goes: the progress line and the metrics."""

    def __init__(
        self,
        console: Console,
        trace: Trace,
        metrics: LearnerMetrics,
        stages: Stages | None,
        public: PublicSide,
    ) -> None:
        super().__init__()
        self._public = public
        self._stages = stages or Stages(console)
        self._k, self._horizon = 0, ""
        # What is said of a public model at an edge of its box.
        self.edge: str | None = None
        self._console = console
        self._trace = trace
        self._metrics = metrics
        self._advance: Advance | None = None

    def plans(self) -> None:
        """What comes next may take long, and says nothing meanwhile."""
        features = self._public.feature_map.num_features
        if features > QUICKLY_PLANNED:
            self._console.print(
                f"planning: with {features:,} features it may take many minutes", highlight=False
            )

    def started(self, plan: Plan, lines: Sequence[OwnerLine]) -> None:
        """It is known what runs, and with whom."""
        self._metrics.horizon.set(plan.horizon)
        self._horizon = f"{plan.horizon:,}"
        asked = counted(plan.horizon, "communication")
        self._stages(f"planned {asked} of {counted(len(plan.responses), 'owner')}")
        begins = plan.settings.algorithm.initiative
        ways = ways_sentence(plan.decision, own=way_of(plan.settings), initiative=begins)
        if ways is not None:
            self._console.print(ways, highlight=False)
        self._warn(plan)
        shown = progress(self._console, "training", total=plan.horizon)
        self._advance = self.enter_context(shown)
        self._advance.watch(lines)
        self._metrics.watch(lines)

    def arrived(self) -> None:
        """The owners that were waited for are there: what follows is not their time."""
        self._stages("waited for the owners")

    def _warn(self, plan: Plan) -> None:
        """Say whether the box is too small for the public model, or why forecasts are unsure."""
        theta, records = public_theta(plan, self._public), self._public.records
        if theta is not None and records is not None:
            problem = plan.problem
            names = self._public.feature_map.feature_names
            self.edge = edge_sentence(problem, records, theta, names)
            if self.edge is not None:
                self._console.print(f"warning: {self.edge}", highlight=False)
            if plan.decision.ways:
                known = CrossValidation(problem=problem, records=records, theta=theta)
                groups = public_groups(self._public, problem)
                strangers = strangers_sentence(groups, self._public, plan.settings)
                for doubt in filter(None, (unit_sentence(known), strangers)):
                    self._console.print(f"warning: {doubt}", highlight=False)

    def stopped(self, go_on: str) -> str:
        """The sentence after Ctrl-C, which ends with what to do."""
        return f"stopped at communication {self._k:,} of {self._horizon or 'a run'}; {go_on}"

    def enrolled(self) -> None:
        """All owners have agreed."""
        self._stages("enrolled the owners")

    def applied(self, communication: Applied) -> None:
        """One more communication."""
        self._k = communication.k
        self._trace.append(communication)
        self._metrics.ticks.set(communication.k)
        if self._advance is not None:
            self._advance(communication.k)
