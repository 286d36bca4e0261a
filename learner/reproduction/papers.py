"""The figures of both papers: what each shows, on which records, and what the papers say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Data = Literal["loans", "hospitals", "cards"]
Kind = Literal["percentiles", "timing", "surface", "lines", "value", "hospitals", "scenarios"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a paper.

    Args:
      name: A or S for the paper, and the figure's number.
      kind: What is shown.
      data: On which records.
      horizon: T.
      axis: The variable of the lines.
      slopes: The slopes of log fitness that the paper shows, by axis.
      improves: The factor between the first two epsilons, if the paper gives it.
      differs: Why it is otherwise here, where it is.
      reports: What the paper says of it.
    """

    name: str
    kind: Kind
    data: Data
    horizon: int
    reports: str
    axis: Literal["epsilon", "records", "both"] = "both"
    slopes: Mapping[str, float] = field(default_factory=lambda: {"epsilon": -2.0, "records": -2.0})
    improves: float = 1.0
    differs: str = ""

    @property
    def synchronous(self) -> bool:
        """Whether it is of the synchronous paper."""
        return self.name.startswith("S")


FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(name="A2", kind="percentiles", data="loans", horizon=1000,
               reports="the median falls to a neighbourhood of the optimum; larger epsilon is "
               "better and spreads less"),
        Figure(name="A3", kind="timing", data="loans", horizon=1000,
               reports="one bank at a time, in random order, all equally often"),
        Figure(name="A4", kind="surface", data="loans", horizon=1000,
               reports="(11) with c1' = 0, c2' = 2.1e9 is tight over n and epsilon"),
        Figure(name="A5", kind="lines", data="loans", horizon=1000,
               reports="straight lines of slope -2 in epsilon and in n"),
        Figure(name="A6", kind="value", data="loans", horizon=1000,
               reports="with 10,000 records each, the first bank gains from 5 banks at epsilon "
               "10 and from 100 banks at epsilon 2.5"),
        Figure(name="A7", kind="percentiles", data="hospitals", horizon=1000,
               differs="hospitals here are small: one step that bears the noise of the middle "
               "epsilon is too short to arrive in T ticks, a few for each hospital; at the "
               "smallest epsilon noise leads away from theta = 0",
               reports="86 hospitals: for large epsilon the median falls to a neighbourhood"),
        Figure(name="A8", kind="timing", data="hospitals", horizon=1000,
               reports="one of 86 hospitals at a time, in random order"),
        Figure(name="A9", kind="lines", data="hospitals", horizon=1000, axis="epsilon",
               reports="fitness falls rapidly with epsilon, along the bound"),
        Figure(name="A10", kind="hospitals", data="hospitals", horizon=1000,
               differs="the paper's hospitals have at least 10,000 records; most models of a "
               "single small hospital say less of all stays than no model, so that any common "
               "one is a gain",
               reports="at epsilon 10 eight of 86 hospitals, not the largest, gain"),
        Figure(name="A11", kind="lines", data="cards", horizon=100, slopes={"epsilon": -1.0},
               differs="the measured curves bend like the paper's, towards what is left without "
               "noise; what noise adds falls like that of the other losses",
               reports="slope about -1 in epsilon; in n steeper than the bound, which is loose"),
        Figure(name="S2", kind="percentiles", data="loans", horizon=100, improves=100.0,
               differs="100 rounds end a little above the optimum here even without noise, see "
               "S3, which is as good as it gets",
               reports="from epsilon 1 to 10 fitness improves about 100-fold"),
        Figure(name="S3", kind="surface", data="loans", horizon=100,
               reports="fitness improves with n and epsilon"),
        Figure(name="S4", kind="lines", data="loans", horizon=100, axis="epsilon",
               reports="slope -2, as Theorem 2 says"),
        Figure(name="S5", kind="lines", data="loans", horizon=100, axis="records",
               reports="slope -2, as Theorem 2 says"),
        Figure(name="S6", kind="scenarios", data="loans", horizon=100,
               reports="small conservative partners spoil it whatever the first owner does; "
               "large eager ones make it good"),
        Figure(name="S7", kind="percentiles", data="cards", horizon=100,
               reports="larger epsilon comes closer to the classifier without privacy"),
        Figure(name="S8", kind="surface", data="cards", horizon=100,
               reports="fitness improves with n and epsilon"),
        Figure(name="S9", kind="lines", data="cards", horizon=100, axis="epsilon",
               reports="slope -2"),
        Figure(name="S10", kind="lines", data="cards", horizon=100, axis="records",
               reports="slope -2"),
        Figure(name="S11", kind="scenarios", data="cards", horizon=100,
               reports="as figure 6; with large eager partners nearly as good as without privacy"),
    )
}  # fmt: skip
