"""What the name of a raw table's column says of its values: codes, records, persons, weights."""

from __future__ import annotations

import re

# Not where a number of something is meant, which counts: number_of_calls, no_calls.
_NUMBERED = r"(?:(?<=[^a-z])|^(?=[a-z]+[^a-z0-9]*$))"
# Words that end in "id" are too many for a rule: paid, grid, acid.
_IDS = r"(?:(?:case|emp|hh|pat|pers|pt|resp|subj|p|u|uu)?ids?|id(?:code|nr|no|num))"
_WEIGHTS = r"(?:weights?|wght|wgts?|wt)"

CODE = re.compile(
    r"(?<![a-z])(?:id|code|codes|key|zip)(?![a-z])|" + _NUMBERED + r"(?:number|nr|no)(?![a-z])",
    re.ASCII,
)
RECORD = re.compile(
    rf"(?<![a-z])(?:{_IDS}|key|code|serial|index|row(?:names?|num(?:ber)?)?|ssn|mrn|account|iban|"
    r"phone)(?![a-z])|"
    + _NUMBERED
    # A column without a name has those of rows, as R and pandas write them.
    + r"(?:nr|no|num|number|nummer)(?![a-z])|^unnamed: [0-9]+$",
    re.ASCII,
)
PERSONS_NUMBER = re.compile(
    rf"(?<![a-z])(?:{_IDS}|ssn|mrn|account|iban|phone)(?![a-z])|"
    + _NUMBERED
    + r"(?:nr|number|nummer)(?![a-z])",
    re.ASCII,
)
# A person, of whom there may be any number of records: also where nothing is said but that it is
# a number that names, as the id of a panel or a diary.
PERSON = re.compile(
    rf"^(?:{_IDS}|(?:emp|hh|pat|pers|pt|resp|subj)[ -]ids?)$|"
    r"^(?:borrower|client|customer|employee|household|individual|member|participant|patient|person|"
    r"pupil|respondent|student|subject|user|worker|cliente|haushalt|individu|kunden?|mitarbeiter|"
    r"paciente|patienten|personen|probanden?|teilnehmer|versicherten)[ -]?"
    r"(?:ids?|key|code|ref|nr|no|num|number|nummer)?$",
    re.ASCII,
)
# How many records a row stands for, or what a survey's record weighs.
COUNT = re.compile(
    r"^n$|(?<![a-z])(?:freqs?|frequency|frequencies|counts?|weights?|wt|wgt|anzahl|häufigkeit|"
    r"haeufigkeit|gewicht|effectifs?|poids|frecuencia|peso|frequenza)(?![a-z])",
    re.ASCII,
)
WEIGHT = re.compile(
    rf"(?<![a-z])(?:(?:fnl|per|hh|p|d|an|psp|samp|svy|final|pw)[a-z]?{_WEIGHTS}|pwgtp|wtss(?:all|ps)|"
    rf"(?:survey|sampling|sample|person|final) {_WEIGHTS})(?![a-z])",
    re.ASCII,
)
# What is known only at the end of what a record is of, or when the table was written: of a stay, a
# loan, an order, a treatment.
LATER = re.compile(
    r"(?<![a-z])(?:discharged?|disposition|outcome|deceased|died|death|dead|survived|readmi[a-z]*|"
    r"repaid|recover(?:ed|y|ies)|refund(?:ed)?|settled|settlement|closed|completed|completion|"
    r"cancell?ed|churn(?:ed)?|charged off|written off|default(?:ed)? (?:date|day|amount|on)|"
    r"(?:end|closing|payment|pymnt|payoff) (?:date|dt|d)|follow ?up|los(?! angeles)|length of stay|"
    r"(?:paid|payments?|pymnts?)(?: (?:amount|amnt|inv))?$|"
    r"(?:total|final|late|next) (?:paid|payments?|pymnts?|rec(?:eived)?|charges?|costs?|result)|"
    r"(?:loan|claim|case|vital|final|order|payment) status)(?![a-z])|"
    r"^last (?!names?|year|month|week|quarter)",
    re.ASCII,
)
# Of what was before, or is only expected.
NOT_LATER = re.compile(
    r"(?<![a-z])(?:prev(?:ious)?|prior|past|monthly|hist(?:ory)?|since|mths|within|ago|baseline|planned|"
    r"scheduled|expected|estimated|predicted|risk|family|father|mother|parents?)(?![a-z])",
    re.ASCII,
)
# Amounts that nobody has none of.
NEVER_ZERO = re.compile(
    r"^(?:body |birth |patient )?(?:weight|height|bmi|mass|length|size)"
    r"(?: (?:kg|lbs?|cm|in|g|m))?$|"
    r"(?<![a-z])(?:body ?mass(?: index)?|bmi|blood ?pressure|bps?|sbp|dbp|systolic|"
    r"diastolic|chol(?:esterol)?|hdl|ldl|glucose|insulin|skin ?thickness|h[ae]moglobin|hba1c|"
    r"creatinine|albumin|sodium|potassium|platelets|heart ?rate|pulse|body temp"
    r"(?:erature)?)(?: (?:mmhg|mg|dl|mg dl|kg|cm|bpm|rest|max|mean))*$",
    re.ASCII,
)
# What people and parcels have, too.
ANY_WEIGHT = re.compile(r"^(?:weights?|wgt|wt|gewicht|poids|peso)$", re.ASCII)
_CAPITAL_WITHIN = re.compile(r"(?<=[a-z])(?=[A-Z])", re.ASCII)


def is_called(name: str, words: re.Pattern[str]) -> bool:
    """Whether one of the words of a column's name is among these.

    >>> [is_called(name, CODE) for name in ("customerId", "house_no.", "No.", "PAID")]
    [True, True, True, False]
    >>> [is_called(name, CODE) for name in ("number_of_calls", "noRooms", "nr of sons")]
    [False, False, False]
    >>> [is_called(name, PERSON) for name in ("userId", "patient", "cost per patient", "user type")]
    [True, True, False, False]
    >>> [is_called(name, PERSON) for name in ("individual", "Teilnehmer-Nr", "member since")]
    [True, True, False]
    >>> [is_called(name, PERSON) for name in ("id", "PID", "subj_id", "idcode", "store id", "grid")]
    [True, True, True, True, False, False]
    >>> [is_called(name, LATER) for name in ("Patient Disposition", "totalPaid", "deaf", "unpaid")]
    [True, True, False, False]
    >>> [is_called(name, NEVER_ZERO) for name in ("RestingBP", "birth_weight", "weight_loss")]
    [True, True, False]
    >>> [is_called(name, WEIGHT) for name in ("perweight", "pspwght", "body_wt", "p_weight")]
    [True, True, False, False]
    """
    apart = _CAPITAL_WITHIN.sub(" ", name).lower().replace("_", " ")
    return words.search(apart) is not None
