"""A port of this machine whose connections tests treat as they like."""

import contextlib
import socket
import threading
from abc import ABC, abstractmethod


class Listening(ABC):
    """Listens until :meth:`stop`; each connection is treated by a thread of its own."""

    def __init__(self):
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @abstractmethod
    def treat(self, near):
        """What becomes of one connection, which is closed behind it."""

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                self._threads.append(threading.Thread(target=self._treat, args=(near,)))
                self._threads[-1].start()

    def _treat(self, near):
        with near:
            self.treat(near)

    def stop(self):
        """Take no new connection, and wait for the end of the others."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join()
