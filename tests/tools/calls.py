"""The methods of our two services, called as another program would call them."""

from types import SimpleNamespace

from google.protobuf.message_factory import GetMessageClass

from common.pb import copriv_pb2 as pb


def methods(service, channel):
    """Each method of a service of ``protos/copriv.proto`` by its name."""
    stated = pb.DESCRIPTOR.services_by_name[service]
    made = {}
    for method in stated.methods:
        sides = (method.client_streaming, method.server_streaming)
        kind = "_".join("stream" if side else "unary" for side in sides)
        made[method.name] = getattr(channel, kind)(
            f"/{stated.full_name}/{method.name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
    return SimpleNamespace(**made)
