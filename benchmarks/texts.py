"""What docs/results.md says beside the tables that benchmarks/results.py prints."""

from __future__ import annotations

FAMILIES = """\
## Every way of training, beside what is free

Printed by `.venv/bin/python benchmarks/results.py DATA --out docs/results.md`; DATA is a folder
with the record files that `benchmarks/families.py` names. Every cell is the mean relative fitness
f(theta)/f(theta*) - 1 on the union of the owners' records over {seeds} seeds, with the half-width
of its 95 % interval. Owners, public records, feature map and bounds are the same in all rows of a
table, and so is the epsilon that covers each record for the whole study; nothing of it is kept for
validation (`privacy.validation = 0`). The families are

{families}

Two rows are free, cost nobody any epsilon, and are what a study has to beat: an owner *gains* if
the common model is better than both.

- *public records alone* is theta_0, the best model of the public records.
- *an owner alone* is the middle one of the owners' own models, without noise.

The next are learnt from all owners, each of whom adds its own noise. What they leave open is
decided from the public records, as `copriv simulate` does.

- *published* is Algorithm 1 of the 2021 paper under the domain's bound, noise for T responses of
  every owner, the last central model. T (of {horizons}) and rho (ten values, a factor of 4 apart)
  are the best in hindsight on the private records, which no study could know: the row flatters it.
  It is there for families that the papers' tables below have too.
{ways}

The last rows are no way of copriv's. A *trusted centre* holds the records of all owners, and one
draw of noise covers them under the same epsilon and the same public bounds, where owners who trust
nobody draw one each: with N of them their noise alone has N times the variance.

- *noisy statistics* releases X'X/n and X'y/n once with the Laplace noise of OpenDP, as an owner of
  all records would, and solves them.
- *noisy gradient descent* starts from 0, clips, and averages the last half of its steps; clip, T
  and step come from the public records by the chooser that studies have.
- *diffprivlib* is the `LinearRegression` of that library on the same features. It bounds features
  one by one and knows no L1 radius; its models are cut to the box.{diffprivlib}
"""

# Put where the row has no numbers.
WITHOUT_DIFFPRIVLIB = """ It was not
  at hand when this was printed: `--diffprivlib PYTHON` names an interpreter that has it, with
  scikit-learn below 1.8."""

SUMMARY = """\
### All families

A cell is a family at one epsilon. Ratios are geometric means over cells: the first of the best of
public records alone, moments and asynchronous to the way that the line is about, so that above 1 is
better; the second the same without public records alone, that is to what there was before of ways
that learn from owners; the third of the way to the better row of the trusted centre, so that 1
would be as good as trust. The last columns count cells where the way is worse than the best of the
first by more than this much."""

PAPERS = """\
## The papers' algorithms, on real records

Printed by the same command, over {seeds} seeds. All rows of a table promise every owner the same
epsilon for the whole study.

- *published* is Algorithm 1 of the 2021 paper as above, best of the grid in hindsight. So are the
  two synchronous algorithms of the 2020 paper, where T (of {rounds}) counts rounds.
- *asynchronous* and *moments* are the ways of the same names above.
- *One change after the other* starts from published under the papers' bound, adds the radius, then
  takes T and the step from the public records before the study, as a user would have to, and adds
  what else the recommended profile consists of where its algorithm is asynchronous, from 0.

All maps have public bounds of every column, feature and target. The *papers' bound* follows from
them alone. The *default map* also has a public L1 radius (`l1_coverage = 0.9`) that longer records
are scaled down to: a change to the papers' bound, of which published profits too. *Whitened* is
another map: codes in the order of names, whitened components and no radius. Relative fitness is
measured against the optimum under the same map, so numbers of different maps compare roughly only.
"""

CARDS = """\
Three owners, `examples/creditcard.toml` with the profile's clip, schedule, clocks and average. The
optimum of the hinge loss is near 0.01 here, so a relative fitness of 90 is that of theta = 0.
"""
