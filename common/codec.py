"""Typed records to protobuf and back; what arrives malformed is refused here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from common.errors import MalformedError
from common.pb import copriv_pb2 as pb
from common.terms import Enrollment, OwnerDescription, Query, Response, StudyTerms
from common.texts import printable


class Unreadable:
    """Stands for bytes that are no message of the protocol."""


# Of all that an owner says only a response is longer. A name takes two bytes and up, and some sixty
# once it is read: 96 MB of names would take 3 GB and a quarter of a minute.
LONGEST_WORDS = 4 * 2**20
# A message of a stream that is one response: the call's number, and the response to the end.
_ONE_RESPONSE = re.compile(
    rb"(?:\x08[\x80-\xff]{0,9}+[\x00-\x7f])?\x32([\x80-\xff]{0,4}+[\x00-\x7f])", re.DOTALL
)


def reader(kind: type[Message]) -> Callable[[bytes], Any]:
    """Bytes to a message or, without an error, to :class:`Unreadable`.

    Left to gRPC, bytes that are no message would be a traceback in its log. What is longer than
    any but a response can be is not looked into.

    >>> type(reader(pb.Hello)(b"no message")).__name__
    'Unreadable'
    """

    def read(content: bytes) -> Message | Unreadable:
        if len(content) > LONGEST_WORDS and not _is_response(kind, content):
            return Unreadable()
        try:
            return kind.FromString(content)
        except DecodeError:
            return Unreadable()

    return read


def _is_response(kind: type[Message], content: bytes) -> bool:
    """Whether a message is a response and nothing else, before it is read."""
    found = _ONE_RESPONSE.match(content) if kind is pb.OwnerMessage else None
    if found is None:
        return kind is pb.Response
    length = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(bytes(found[1])))
    return bool(found.end() + length == len(content))


# More than the features of any model that an owner answers for.
LONGEST_NUMBERS = 100_000
# Enough for any budget a person writes, too little to make exact arithmetic slow.
_DIGITS = re.compile(r"[0-9]{1,60}", re.ASCII)
# What is shown of one that has more, or other characters.
LONGEST_RATIONAL = 40


def vector_to_pb(vector: NDArray[np.float64]) -> pb.Vector:
    """A vector as little-endian float64 bytes with its length."""
    return pb.Vector(length=vector.size, data=vector.astype("<f8", copy=False).tobytes())


def vector_from_pb(message: pb.Vector) -> NDArray[np.float64]:
    """The vector of a message, shape (length,).

    Raises:
      MalformedError: The bytes are not of the declared length.

    >>> vector_from_pb(vector_to_pb(np.array([1.0, -2.5])))
    array([ 1. , -2.5])
    """
    # Each look at the field is a copy of its bytes.
    data = message.data
    if len(data) != 8 * message.length:
        raise MalformedError(
            f"a vector declares {message.length} coordinates but carries {len(data)} "
            "bytes; send 8 bytes for each"
        )
    return np.frombuffer(data, dtype="<f8").astype(np.float64)


def rational_to_pb(value: Fraction) -> pb.Rational:
    """An exact rational as decimal digits."""
    return pb.Rational(numerator=str(value.numerator), denominator=str(value.denominator))


def rational_from_pb(message: pb.Rational) -> Fraction:
    """The exact rational of a message.

    Raises:
      MalformedError: Not digits (a sign is none), too many of them, or a denominator of zero.

    >>> rational_from_pb(pb.Rational(numerator="1", denominator="3"))
    Fraction(1, 3)
    """
    parts = (message.numerator, message.denominator)
    if not all(_DIGITS.fullmatch(part) for part in parts) or int(message.denominator) == 0:
        got = printable("/".join(parts), LONGEST_RATIONAL)
        raise MalformedError(
            f"an amount: got {got}, expected a whole number or a fraction that is not below 0, "
            "such as 1/1 or 1/3, of at most 60 digits over at most 60 digits"
        )
    return Fraction(int(message.numerator), int(message.denominator))


def terms_to_pb(terms: StudyTerms) -> pb.StudyTerms:
    """A study's terms as a message."""
    return pb.StudyTerms(
        study_id=terms.study_id,
        loss=terms.loss,
        theta_max=terms.theta_max,
        feature_map=terms.feature_map,
        horizon=terms.horizon,
        responses=terms.responses,
        epsilon=rational_to_pb(terms.epsilon),
        clip=terms.clip,
        kappa=terms.kappa,
        release=terms.release,
        delta=terms.delta,
        curvature_scale=terms.curvature_scale,
        loss_bound=terms.loss_bound,
        difference_bound=terms.difference_bound,
        reference=vector_to_pb(np.array(terms.reference)) if terms.reference else None,
        edges=terms.edges,
    )


