"""TLS to the server: either encrypted, and to a server that proves its identity, or not connected at all."""

from __future__ import annotations

import ssl

from headrace.errors import DefinitionError, SinkUnreachableError
from headrace.sinks.mysql.settings import MySqlSettings

_NOT_OFFERED = 2026
# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_OTHER_HOST = frozenset({62, 64})


def context(settings: MySqlSettings) -> ssl.SSLContext:
    """The SSL context for a connection with ``ssl_ca``. Raises DefinitionError for unusable files.

    The files are read for each connection, so that renewed ones take effect.
    """
    try:
        made = ssl.create_default_context(cafile=settings.ssl_ca)
    except OSError as error:
        raise _unusable(f"ssl-ca={settings.ssl_ca}", error, "the certificates of CAs") from None
    # Certificates that MySQL generates itself do not pass the strict check that is the default since Python 3.13.
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    made.check_hostname = settings.verify_identity
    if settings.ssl_cert:
        try:
            # Without a password argument, OpenSSL would prompt for one on the terminal.
            made.load_cert_chain(settings.ssl_cert, settings.ssl_key or None, password="")
        except OSError as error:
            names = f"ssl-cert={settings.ssl_cert}" + (f" with ssl-key={settings.ssl_key}" if settings.ssl_key else "")
            raise _unusable(names, error, "a certificate and its key, unencrypted,") from None
    return made


def explained(settings: MySqlSettings, code: int, cause: BaseException | None) -> SinkUnreachableError | None:
    """The meaning of a failed connection, if TLS is the cause. ``code`` is PyMySQL's number, ``cause`` the underlying exception."""
    if code == _NOT_OFFERED:
        return SinkUnreachableError(
            f"{settings.identity} does not offer TLS, which ssl-ca asks for; nothing was sent.",
            "Switch TLS on in the server (ssl_cert, ssl_key), or find out who answers in its place.",
        )
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _untrusted(settings, cause)
    if isinstance(cause, ssl.SSLError):
        return SinkUnreachableError(
            f"The TLS handshake with {settings.identity} failed: {cause.reason or cause}.",
            "Check which versions of TLS the server takes, and ssl-cert and ssl-key.",
        )
    return None


def _untrusted(settings: MySqlSettings, cause: ssl.SSLCertVerificationError) -> SinkUnreachableError:
    if cause.verify_code in _OTHER_HOST:
        return SinkUnreachableError(
            f"{settings.identity} shows a certificate of another host: {cause.verify_message.rstrip('.')}.",
            "Connect by a name that is in the certificate, or check its signature only: ssl-verify=ca.",
        )
    return SinkUnreachableError(
        f"{settings.identity} shows a certificate that cannot be verified with ssl-ca: {cause.verify_message}.",
        f"Check that {settings.ssl_ca} holds the certificate of the CA that signed the server's, and that neither has expired.",
    )


def _unusable(names: str, error: OSError, content: str) -> DefinitionError:
    if isinstance(error, ssl.SSLError):
        return DefinitionError(f"{names} is not {content} in PEM form: {error.reason or 'it holds none'}.")
    return DefinitionError(f"{names} cannot be read: {error.strerror}.", "The file must be there on every machine that runs tasks.")
