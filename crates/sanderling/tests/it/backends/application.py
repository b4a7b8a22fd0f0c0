"""An application with the HTTP server of Python: python3 application.py HOST PORT"""

import hashlib
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

fired = threading.Event()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/until-close":
            # HTTP/1.0 without a length.
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * 100_000)
        elif path == "/chunked":
            self.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
            for size in (1, 10, 70_000):
                self.write(b"%x;extension=1\r\n%s\r\n" % (size, b"x" * size))
            self.write(b"0\r\nTrailer: x\r\n\r\n")
        elif path == "/chunked-cut":
            self.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        elif path == "/events":
            self.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: first\n\n")
            fired.wait(30)
            self.write(b"data: second\n\n")
        elif path == "/fire":
            fired.set()
            self.answer(b"fired")
        else:
            self.send_error(404)

    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(hashlib.sha256(content).hexdigest().encode())

    def answer(self, content):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def write(self, data):
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, *arguments):
        pass


ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
