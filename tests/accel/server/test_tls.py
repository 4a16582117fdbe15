"""A sidecar with TLS, by a certificate that the tests make; the token crosses it."""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from accel.errors import InvalidArgument
from accel.server.serving import Tls
from accel.system import SYSTEM
from tests.accel.server.asking import AUTHORISED, STREAM, TOKEN, filled
from tests.accel.server.test_served import served

FROM, TO = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)


def made(folder: Path, name: str = "server") -> Tls:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a sidecar of the tests")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(FROM)
        .not_valid_after(TO)
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = Tls(folder / f"{name}.pem", folder / f"{name}.key")
    paths.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain, form = serialization.NoEncryption(), serialization.PrivateFormat.PKCS8
    paths.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return paths


def test_lookups_tokens_and_stats_cross_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    tls, token = made(tmp_path), tmp_path / "token"
    token.write_text(TOKEN)
    path = f"/v1/objects?stream_id={STREAM}&start=0&end=100"
    with served(filled(2), tls, host="0.0.0.0") as one:  # noqa: S104 - the token is needed to read; it listens on loopback
        assert one.get(path)[0] == 401
        status, body = one.ask("GET", path, AUTHORISED)
        assert (status, json.loads(body)["ending"]) == (200, "end")
        assert one.post("/v1/refresh")[0] == 200
        plain = http.client.HTTPConnection("127.0.0.1", one.port, timeout=60)
        plain.request("GET", path)
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.getresponse()
        plain.close()


def test_a_certificate_and_a_key_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    one, other = made(tmp_path), made(tmp_path, "other")
    one.check()
    for wrong in (Tls(one.certificate, other.key), Tls(one.certificate, tmp_path / "missing"), Tls(one.key, one.key)):
        with pytest.raises(InvalidArgument, match="expected a certificate and its key as PEM files"):
            wrong.check()


def test_a_renewed_certificate_is_taken_up_and_half_of_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("accel.listening.RELOAD_TICKS", 1)
    tls, renewed = made(tmp_path), made(tmp_path, "renewed")
    with served(filled(1), tls) as one:

        def shown() -> str:
            return ssl.get_server_certificate(("127.0.0.1", one.port))

        first = shown()
        assert first == tls.certificate.read_text()
        renewed.certificate.replace(tls.certificate)
        while "stays in use" not in caplog.text:
            SYSTEM.sleep(0.02)
        assert shown() == first
        renewed.key.replace(tls.key)
        while shown() == first:
            SYSTEM.sleep(0.02)
        assert shown() == tls.certificate.read_text()
