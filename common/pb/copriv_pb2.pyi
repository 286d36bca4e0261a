from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Vector(_message.Message):
    __slots__ = ("length", "data")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    length: int
    data: bytes
    def __init__(self, length: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Rational(_message.Message):
    __slots__ = ("numerator", "denominator")
    NUMERATOR_FIELD_NUMBER: _ClassVar[int]
    DENOMINATOR_FIELD_NUMBER: _ClassVar[int]
    numerator: str
    denominator: str
    def __init__(self, numerator: _Optional[str] = ..., denominator: _Optional[str] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OwnerDescription(_message.Message):
    __slots__ = ("name", "num_records", "columns", "feature_map_digest", "epsilon_per_study", "epsilon_left", "losses", "version", "clock_ms", "checked_map_digest", "validation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_RECORDS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    FEATURE_MAP_DIGEST_FIELD_NUMBER: _ClassVar[int]
    EPSILON_PER_STUDY_FIELD_NUMBER: _ClassVar[int]
    EPSILON_LEFT_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKED_MAP_DIGEST_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_records: int
    columns: _containers.RepeatedScalarFieldContainer[str]
    feature_map_digest: str
    epsilon_per_study: Rational
    epsilon_left: Rational
    losses: _containers.RepeatedScalarFieldContainer[str]
    version: str
    clock_ms: int
    checked_map_digest: str
    validation: str
    def __init__(self, name: _Optional[str] = ..., num_records: _Optional[int] = ..., columns: _Optional[_Iterable[str]] = ..., feature_map_digest: _Optional[str] = ..., epsilon_per_study: _Optional[_Union[Rational, _Mapping]] = ..., epsilon_left: _Optional[_Union[Rational, _Mapping]] = ..., losses: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., clock_ms: _Optional[int] = ..., checked_map_digest: _Optional[str] = ..., validation: _Optional[str] = ...) -> None: ...

class StudyTerms(_message.Message):
    __slots__ = ("study_id", "loss", "theta_max", "feature_map", "horizon", "responses", "epsilon", "clip", "kappa", "release", "delta", "curvature_scale", "loss_bound", "difference_bound", "reference", "edges")
    STUDY_ID_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    THETA_MAX_FIELD_NUMBER: _ClassVar[int]
    FEATURE_MAP_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    KAPPA_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    CURVATURE_SCALE_FIELD_NUMBER: _ClassVar[int]
    LOSS_BOUND_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_BOUND_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    study_id: str
    loss: str
    theta_max: float
    feature_map: str
    horizon: int
    responses: int
    epsilon: Rational
    clip: float
    kappa: int
    release: str
    delta: float
    curvature_scale: float
    loss_bound: float
    difference_bound: float
    reference: Vector
    edges: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, study_id: _Optional[str] = ..., loss: _Optional[str] = ..., theta_max: _Optional[float] = ..., feature_map: _Optional[str] = ..., horizon: _Optional[int] = ..., responses: _Optional[int] = ..., epsilon: _Optional[_Union[Rational, _Mapping]] = ..., clip: _Optional[float] = ..., kappa: _Optional[int] = ..., release: _Optional[str] = ..., delta: _Optional[float] = ..., curvature_scale: _Optional[float] = ..., loss_bound: _Optional[float] = ..., difference_bound: _Optional[float] = ..., reference: _Optional[_Union[Vector, _Mapping]] = ..., edges: _Optional[_Iterable[float]] = ...) -> None: ...

class Enrollment(_message.Message):
    __slots__ = ("num_records", "responses", "answered", "noise_scale", "epsilon", "insecure_noise", "repeats")
    NUM_RECORDS_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    NOISE_SCALE_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    INSECURE_NOISE_FIELD_NUMBER: _ClassVar[int]
    REPEATS_FIELD_NUMBER: _ClassVar[int]
    num_records: int
    responses: int
    answered: int
    noise_scale: float
    epsilon: Rational
    insecure_noise: bool
    repeats: int
    def __init__(self, num_records: _Optional[int] = ..., responses: _Optional[int] = ..., answered: _Optional[int] = ..., noise_scale: _Optional[float] = ..., epsilon: _Optional[_Union[Rational, _Mapping]] = ..., insecure_noise: _Optional[bool] = ..., repeats: _Optional[int] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("study_id", "sequence", "theta")
    STUDY_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    THETA_FIELD_NUMBER: _ClassVar[int]
    study_id: str
    sequence: int
    theta: Vector
    def __init__(self, study_id: _Optional[str] = ..., sequence: _Optional[int] = ..., theta: _Optional[_Union[Vector, _Mapping]] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("study_id", "sequence", "gradient")
    STUDY_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_FIELD_NUMBER: _ClassVar[int]
    study_id: str
    sequence: int
    gradient: Vector
    def __init__(self, study_id: _Optional[str] = ..., sequence: _Optional[int] = ..., gradient: _Optional[_Union[Vector, _Mapping]] = ...) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ("study_id",)
    STUDY_ID_FIELD_NUMBER: _ClassVar[int]
    study_id: str
    def __init__(self, study_id: _Optional[str] = ...) -> None: ...

class CloseSummary(_message.Message):
    __slots__ = ("answered", "epsilon_spent")
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    EPSILON_SPENT_FIELD_NUMBER: _ClassVar[int]
    answered: int
    epsilon_spent: Rational
    def __init__(self, answered: _Optional[int] = ..., epsilon_spent: _Optional[_Union[Rational, _Mapping]] = ...) -> None: ...

class OfferRequest(_message.Message):
    __slots__ = ("study_id",)
    STUDY_ID_FIELD_NUMBER: _ClassVar[int]
    study_id: str
    def __init__(self, study_id: _Optional[str] = ...) -> None: ...

class OfferReply(_message.Message):
    __slots__ = ("accepted",)
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    def __init__(self, accepted: _Optional[bool] = ...) -> None: ...

class OwnerMessage(_message.Message):
    __slots__ = ("call", "hello", "request", "description", "enrollment", "response", "closed", "refusal")
    CALL_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ENROLLMENT_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    call: int
    hello: Hello
    request: UpdateRequest
    description: OwnerDescription
    enrollment: Enrollment
    response: Response
    closed: CloseSummary
    refusal: Refusal
    def __init__(self, call: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., request: _Optional[_Union[UpdateRequest, _Mapping]] = ..., description: _Optional[_Union[OwnerDescription, _Mapping]] = ..., enrollment: _Optional[_Union[Enrollment, _Mapping]] = ..., response: _Optional[_Union[Response, _Mapping]] = ..., closed: _Optional[_Union[CloseSummary, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class LearnerMessage(_message.Message):
    __slots__ = ("call", "describe", "enroll", "query", "close", "start", "goodbye")
    CALL_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    ENROLL_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    call: int
    describe: DescribeRequest
    enroll: StudyTerms
    query: Query
    close: CloseRequest
    start: ClockStart
    goodbye: Goodbye
    def __init__(self, call: _Optional[int] = ..., describe: _Optional[_Union[DescribeRequest, _Mapping]] = ..., enroll: _Optional[_Union[StudyTerms, _Mapping]] = ..., query: _Optional[_Union[Query, _Mapping]] = ..., close: _Optional[_Union[CloseRequest, _Mapping]] = ..., start: _Optional[_Union[ClockStart, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class UpdateRequest(_message.Message):
    __slots__ = ("time",)
    TIME_FIELD_NUMBER: _ClassVar[int]
    time: float
    def __init__(self, time: _Optional[float] = ...) -> None: ...

class ClockStart(_message.Message):
    __slots__ = ("time", "time_scale")
    TIME_FIELD_NUMBER: _ClassVar[int]
    TIME_SCALE_FIELD_NUMBER: _ClassVar[int]
    time: float
    time_scale: float
    def __init__(self, time: _Optional[float] = ..., time_scale: _Optional[float] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("status", "sentence", "retry_after_ms")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    status: int
    sentence: str
    retry_after_ms: int
    def __init__(self, status: _Optional[int] = ..., sentence: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...
