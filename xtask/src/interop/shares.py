"""Programs for the tests of fair shares. They all run on the same host as dns64d.

    upstream PORT                         DNS over UDP and TCP: names with "dead" are not answered; names with "long" are
                                          truncated over UDP
    flood PORT SOURCES RATE KIND          queries RATE names per second, each in a different top-level domain, until terminated;
                                          KIND: "dead", or "dead-long" for names that are truncated and not answered over TCP
    hold PORT SOURCES COUNT               keeps COUNT TCP connections open, each with a query that is not answered
    ask PORT SOURCE COUNT KIND            queries COUNT responsive names, 50 per second, and prints how many were answered;
                                          KIND: "udp", "udp-long", or "tcp" with a separate connection for each name

SOURCES is FIRST/COUNT: COUNT IPv4 addresses or IPv6 /64 prefixes, beginning with FIRST. dns64d listens on loopback.
"""

import ipaddress
import json
import random
import resource
import select
import socket
import struct
import sys
import threading
import time

TIMEOUT = 3


def query(name, qtype=1):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    head = struct.pack("!HHHHHH", random.getrandbits(16), 0x0100, 1, 0, 0, 0)
    return head + labels + b"\0" + struct.pack("!HH", qtype, 1)


def reply(message, truncated):
    end = message.index(0, 12) + 5
    flags = b"\x83\x80" if truncated else b"\x81\x80"
    head = message[:2] + flags + struct.pack("!HHHH", 1, 0 if truncated else 1, 0, 0)
    record = b"" if truncated else b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01"
    return head + message[12:end] + record


def read_message(sock):
    data = b""
    while len(data) < 2 or len(data) < 2 + struct.unpack("!H", data[:2])[0]:
        more = sock.recv(4096)
        if not more:
            return None
        data += more
    return data[2:]


def upstream(port):
    """Serves UDP and TCP in one thread: with a thread per connection, the server itself would delay its answers."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
    udp.bind(("127.0.0.1", int(port)))
    tcp = socket.create_server(("127.0.0.1", int(port)), backlog=1024)
    poll, connections = select.epoll(), {}
    for sock in (udp, tcp):
        sock.setblocking(False)
        poll.register(sock, select.EPOLLIN)

    def on_datagrams():
        for _ in range(64):
            try:
                message, peer = udp.recvfrom(4096)
            except BlockingIOError:
                return
            if b"long" in message:
                udp.sendto(reply(message, True), peer)
            elif b"dead" not in message:
                udp.sendto(reply(message, False), peer)

    def on_data(connection):
        try:
            more = connection.recv(4096)
        except OSError:
            more = b""
        if not more:
            del connections[connection.fileno()]
            return connection.close()
        data = connections[connection.fileno()][1]
        data += more
        while len(data) >= 2 and len(data) >= (end := 2 + struct.unpack("!H", data[:2])[0]):
            message = bytes(data[2:end])
            del data[:end]
            if b"dead" not in message:
                answer = reply(message, False)
                connection.send(struct.pack("!H", len(answer)) + answer)

    while True:
        for fd, _ in poll.poll():
            if fd == udp.fileno():
                on_datagrams()
            elif fd == tcp.fileno():
                try:
                    connection = tcp.accept()[0]
                except OSError:
                    continue  # The client has closed it again.
                connection.setblocking(False)
                connections[connection.fileno()] = (connection, bytearray())
                poll.register(connection, select.EPOLLIN)
            else:
                on_data(connections[fd][0])


class Sources:
    """Random source addresses."""

    def __init__(self, text):
        first, count = text.split("/")
        self.first, self.count = ipaddress.ip_address(first), int(count)
        self.family = socket.AF_INET6 if self.first.version == 6 else socket.AF_INET
        self.server = "::1" if self.first.version == 6 else "127.0.0.1"

    def nth(self, n):
        step = 64 if self.first.version == 6 else 0
        return self.first + (n % self.count << step)

    def control(self):
        """Returns the control message that sets a random source address."""
        packed = self.nth(random.getrandbits(32)).packed
        if self.first.version == 6:
            return [(socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, packed + struct.pack("I", 0))]
        return [(socket.IPPROTO_IP, 8, struct.pack("I", 0) + packed + bytes(4))]  # IP_PKTINFO


def flood(port, sources, rate, kind):
    sources, rate = Sources(sources), int(rate)
    sock = socket.socket(sources.family, socket.SOCK_DGRAM)
    to, begun, n = (sources.server, int(port)), time.monotonic(), 0
    while True:
        due = int((time.monotonic() - begun) * rate)
        for n in range(n, due):
            sock.sendmsg([query(f"n{n}.{kind}{n}")], sources.control(), 0, to)
        n = due
        time.sleep(0.001)


def hold(port, sources, count):
    count = int(count)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100,) * 2)
    sources, poll, open_ones = Sources(sources), select.poll(), {}

    def connect(n):
        sock = socket.socket(sources.family, socket.SOCK_STREAM)
        try:
            sock.bind((str(sources.nth(n)), 0))
            sock.connect((sources.server, int(port)))
            message = query(f"n{n}.dead{n}")
            sock.sendall(struct.pack("!H", len(message)) + message)
        except OSError:
            return sock.close()
        sock.setblocking(False)
        open_ones[sock.fileno()] = (sock, n)
        poll.register(sock, select.POLLIN)

    for n in range(count):
        connect(n)
    print("held", flush=True)
    while True:
        for fd, _ in poll.poll(1000):
            sock, n = open_ones[fd]
            try:
                gone = not sock.recv(4096)
            except OSError:
                gone = True
            if gone:
                poll.unregister(fd)
                del open_ones[fd]
                sock.close()
            else:
                # The query has failed. Another query keeps the connection busy.
                message = query(f"m{random.getrandbits(40)}.dead{n}")
                sock.send(struct.pack("!H", len(message)) + message)


def ask_one(sources, port, kind, name):
    """Returns the outcome for a name: "answered", "failed" (SERVFAIL), or "lost"."""
    stream = kind == "tcp"
    with socket.socket(sources.family, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM) as sock:
        sock.settimeout(TIMEOUT)
        sock.bind((str(sources.first), 0))
        message = query(name)
        try:
            sock.connect((sources.server, port))
            sock.sendall(struct.pack("!H", len(message)) + message if stream else message)
            answer = read_message(sock) if stream else sock.recv(4096)
        except OSError:
            return "lost"
        if answer is None:
            return "lost"
        return "answered" if answer[3] & 15 == 0 and answer[7] == 1 else "failed"


def ask(port, source, count, kind):
    sources, outcomes, took = Sources(source + "/1"), [], []
    name = "long" if kind == "udp-long" else "living"

    def one(n):
        begun = time.monotonic()
        outcomes.append(ask_one(sources, int(port), kind, f"h{n}{random.getrandbits(40)}.{name}.test"))
        took.append(time.monotonic() - begun)

    threads, begun = [], time.monotonic()
    for n in range(int(count)):
        time.sleep(max(0, begun + n * 0.02 - time.monotonic()))
        threads.append(threading.Thread(target=one, args=(n,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    took.sort()
    counts = {outcome: outcomes.count(outcome) for outcome in ("answered", "failed", "lost")}
    print(json.dumps({"asked": len(outcomes), **counts, "p50": took[len(took) // 2], "longest": took[-1]}))


globals()[sys.argv[1]](*sys.argv[2:])