def terms_from_pb(message: pb.StudyTerms) -> StudyTerms:
    """The study's terms of a message; whether they make sense is for the owner to say.

    Raises:
      MalformedError: The budget is not a rational number, or a list of numbers is malformed.
    """
    return StudyTerms(
        study_id=message.study_id,
        loss=message.loss,
        theta_max=message.theta_max,
        feature_map=message.feature_map,
        horizon=message.horizon,
        responses=message.responses,
        epsilon=rational_from_pb(message.epsilon),
        clip=message.clip if message.HasField("clip") else None,
        kappa=message.kappa,
        release=message.release or "gradient",
        delta=message.delta if message.HasField("delta") else None,
        curvature_scale=message.curvature_scale if message.HasField("curvature_scale") else None,
        loss_bound=message.loss_bound if message.HasField("loss_bound") else None,
        difference_bound=message.difference_bound if message.HasField("difference_bound") else None,
        reference=_numbers(vector_from_pb(message.reference)),
        edges=_numbers(message.edges),
    )


def _numbers(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, ...]:
    """A few numbers of the terms; more than any model has are not read.

    Raises:
      MalformedError: They are too many.
    """
    if len(values) > LONGEST_NUMBERS:
        raise MalformedError(f"terms carry {len(values)} numbers, at most {LONGEST_NUMBERS} do")
    return tuple(map(float, values))


def enrollment_to_pb(enrollment: Enrollment) -> pb.Enrollment:
    """An enrolment as a message."""
    return pb.Enrollment(
        num_records=enrollment.num_records,
        responses=enrollment.responses,
        answered=enrollment.answered,
        noise_scale=enrollment.noise_scale,
        epsilon=rational_to_pb(enrollment.epsilon),
        insecure_noise=enrollment.insecure_noise,
        repeats=enrollment.repeats,
    )


def enrollment_from_pb(message: pb.Enrollment) -> Enrollment:
    """The enrolment of a message.

    Raises:
      MalformedError: Its numbers cannot be an enrolment.
    """
    if not (message.num_records > 0 and 0 < message.noise_scale < math.inf):
        raise MalformedError("an enrolment needs a positive number of records and noise scale")
    return Enrollment(
        num_records=message.num_records,
        responses=message.responses,
        answered=message.answered,
        noise_scale=message.noise_scale,
        epsilon=rational_from_pb(message.epsilon),
        insecure_noise=message.insecure_noise,
        repeats=max(1, message.repeats),
    )


def description_to_pb(description: OwnerDescription) -> pb.OwnerDescription:
    """An owner's description as a message."""
    return pb.OwnerDescription(
        name=description.name,
        num_records=description.num_records,
        columns=description.columns,
        feature_map_digest=description.feature_map_digest,
        epsilon_per_study=rational_to_pb(description.epsilon_per_study),
        epsilon_left=rational_to_pb(description.epsilon_left),
        losses=description.losses,
        version=description.version,
        clock_ms=description.clock_ms,
        checked_map_digest=description.checked_map_digest,
        validation=description.validation,
    )


def description_from_pb(message: pb.OwnerDescription) -> OwnerDescription:
    """The owner's description of a message."""
    return OwnerDescription(
        name=message.name,
        num_records=message.num_records,
        columns=tuple(message.columns),
        feature_map_digest=message.feature_map_digest,
        epsilon_per_study=rational_from_pb(message.epsilon_per_study),
        epsilon_left=rational_from_pb(message.epsilon_left),
        losses=tuple(message.losses),
        version=message.version,
        clock_ms=message.clock_ms,
        checked_map_digest=message.checked_map_digest,
        validation=message.validation,
    )


def query_to_pb(query: Query) -> pb.Query:
    """A query as a message."""
    return pb.Query(
        study_id=query.study_id, sequence=query.sequence, theta=vector_to_pb(query.theta)
    )


def query_from_pb(message: pb.Query) -> Query:
    """The query of a message."""
    return Query(
        study_id=message.study_id,
        sequence=message.sequence,
        theta=vector_from_pb(message.theta),
    )


def response_to_pb(response: Response) -> pb.Response:
    """A response as a message."""
    return pb.Response(
        study_id=response.study_id,
        sequence=response.sequence,
        gradient=vector_to_pb(response.gradient),
    )


def response_from_pb(message: pb.Response) -> Response:
    """The response of a message."""
    return Response(
        study_id=message.study_id,
        sequence=message.sequence,
        gradient=vector_from_pb(message.gradient),
    )


def close_summary_to_pb(answered: int, epsilon_spent: Fraction) -> pb.CloseSummary:
    """What a study came to, as a message."""
    return pb.CloseSummary(answered=answered, epsilon_spent=rational_to_pb(epsilon_spent))
