"""Calls each kind of method of the application, and prints what it gets.

Arguments: the server, and for TLS a file of roots; or `down`, the server and such a file, for one call.
"""

import queue
import sys

import grpc

TIMEOUT_S = 30


def channel(server, *roots):
    if not roots:
        return grpc.insecure_channel(server, options=[("grpc.default_authority", "example.com")])
    credentials = grpc.ssl_channel_credentials(open(roots[0], "rb").read())
    return grpc.secure_channel(server, credentials, options=[("grpc.ssl_target_name_override", "example.com")])


def unary(channel, name, request):
    call = channel.unary_unary(f"/test.Service/{name}")
    return call.with_call(request, metadata=(("x-sent", "from the client"),), timeout=TIMEOUT_S)


def failing(channel, name):
    try:
        unary(channel, name, b"a")
    except grpc.RpcError as error:
        print(error.code().name, error.details())


def main():
    if sys.argv[1] == "down":
        with channel(*sys.argv[2:]) as opened:
            failing(opened, "Unary")
        return
    with channel(*sys.argv[1:]) as opened:
        response, call = unary(opened, "Unary", b"hello")
        initial, trailing = dict(call.initial_metadata()), dict(call.trailing_metadata())
        print(response.decode(), "|", initial["x-seen"], "|", trailing["x-trailer"])
        failing(opened, "Failing")
        received = list(opened.unary_stream("/test.Service/ToClient")(b"40", timeout=TIMEOUT_S))
        print("to client", len(received), sum(map(len, received)))
        sent = (b"y" * 40_000 for _ in range(50))
        print("from client", opened.stream_unary("/test.Service/FromClient")(sent, timeout=TIMEOUT_S).decode())
        # Each message is an answer to the one before.
        messages = queue.Queue()
        answers = opened.stream_stream("/test.Service/Both")(iter(messages.get, None), timeout=TIMEOUT_S)
        for number in range(3):
            messages.put(b"%d" % number)
            print("both", next(answers).decode())
        messages.put(None)
        print("rest", list(answers))
        # Calls at the same time have a connection each.
        calls = [opened.unary_unary("/test.Service/Unary").future(b"%d" % number) for number in range(20)]
        print("calls", sum(len(call.result(TIMEOUT_S)) for call in calls))


main()
