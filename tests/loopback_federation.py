"""A federation of real processes on this machine, over TLS: a link, nodes, and certificates made for the occasion."""

from __future__ import annotations

import datetime
import ipaddress
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apportion.cli.federate_processes import environment

HOST = "127.0.0.1"


def outer_address():
    """Return an address of this machine that is not loopback; None where there is none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect(("192.0.2.1", 9))  # for documentation: nobody has it
            return found.getsockname()[0]
        except OSError:
            return None


def free_port():
    with socket.socket() as found:
        found.bind((HOST, 0))
        return found.getsockname()[1]


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(subject, key, issuer, issuer_key, *, authority):
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if authority:
        usage = dict.fromkeys(
            [
                "digital_signature",
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
            ],
            False,
        )
        made = made.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
    else:
        addresses = {HOST, outer_address() or HOST}
        names = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(each)) for each in addresses)]
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(issuer_key, hashes.SHA256())


def write_certificates(folder):
    """Write a root certificate, and one of this machine with its key."""
    root, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    made = {
        "root.pem": _certificate("root", root, "root", root, authority=True),
        "link.pem": _certificate("localhost", own, "root", root, authority=False),
    }
    for name, certificate in made.items():
        (folder / name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "link.key").write_bytes(
        own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return [folder / name for name in ("link.pem", "link.key", "root.pem")]


def wait_for(port, process, host=HOST, seconds=60):
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as found:
            if found.connect_ex((host, port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on port {port}; exit code {process.poll()}")


def started(arguments, log, before=""):
    """Start the program in a process of its own; what it says goes to a file."""
    command = [sys.executable, "-c", f"{before}\nfrom apportion.cli.main import main; main()", *map(str, arguments)]
    return _started(command, log, "ours")


def _started(command, log, whose):
    with log.open("ab") as file:
        told = {**environment(log.parent / "flower"), "WHOSE_NODE": whose}
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=told)


def ended(processes, seconds=20):
    """End processes that were started here."""
    for process in processes:
        process.send_signal(signal.SIGINT)
    for process in processes:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_over_loopback(
    folder, config, rows, seconds=300, clients=None, planted=None, stranger=False, carrier="flower", host=HOST
):
    """Run the server and a client for each file of rows, as commands over TLS; return what was said.

    Args:
        folder: for everything.
        config: of the federation.
        rows: a file for each client.
        seconds: the most to wait.
        clients: which of them are started; all by default.
        planted: code in the apps that Flower has for the server and sends to nodes.
        stranger: whether a node of Flower's own connects too, which is nobody of the roster.
        carrier: of letters.
        host: address that the server listens on and clients connect to.
    """
    certificate, key, root = write_certificates(folder)
    port = free_port()
    out = folder / "out"
    tls = ("--root-certificates", root, "--carrier", carrier)
    link = ("--host", host, "--certificate", certificate, "--key", key, "--identity", folder / "server", "--port", port)
    change = f"import apportion.cli.federate_processes as p; p._CLIENT = p._SERVER = {planted!r}" if planted else ""
    running = [started(("federate", "server", config, "--out", out, *tls, *link), folder / "server.log", change)]
    try:
        wait_for(port, running[0], host)
        if stranger:
            node = [Path(sys.executable).parent / "flower-supernode", "--superlink", f"{HOST}:{port}"]
            ports = ("--root-certificates", root, "--port", free_port())
            running.append(_started([str(each) for each in (*node, *ports)], folder / "stranger.log", "stranger"))
        for number in range(len(rows)) if clients is None else clients:
            own = ("--client", folder / f"client{number}", "--local-port", free_port())
            asked = ("federate", "client", config, rows[number], "--server", f"{host}:{port}", *tls, *own)
            running.append(started(asked, folder / f"client{number}.log"))
        running[0].wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:
        ended(running)
    return "\n".join(path.read_text()[-3000:] for path in sorted(folder.glob("*.log")))
