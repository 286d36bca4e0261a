"""What crosses the wire, as typed records; only the codec knows protobuf."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from common.arrays import Indices, Matrix, Vector


@dataclass(frozen=True, kw_only=True)
class Records:
    """Records after the feature map, clamped to its public bounds.

    Args:
      features: Shape (n, p), C order, float64; an owner may store float32, and adds in float64.
      targets: Shape (n,), float64.
    """

    features: Matrix
    targets: Vector

    def __len__(self) -> int:
        """The number n of records."""
        return int(self.targets.shape[0])

    def at(self, rows: Indices) -> Records:
        """The records of these rows."""
        return Records(features=self.features[rows], targets=self.targets[rows])


@dataclass(frozen=True, kw_only=True)
class StudyTerms:
    """Everything that fixes one owner's privacy in one study.

    Args:
      study_id: The study's name, new for each run.
      loss: A key of ``common.losses.LOSSES``; ``loss_of(terms)`` is the loss with its parameters.
      theta_max: Half the side of the box of admissible models, L-infinity norm.
      feature_map: The feature map with its public bounds, as its canonical JSON text.
      horizon: The number T of ticks of the whole study.
      responses: The number m of responses asked of this owner, m <= T.
      epsilon: What all m responses together may spend.
      clip: L1 norm to which each record's gradient is scaled down; None for the domain's bound.
      kappa: The largest number of shards that one record may be in.
      release: What a response is: a key of ``common.releases.RELEASES``: "gradient" (4) or
        "newton", any number of times; "moments" or "validation", once for the whole epsilon.
      delta: The parameter of Huber loss; None for losses that have none.
      curvature_scale: The factor of the curvature in a "newton" response, above 0: how it and the
        gradient share epsilon; None for other releases.
      loss_bound: The bound L of a record's loss in a "validation" response, in units of the loss;
        None for other releases, as what follows.
      difference_bound: The bound D of what two models' losses differ by; None to ask nothing of
        it.
      reference: The public model that the query's is compared with, p numbers; none without D.
      edges: For classes the margins between the bins of the calibration table, ascending.
    """

    study_id: str
    loss: str
    theta_max: float
    feature_map: str
    horizon: int
    responses: int
    epsilon: Fraction
    clip: float | None = None
    kappa: int = 1
    release: str = "gradient"
    delta: float | None = None
    curvature_scale: float | None = None
    loss_bound: float | None = None
    difference_bound: float | None = None
    reference: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Enrollment:
    """What an owner promises, and the noise it will add.

    Args:
      num_records: The owner's n_i.
      responses: The number m of responses promised.
      answered: How many of them were given already: 0 unless a learner comes back.
      noise_scale: Scale b of the Laplace noise on each coordinate, in gradient units.
      epsilon: What the m responses spend together, as the noise library confirms it.
      insecure_noise: True when the noise comes from a seed and protects nobody.
      repeats: How many of its last responses it gives again for the same queries, whoever was
        killed; it may be another after a restart.
    """

    num_records: int
    responses: int
    answered: int
    noise_scale: float
    epsilon: Fraction
    insecure_noise: bool
    repeats: int = field(default=1, compare=False)


@dataclass(frozen=True, kw_only=True)
class OwnerDescription:
    """What an owner says about itself before any study.

    Args:
      name: Its name.
      num_records: Its n_i, public by design.
      columns: The columns of its table that it names for learners.
      feature_map_digest: SHA-256 of the only feature map it accepts, or "" for any.
      epsilon_per_study: The most it spends on one study.
      epsilon_left: What is left of its lifetime budget.
      losses: The losses it answers for.
      version: Of its program; "" where it is not stated, as by version 0.1.
      clock_ms: Its clock, milliseconds since 1970 UTC; 0 where it is not stated.
      checked_map_digest: SHA-256 of the feature map under which its officer declares to have
        looked at the columns, or "". Not what was seen: that depends on records.
      validation: Whether it says how good a finished model is: "shown" also by its name in
        reports, "pooled" only with others; "" where it does not, as version 0.1.
    """

    name: str
    num_records: int
    columns: tuple[str, ...]
    feature_map_digest: str
    epsilon_per_study: Fraction
    epsilon_left: Fraction
    losses: tuple[str, ...]
    version: str = ""
    clock_ms: int = 0
    checked_map_digest: str = ""
    validation: str = ""


@dataclass(frozen=True, kw_only=True)
class Query:
    """One gradient query: (study, sequence number from 1, theta of shape (p,))."""

    study_id: str
    sequence: int
    theta: Vector


@dataclass(frozen=True, kw_only=True)
class Response:
    """One charged, noised mean gradient, shape (p,); or packed moments, in that field."""

    study_id: str
    sequence: int
    gradient: Vector
