"""After the training: how good is the model on the owners' own records, and who says so.

Each owner that agrees is asked once, in a study of its own with the epsilon that was kept for it:
its ledger charges and replays the answer as any other. A missing answer is no failure: the
model is made, and the report says who is missing.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from common.arrays import Vector
from common.errors import CoprivError
from common.privacy import noted_amount
from common.releases import release_of
from common.terms import Enrollment, StudyTerms
from learner.planning.plan import Plan
from learner.planning.public_side import PublicSide
from learner.planning.validation import ValidationBounds, validation_bounds, validation_terms
from learner.training.claims import largest_answer
from learner.training.enrolment import at_once, present
from learner.training.journal import Journal
from learner.training.journal_values import finite
from learner.training.line import LocalLine, OwnerLine
from learner.training.line_state import LineState
from learner.training.memory_owner import LocalShard

log = logging.getLogger("copriv.learner")

# What an owner says of itself if it agrees: whether reports may show its part by its name.
AGREES = ("pooled", "shown")
NOTED = "validation"
UNWILLING = "it does not say how good a model is"
WAIT_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """What one owner said of the finished model.

    Args:
      shown: Whether reports may show it by the owner's name.
      response: The noised response; None if there is none.
      noise_scale: Scale of the noise on each coordinate.
      epsilon: What it spent on it. Of an owner that agreed and gave no answer of use, what
        it may have spent: a charge comes before its answer, which may be lost.
      missing: Why there is no response, in a sentence.
    """

    shown: bool
    response: Vector | None = None
    noise_scale: float = 0.0
    epsilon: Fraction = Fraction(0)
    missing: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Validated:
    """What was asked and what each owner said, in the order of the settings.

    Args:
      bounds: With what bounds it was asked; None where no owner agrees.
      terms: What each owner was asked to agree to; none where no owner agrees.
      answers: What they said.
    """

    bounds: ValidationBounds | None
    terms: tuple[StudyTerms, ...]
    answers: tuple[Answer, ...]


def validate(
    plan: Plan,
    public: PublicSide,
    lines: Sequence[OwnerLine],
    theta: Vector,
    *,
    enrollments: Sequence[Enrollment],
    journal: Journal,
    study_id: str,
) -> Validated | None:
    """Ask every owner that agrees how good the model is.

    What an earlier start of the run has heard is in its journal; what it has not heard, though an
    owner was charged, the owner says again.

    Args:
      plan: What ran.
      public: The feature map and the public records.
      lines: The owners in the order of the settings; who was away at the end is tried once.
      theta: The model, shape (p,).
      enrollments: What each owner promised for the training.
      journal: The run's durable trace.
      study_id: The study's name.

    Returns:
      None where the study does not want it.
    """
    if not plan.decision.validated_by:
        return None
    if not plan.settings.privacy.validation:
        nobody = Answer(shown=False, missing=UNWILLING)
        return Validated(terms=(), bounds=None, answers=(nobody,) * len(lines))
    bounds = journal.read(NOTED, ValidationBounds.from_json)
    if bounds is None:
        bounds = validation_bounds(plan, public, theta)
        journal.note(NOTED, bounds.to_json())
    terms = validation_terms(plan, public.feature_map, bounds, study_id=study_id)

    def one(index: int) -> Answer:
        return _answer_of(
            plan,
            lines[index],
            terms[index],
            theta,
            index=index,
            promised=enrollments[index],
            journal=journal,
        )

    answers = at_once(one, range(len(lines)))
    return Validated(bounds=bounds, terms=tuple(terms), answers=tuple(answers))


def _answer_of(
    plan: Plan,
    trained: OwnerLine,
    terms: StudyTerms,
    theta: Vector,
    *,
    index: int,
    promised: Enrollment,
    journal: Journal,
) -> Answer:
    """What one owner says, or has said to an earlier start."""
    settings, agrees = plan.settings, plan.decision.validated_by[index]
    shown = agrees == "shown"
    if agrees not in AGREES:
        return Answer(shown=False, missing=UNWILLING)
    if plan.responses[index] == 0:
        return Answer(shown=False, missing="the clocks never chose it, so it was not enrolled")
    noted = journal.read(
        f"{NOTED}.{index}",
        partial(
            _noted,
            shown=shown,
            terms=terms,
            num_features=theta.size,
            num_records=promised.num_records,
        ),
    )
    if noted is not None:
        return noted
    if trained.state is LineState.LEFT:
        return Answer(shown=shown, missing=f"it has left the study ({trained.left})")
    is_there = trained.state is LineState.READY
    kind = LocalLine if isinstance(trained.owner, LocalShard) else OwnerLine
    answer = _ask(
        kind(trained.owner, terms, retries=settings.network.retries),
        theta,
        promised=promised,
        patience=settings.network.patience if is_there else 0.0,
        shown=shown,
    )
    if answer.missing:
        log.warning("owner %s says nothing of the model: %s", trained.owner.name, answer.missing)
    else:
        # Journalled before it is used, as every response.
        _note(journal, index, answer)
    return answer


def _ask(
    line: OwnerLine, theta: Vector, *, promised: Enrollment, patience: float, shown: bool
) -> Answer:
    """One owner's answer, or why there is none."""
    try:
        agreed = present(line.enroll, patience=patience, waits=partial(_say_who, line, patience))
        if agreed.num_records != promised.num_records:
            missing = f"it enrols with {agreed.num_records} records, not {promised.num_records}"
            return Answer(shown=shown, missing=missing)
        if agreed.insecure_noise != promised.insecure_noise:
            # What is said of the training's noise is said of this answer's, too.
            missing = "it enrols with noise of another kind (secure or from a seed)"
            return Answer(shown=shown, missing=missing)
        give_up = time.monotonic() + patience
        while (response := line.ask(theta)) is None:
            if line.state is LineState.LEFT or time.monotonic() >= give_up:
                missing = line.left or "it was away"
                return Answer(shown=shown, epsilon=agreed.epsilon, missing=missing)
            time.sleep(WAIT_SECONDS)
    except CoprivError as error:
        return Answer(shown=shown, missing=str(error))
    finally:
        line.stop()
    return Answer(
        shown=shown,
        response=response.gradient,
        noise_scale=agreed.noise_scale,
        epsilon=agreed.epsilon,
    )


