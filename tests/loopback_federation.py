"""A federation of real processes on this machine, over TLS: a link, nodes, and certificates made for the occasion."""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apportion.cli.federate_processes import (
    environment,
    link_command,
    node_command,
    run_command,
    started,
    write_app,
    write_connection,
)
from one_pass import APP

HOST = "127.0.0.1"


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
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
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


def wait_for(port, process, seconds=60):
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as found:
            if found.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on port {port}; exit code {process.poll()}")


@contextmanager
def federation(folder, node_settings):
    """A link with one node for each of some settings; yields the app's folder and Flower's home."""
    home, app, port = folder / "flower", folder / "app", free_port()
    certificate, key, root = write_certificates(folder)
    write_app(app)
    (app / "apportion_federation" / "server.py").write_text(APP)
    write_connection(home, f"{HOST}:{port}", root)
    running = [started(link_command(HOST, port, certificate, key, root), home, folder / "link.log")]
    try:
        wait_for(port, running[0])
        for number, settings in enumerate(node_settings):
            command = node_command(f"{HOST}:{port}", root, free_port(), settings)
            running.append(started(command, home, folder / f"node{number}.log"))
        yield app, home
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def run_over_loopback(folder, config, rows, seconds=500):
    """Run one pass over a node for each file of rows; return what Flower said. Releases go to released.json."""
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    nodes = [{"federation": config, "rows": path, "state": folder / f"desk{k}"} for k, path in enumerate(rows)]
    out = folder / "released.json"
    with federation(folder, nodes) as (app, home):
        command = run_command(app, {"federation": str(config), "out": str(out)})
        with subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, text=True) as process:
            until = time.monotonic() + seconds
            while not out.exists() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.5)
            process.terminate()
            return process.communicate()[0] + (folder / "link.log").read_text()[-3000:]
