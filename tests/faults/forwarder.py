"""A way through this process to a server of a job, which cuts connections and holds bytes back at random."""
import random
import select
import socket
import threading
import time


class Forwarder:
    """Listens at a port of its own. Every connection that comes is carried to `target`, until one of the two ends."""

    def __init__(self, target, seed):
        self.target = target
        self.cuts = 0
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._pairs = []
        self._is_over = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self):
        while not self._is_over:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target), timeout=2)
            except OSError:
                continue
            server.settimeout(None)
            with self._lock:
                self._pairs.append((client, server))
            threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client, server):
        other = {client: server, server: client}
        try:
            while True:
                for side in select.select(list(other), [], [], 10)[0]:
                    data = side.recv(1 << 16)
                    if not data:
                        raise OSError("ended")
                    with self._lock:
                        delay = self._random.random() * 0.03 if self._random.random() < 0.02 else 0.0
                    time.sleep(delay)
                    other[side].sendall(data)
        except (OSError, ValueError):
            pass
        self._end(client, server)

    def _end(self, *pair):
        with self._lock:
            if pair in self._pairs:
                self._pairs.remove(pair)
        for one in pair:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def cut_one(self):
        """Ends one of the connections, with whatever is on its way."""
        with self._lock:
            pair = self._random.choice(self._pairs) if self._pairs else None
        if pair:
            self._end(*pair)
            self.cuts += 1

    def close(self):
        self._is_over = True
        for one in (self._listener,):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()
        for pair in list(self._pairs):
            self._end(*pair)
