"""An application that speaks gRPC, without generated code: messages are bytes.

Arguments: address, port, and for TLS the files of the chain, of the key, and perhaps of the roots of clients.
"""

import signal
import sys
from concurrent import futures

import grpc


def metadata(context):
    return {name: value for name, value in context.invocation_metadata()}


def unary(request, context):
    seen = metadata(context)
    context.send_initial_metadata((("x-seen", seen.get("x-sent", "")),))
    context.set_trailing_metadata((("x-trailer", "last"), ("x-peer", context.peer())))
    return b"unary " + request


def failing(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "nothing at 100% of " + request.decode())


def to_client(request, context):
    for number in range(int(request)):
        yield b"%d " % number + b"x" * 50_000


def from_client(requests, context):
    count = size = 0
    for request in requests:
        count += 1
        size += len(request)
    return b"%d %d" % (count, size)


def both(requests, context):
    for request in requests:
        yield b"echo " + request


METHODS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Failing": grpc.unary_unary_rpc_method_handler(failing),
    "ToClient": grpc.unary_stream_rpc_method_handler(to_client),
    "FromClient": grpc.stream_unary_rpc_method_handler(from_client),
    "Both": grpc.stream_stream_rpc_method_handler(both),
}


def main():
    address, port, *files = sys.argv[1:]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", METHODS),))
    if files:
        chain, key, *roots = (open(name, "rb").read() for name in files)
        clients = {"root_certificates": roots[0], "require_client_auth": True} if roots else {}
        credentials = grpc.ssl_server_credentials([(key, chain)], **clients)
        server.add_secure_port(f"{address}:{port}", credentials)
    else:
        server.add_insecure_port(f"{address}:{port}")
    server.start()
    signal.sigwait([signal.SIGTERM, signal.SIGINT])


main()