def _say_who(line: OwnerLine, patience: float) -> None:
    """Say what the run does while it seems to do nothing."""
    log.warning(
        "waiting for %s to say how good the model is; gives up after %g s",
        line.owner.name,
        patience,
    )


def _note(journal: Journal, index: int, answer: Answer) -> None:
    """Keep one owner's response."""
    assert answer.response is not None  # noqa: S101 (only these are kept)
    facts = {
        "response": answer.response.tolist(),
        "noise_scale": answer.noise_scale,
        "epsilon": str(answer.epsilon),
    }
    journal.note(f"{NOTED}.{index}", json.dumps(facts))


def _noted(
    text: str, *, shown: bool, terms: StudyTerms, num_features: int, num_records: int
) -> Answer:
    """The response that an earlier start has heard."""
    facts = json.loads(text)
    response = np.array(facts["response"], dtype=np.float64)
    if response.shape != (release_of(terms).dimension(terms, num_features),):
        raise ValueError("of another length")
    noise_scale, epsilon = finite(facts["noise_scale"]), noted_amount(facts["epsilon"])
    largest = largest_answer(terms, num_records=num_records)
    # Whatever is not finite is not within the bound either.
    if not (np.abs(response).max() <= largest and 0 <= noise_scale <= largest):
        raise ValueError("no response and its noise")
    if epsilon > terms.epsilon:
        raise ValueError("more than it was asked to spend")
    return Answer(shown=shown, response=response, noise_scale=noise_scale, epsilon=epsilon)
