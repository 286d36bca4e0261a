"""How good owners say a model is, against how good it is: does the interval hold, how wide is it?

The three hospitals of ``examples/hospitals.toml`` are asked for the best model of their union, in
this process, again and again with other noise. The noise is drawn from seeds, so that a run
repeats.

Usage: python benchmarks/validation.py [--runs 100] [--epsilon 1] [--records 10000]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.arrays import Vector
from common.config import load_settings
from common.terms import Records
from learner.commands.study import read_owners
from learner.planning.decision import Decision
from learner.planning.plan import Plan
from learner.planning.public_side import PublicSide, prepare_public_side
from learner.planning.settings import StudySettings
from learner.results.run_validation import exact_means
from learner.results.validated import ValidationSummary, summarise_validation
from learner.simulated.evaluation import union
from learner.training.journal import Journal
from learner.training.line import OwnerLine
from learner.training.memory_owner import MemoryOwner
from learner.training.validation import validate

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
HORIZON = 30


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A study whose model is finished.

    Args:
      plan: The study, as it ran.
      public: What is public.
      shards: The owners' records.
      theta: The model.
    """

    plan: Plan
    public: PublicSide
    shards: Sequence[Records]
    theta: Vector


def case_of(*, epsilon: float = 1.0, num_records: int | None = None) -> Case:
    """The hospitals and the best model of their union.

    Args:
      epsilon: What each is asked to spend in all; a tenth is for the validation.
      num_records: How many records they have together; None for all.
    """
    settings = load_settings(
        StudySettings, EXAMPLES / "hospitals.toml", overrides=[f"privacy.epsilon={epsilon}"]
    )
    public = prepare_public_side(settings, base=EXAMPLES)
    shards = read_owners(settings, public.feature_map, base=EXAMPLES).shards
    if num_records is not None:
        share = num_records / sum(map(len, shards))
        shards = [shard.at(np.arange(round(share * len(shard)))) for shard in shards]
    decision = Decision(
        num_records=tuple(map(len, shards)),
        horizon=HORIZON,
        clip=None,
        constant=1.0,
        asks_everyone=True,
        validation=str(settings.privacy.validation),
        validated_by=("shown",) * len(shards),
    )
    p = public.feature_map.num_features
    plan = Plan(settings=settings, num_features=p, decision=decision, seed=1)
    theta = plan.problem.optimum(union(shards))
    return Case(plan=plan, public=public, shards=shards, theta=theta)


def told(case: Case, seeds: Sequence[int]) -> Iterator[ValidationSummary]:
    """What the owners say, once for each seed, beside what is so."""
    names = [entry.name for entry in case.plan.settings.owners]
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        for seed in seeds:
            lines = [
                OwnerLine(MemoryOwner(name, shard, seed=1000 * seed + i), terms)
                for i, (name, shard, terms) in enumerate(
                    zip(
                        names,
                        case.shards,
                        case.plan.terms(case.public.feature_map, study_id="s"),
                        strict=True,
                    )
                )
            ]
            with closing(Journal(Path(folder) / f"{seed}.sqlite")) as journal:
                validated = validate(
                    case.plan,
                    case.public,
                    lines,
                    case.theta,
                    enrollments=[line.enroll() for line in lines],
                    journal=journal,
                    study_id="s",
                )
            assert validated is not None  # noqa: S101 (the study wants it)
            found = summarise_validation(
                validated,
                names=names,
                num_records=[len(shard) for shard in case.shards],
                exact=exact_means(validated.terms, case.shards, case.theta, loss=case.plan.loss),
                raw_scale=case.public.feature_map.target.scale,
            )
            assert found is not None  # noqa: S101 (all owners answer)
            yield found


def main() -> None:
    """Print how often the intervals hold, and how wide they are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--records", type=int, default=10_000)
    given = parser.parse_args()
    case = case_of(epsilon=given.epsilon, num_records=given.records)
    every = list(told(case, range(given.runs)))
    first = every[0]
    print(
        f"{first.records:,} records of {first.owners} owners, epsilon {given.epsilon:g} in all, "
        f"{float(case.plan.settings.privacy.validation):g} of it for the validation"
    )
    for name in ("loss", "difference"):
        found = [getattr(one, name) for one in every]
        within = sum(abs(one.value - one.exact) <= one.noise for one in found)
        holds = sum(one.low <= one.exact <= one.high for one in found)
        noise = found[0].noise / first.loss.value
        print(
            f"{name}: exactly {found[0].exact:.4g}; the noise alone makes +/- {noise:.1%} of the "
            f"loss and holds in {within} of {given.runs} runs, with sampling in {holds}"
        )
    cut = first.cut_off_in_public or 0.0
    print(f"the bound leaves out {cut:.1%} of the public records' loss")


if __name__ == "__main__":
    main()
