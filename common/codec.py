"""Typed records to protobuf and back; what arrives malformed is refused here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, MutableSequence
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError, Message

from common.arrays import Vector
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


def vector_to_pb(vector: Vector) -> pb.Vector:
    """A vector as little-endian float64 bytes with its length."""
    return pb.Vector(length=vector.size, data=vector.astype("<f8", copy=False).tobytes())


def vector_from_pb(message: pb.Vector) -> Vector:
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


def _written(record: StudyTerms | Enrollment | OwnerDescription) -> dict[str, Any]:
    """The fields of a record, which bear the names of its message's."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {
        name: rational_to_pb(value) if isinstance(value, Fraction) else value
        for name, value in values.items()
    }


def _read(message: Message) -> dict[str, Any]:
    """The fields of a message by their names; a number that may be absent and is, is None.

    Raises:
      MalformedError: An amount or a vector is malformed.
    """
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if isinstance(value, pb.Rational):
            value = rational_from_pb(value)
        elif isinstance(value, pb.Vector):
            value = vector_from_pb(value)
        elif isinstance(value, MutableSequence):
            value = tuple(value)
        elif field.has_presence and not message.HasField(field.name):
            value = None
        found[field.name] = value
    return found


def terms_to_pb(terms: StudyTerms) -> pb.StudyTerms:
    """A study's terms as a message."""
    reference = vector_to_pb(np.array(terms.reference)) if terms.reference else None
    return pb.StudyTerms(**_written(terms) | {"reference": reference})


def terms_from_pb(message: pb.StudyTerms) -> StudyTerms:
    """The study's terms of a message; whether they make sense is for the owner to say.

    Raises:
      MalformedError: The budget is not a rational number, or a list of numbers is malformed.
    """
    for count in (len(message.reference.data) // 8, len(message.edges)):
        if count > LONGEST_NUMBERS:
            raise MalformedError(f"terms carry {count} numbers, at most {LONGEST_NUMBERS} do")
    found = _read(message)
    reference = tuple(map(float, found["reference"]))
    return StudyTerms(**found | {"release": message.release or "gradient", "reference": reference})


def enrollment_to_pb(enrollment: Enrollment) -> pb.Enrollment:
    """An enrolment as a message."""
    return pb.Enrollment(**_written(enrollment))


def enrollment_from_pb(message: pb.Enrollment) -> Enrollment:
    """The enrolment of a message.

    Raises:
      MalformedError: Its numbers cannot be an enrolment.
    """
    if not (message.num_records > 0 and 0 < message.noise_scale < math.inf):
        raise MalformedError("an enrolment needs a positive number of records and noise scale")
    return Enrollment(**_read(message) | {"repeats": max(1, message.repeats)})


def description_to_pb(description: OwnerDescription) -> pb.OwnerDescription:
    """An owner's description as a message."""
    return pb.OwnerDescription(**_written(description))


def description_from_pb(message: pb.OwnerDescription) -> OwnerDescription:
    """The owner's description of a message."""
    return OwnerDescription(**_read(message))


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
