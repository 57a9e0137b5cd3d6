"""Programs that the prefix tests run in the hosts of the lab: an upstream that announces prefixes, a router that
advertises a prefix, a server behind a NAT64, and clients.

    upstream ADDRESS FILE            DNS on port 53; FILE: "TTL PREFIX ...", "none", or "silent"
    advertise INTERFACE HOPS PREFIX SECONDS
    listen PORT ADDRESS ...          sends "hello" on each connection
    watch SERVER FILE                queries 100 new names per second, and writes the counts of the answers to FILE
    connect SERVER NAME PORT         connects to the address of NAME, and prints the data received
"""

import ipaddress
import json
import os
import signal
import socket
import struct
import sys
import threading
import time

A, SOA, AAAA = 1, 6, 28
WELL_KNOWN = [ipaddress.IPv4Address("192.0.0.170"), ipaddress.IPv4Address("192.0.0.171")]
BEHIND = ipaddress.IPv4Address("198.18.0.2")


def embed(prefix, ipv4):
    """Returns the address in which an IPv4 address is embedded below a prefix of 96 bits (RFC 6052)."""
    return (int(ipaddress.IPv6Address(prefix)) | int(ipv4)).to_bytes(16, "big")


def question_of(message):
    """Returns the question of a message, with the name in lower case, and the queried type."""
    end = message.index(0, 12) + 5
    return message[12:end].lower(), struct.unpack("!H", message[end - 4 : end - 2])[0]


def upstream(address, file):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, 53))
    while True:
        query, peer = sock.recvfrom(4096)
        question, qtype = question_of(query)
        ttl, records = 5, []
        if qtype == A:
            records = [BEHIND.packed]
        if question.startswith(b"\x08ipv4only\x04arpa\0") and qtype == AAAA:
            words = open(file).read().split()
            if words == ["silent"]:
                continue
            if words != ["none"]:
                ttl = int(words[0])
                records = [embed(prefix, one) for prefix in words[1:] for one in WELL_KNOWN]
        counts = struct.pack("!HHHH", 1, len(records), 0 if records else 1, 0)
        answer = query[:2] + b"\x81\x80" + counts + query[12 : 12 + len(question)]
        for data in records:
            answer += b"\xc0\x0c" + struct.pack("!HHIH", qtype, 1, ttl, len(data)) + data
        if not records:
            data = b"\0\0" + struct.pack("!IIIII", 1, 5, 5, 5, 5)
            answer += b"\0" + struct.pack("!HHIH", SOA, 1, 5, len(data)) + data
        sock.sendto(answer, peer)


def bind_to_link_local(sock, interface, index):
    """Binds to the link-local address from which advertisements are sent. It is usable a moment after the link is up."""
    for _ in range(100):
        for line in open("/proc/net/if_inet6"):
            address, _, _, scope, _, name = line.split()
            if name == interface and scope == "20":
                try:
                    sock.bind((str(ipaddress.IPv6Address(int(address, 16))), 0, 0, index))
                    return
                except OSError:
                    pass
        time.sleep(0.1)
    raise OSError(f"{interface} has no link-local address")


def advertise(interface, hops, prefix, seconds):
    """Returns a router advertisement (RFC 4861 section 4.2) of a prefix of 96 bits (RFC 8781 section 4)."""
    sock = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    index = socket.if_nametoindex(interface)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, int(hops))
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    bind_to_link_local(sock, interface, index)
    head = struct.pack("!BBHBBHII", 134, 0, 0, 0, 0, 0, 0, 0)
    option = struct.pack("!BBH", 38, 2, int(seconds) // 8 << 3) + ipaddress.IPv6Address(prefix).packed[:12]
    sock.sendto(head + option, ("ff02::1", 0, 0, index))


def listen(port, *addresses):
    def serve(address):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, int(port)))
        sock.listen(64)
        while True:
            connection, _ = sock.accept()
            try:
                connection.sendall(b"hello")
            except OSError:
                pass
            connection.close()

    threads = [threading.Thread(target=serve, args=(address,)) for address in addresses]
    for thread in threads:
        thread.start()


def ask(sock, number, name):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    opt = b"\0\0\x29\x04\xd0\0\0\0\0\0\0"
    header = struct.pack("!HHHHHH", number & 0xFFFF, 0x0100, 1, 0, 0, 1)
    sock.send(header + labels + b"\0" + struct.pack("!HH", AAAA, 1) + opt)


def addresses_of(message):
    """Returns the AAAA records of an answer from dns64d. Their owner is a compression pointer or the complete name."""
    question, _ = question_of(message)
    place, addresses = 12 + len(question), []
    for _ in range(struct.unpack("!H", message[6:8])[0]):
        while message[place] and message[place] < 0xC0:
            place += 1 + message[place]
        place += 2 if message[place] else 1
        rtype, _, _, size = struct.unpack("!HHIH", message[place : place + 10])
        place += 10
        if rtype == AAAA:
            addresses.append(ipaddress.IPv6Address(message[place : place + size]))
        place += size
    return addresses


def said(message):
    """Returns a summary of an answer: the 96-bit prefixes of its addresses, or the RCODE and the extended error."""
    addresses = addresses_of(message)
    if addresses:
        return " ".join(str(ipaddress.IPv6Address(int(one) >> 32 << 32)) for one in addresses)
    at = message.rfind(b"\0\x0f\0\x02")
    error = struct.unpack("!H", message[at + 4 : at + 6])[0] if at >= 0 else None
    return f"rcode {message[3] & 15} error {error}"


def watch(server, file):
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.connect((server, 53))
    sock.setblocking(False)
    seen = {}
    state = {"asked": 0, "answered": 0, "seen": seen, "last": None}
    done = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    noted = 0.0
    while not done.is_set():
        try:
            ask(sock, state["asked"], f"w{state['asked']}.lab.test")
        except (BlockingIOError, ConnectionRefusedError):
            pass
        state["asked"] += 1
        time.sleep(0.01)
        now = time.time()
        while True:
            try:
                message = sock.recv(4096)
            except (BlockingIOError, ConnectionRefusedError):
                break
            word = said(message)
            state["answered"] += 1
            state["last"] = word
            first, _, count = seen.get(word, (now, now, 0))
            seen[word] = (first, now, count + 1)
        if now - noted > 0.05:
            noted = now
            with open(file + ".new", "w") as new:
                json.dump(state, new)
            os.rename(file + ".new", file)


def connect(server, name, port):
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.settimeout(5)
    sock.connect((server, 53))
    ask(sock, 1, name)
    address = str(addresses_of(sock.recv(4096))[0])
    stream = socket.create_connection((address, int(port)), 5)
    print(json.dumps({"address": address, "said": stream.recv(100).decode()}))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
