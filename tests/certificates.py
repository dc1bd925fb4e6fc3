"""Certificates for the servers of the tests, and the authority that issues them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Authority:
    """A CA with its files in a folder."""

    folder: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}.pem"

    @classmethod
    def made(cls, folder: Path, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        authority = cls(folder, name, key, certificate)
        authority.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return authority

    def issue(self, name: str, *addresses: str) -> tuple[Path, Path]:
        """A certificate for these IP addresses, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address)) for address in addresses])
        certificate = _builder(name, self.name, key).add_extension(names, critical=False).sign(self.key, hashes.SHA256())
        certificate_path, key_path = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(pem_of(key, serialization.NoEncryption()))
        return certificate_path, key_path


def _builder(name: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def pem_of(key: ec.EllipticCurvePrivateKey, encryption: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
