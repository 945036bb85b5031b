"""A TLS peer on OpenSSL itself, for what Python's `ssl` does not do: KeyUpdates, renegotiation."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import socket
from pathlib import Path

from tests.crash.hostile import dial
from tests.tools import require

KEY_UPDATE_NOT_REQUESTED, KEY_UPDATE_REQUESTED = 0, 1  # SSL_KEY_UPDATE_…
TLS_1_2 = 0x0303
SET_MIN_VERSION, SET_MAX_VERSION = 123, 124  # SSL_CTRL_SET_…_PROTO_VERSION
RECEIVED_BYTES = 4 << 10  # what the kernel takes of what the peer does not read
WAIT_S = 60.0


@functools.cache
def load_openssl() -> ctypes.CDLL:
    """Return libssl, which the test needs."""
    name = ctypes.util.find_library("ssl")
    require("libssl", found=name)
    library = ctypes.CDLL(name)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    for function, result, arguments in (
        ("TLS_client_method", pointer, []),
        ("SSL_CTX_new", pointer, [pointer]),
        ("SSL_CTX_free", None, [pointer]),
        ("SSL_CTX_ctrl", ctypes.c_long, [pointer, number, ctypes.c_long, pointer]),
        ("SSL_CTX_load_verify_locations", number, [pointer, ctypes.c_char_p, ctypes.c_char_p]),
        ("SSL_new", pointer, [pointer]),
        ("SSL_free", None, [pointer]),
        ("SSL_set_fd", number, [pointer, number]),
        ("SSL_connect", number, [pointer]),
        ("SSL_key_update", number, [pointer, number]),
        ("SSL_renegotiate", number, [pointer]),
        ("SSL_do_handshake", number, [pointer]),
        ("SSL_write", number, [pointer, ctypes.c_char_p, number]),
        ("SSL_set0_wbio", None, [pointer, pointer]),
        ("BIO_s_mem", pointer, []),
        ("BIO_new", pointer, [pointer]),
        ("BIO_read", number, [pointer, ctypes.c_char_p, number]),
    ):
        found = getattr(library, function)
        found.restype, found.argtypes = result, arguments
    return library


class OpenSslPeer:
    """A connection whose handshake is complete, and which then reads nothing.

    `send_data`, `update_keys` and `renegotiate` add records, which `flush` sends.
    """

    def __init__(self, address: str, authority: Path, version: int = 0) -> None:
        self._library = library = load_openssl()
        self.socket = dial(address)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
        self.socket.settimeout(None)  # OpenSSL blocks on it
        self._context = library.SSL_CTX_new(library.TLS_client_method())
        for option in (SET_MIN_VERSION, SET_MAX_VERSION) if version else ():
            library.SSL_CTX_ctrl(self._context, option, version, None)
        assert library.SSL_CTX_load_verify_locations(self._context, bytes(authority), None) == 1
        self._tls = library.SSL_new(self._context)
        assert library.SSL_set_fd(self._tls, self.socket.fileno()) == 1
        assert library.SSL_connect(self._tls) == 1
        self._records = library.BIO_new(library.BIO_s_mem())
        library.SSL_set0_wbio(self._tls, self._records)
        self.socket.settimeout(WAIT_S)

    def send_data(self, content: bytes) -> None:
        """Add one record of data."""
        assert self._library.SSL_write(self._tls, content, len(content)) == len(content)

    def update_keys(self, kind: int = KEY_UPDATE_REQUESTED) -> None:
        """Add a KeyUpdate (TLS 1.3)."""
        assert self._library.SSL_key_update(self._tls, kind) == 1
        assert self._library.SSL_do_handshake(self._tls) == 1

    def renegotiate(self) -> None:
        """Add the ClientHello of another handshake (TLS 1.2)."""
        assert self._library.SSL_renegotiate(self._tls) == 1
        self._library.SSL_do_handshake(self._tls)

    def flush(self) -> None:
        """Send all records; OSError: the server closed the connection, or does not read."""
        piece = ctypes.create_string_buffer(1 << 16)
        while (count := self._library.BIO_read(self._records, piece, len(piece))) > 0:
            self.socket.sendall(piece.raw[:count])

    def close(self) -> None:
        """Close the socket, without an alert."""
        self.socket.close()
        self._library.SSL_free(self._tls)
        self._library.SSL_CTX_free(self._context)
