"""A door to the hub at the one port that the legacy Java SDK knows, 5671, on a loopback address of its own."""

import random
import socket
import threading

from .processes import Failed

PORT = 5671
ADDRESSES_TRIED_MAX = 50


class Doorway:
    """Passes connections on to the hub's TLS port, whatever it is at the time; answers CONNECT as an HTTP proxy does, too."""

    def __init__(self, hub):
        self.hub = hub
        self.listener = self._listen()
        self.address = self.listener.getsockname()[0]
        threading.Thread(target=self._accept, daemon=True).start()

    @staticmethod
    def _listen():
        for _ in range(ADDRESSES_TRIED_MAX):
            address = f"127.{random.randint(1, 254)}.{random.randint(0, 254)}.{random.randint(1, 254)}"
            try:
                return socket.create_server((address, PORT), backlog=64)
            except OSError as error:
                problem = error
        raise Failed(f"no loopback address has port {PORT} free: {problem}")

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            with client:
                if client.recv(8, socket.MSG_PEEK).startswith(b"CONNECT"):
                    self._answer(client)
                with socket.create_connection(("127.0.0.1", self.hub.ready["tls_port"]), 5) as server:
                    server.settimeout(None)
                    back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
                    back.start()
                    _pass_on(client, server)
                    back.join()
        except OSError:
            pass  # the hub is away, or either side has gone: the client sees its connection end

    @staticmethod
    def _answer(client):
        head = b""
        while b"\r\n\r\n" not in head:
            more = client.recv(4096)
            if not more or len(head) > 65536:
                raise OSError("no request")
            head += more
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")

    def close(self):
        self.listener.close()


def _pass_on(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for one in (source, sink):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
