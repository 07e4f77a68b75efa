"""Values that nobody reads who has only the database: AES-GCM, with keys that rotate."""

from __future__ import annotations

import binascii
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING

from perdure.codecs.armor import armored, bare
from perdure.errors import ConfigurationError, DecodingFailed, InvalidArgument, UnknownSerialization

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = (16, 24, 32)
"""Lengths of keys that AES knows."""

NONCE_BYTES = 12
"""What GCM is made for. Random ones may repeat after some four billion values of one key: take another before."""

_ID = re.compile(r"[A-Za-z0-9_.-]{1,63}")


class Encryption:
    """Encrypts values with AES-GCM. Needs the extra `perdure[encryption]`.

    `keys`: keys of 16, 24 or 32 bytes, or base64 of these, by an id that is stored with each value. `active`: the id of
    the one that encrypts; all others only decrypt. To rotate, give all processes the new key, then make it the active
    one, and take the old one away when nothing is left that it has encrypted. `name` stands before the stored text and
    must stay.

    A value of a key that this process does not have is `UnknownSerialization`: its run is kept for a worker that has
    it. One that was changed in the database is `DecodingFailed`. What stays readable: how long a value is, names of
    workflows and steps, class, message and code of errors, and everything else that is no value. A value is not bound
    to its row: who can write to the database can put one in the place of another.

    Raises `InvalidArgument`, and `ConfigurationError` without the extra.
    """

    blocking = False
    heavy = True

    def __init__(self, keys: Mapping[str, bytes | str], *, active: str | None = None, name: str = "aes-gcm") -> None:
        if not isinstance(keys, Mapping) or not keys:
            raise InvalidArgument("keys are at least one key by its id")
        if active is None:
            if len(keys) > 1:
                raise InvalidArgument("active says which of several keys encrypts")
            (active,) = keys
        if active not in keys:
            raise InvalidArgument(f"there is no key {active!r} that could be the active one")
        self.name = name
        self._active = active
        self._ciphers = {_checked(key_id): _cipher(key_id, key) for key_id, key in keys.items()}

    def __repr__(self) -> str:
        return f"Encryption(keys {', '.join(self._ciphers)}, active {self._active})"

    @staticmethod
    def new_key() -> str:
        """A random key of 32 bytes, as base64. Keep it where passwords are kept."""
        return b64encode(os.urandom(32)).decode("ascii")

    def encode(self, text: str, /) -> str:
        """The id of the key, and base64 of nonce and ciphertext."""
        nonce = os.urandom(NONCE_BYTES)
        made = nonce + self._ciphers[self._active].encrypt(nonce, text.encode(), self._bound(self._active))
        return f"{self._active}:{armored(made)}"

    def decode(self, text: str, /) -> str:
        """Raises `UnknownSerialization` for a key that is not here, `DecodingFailed` for what was not encrypted so."""
        from cryptography.exceptions import InvalidTag

        key_id, _, rest = text.partition(":")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            if not _ID.fullmatch(key_id):
                raise DecodingFailed("an encrypted value does not begin with the id of a key")
            raise UnknownSerialization(
                f"a value was encrypted with the key {key_id} of {self.name}, which this process does not have; "
                f"it has {', '.join(self._ciphers)}",
                f"{self.name}:{key_id}",
            )
        try:
            made = bare(rest)
            return cipher.decrypt(made[:NONCE_BYTES], made[NONCE_BYTES:], self._bound(key_id)).decode()
        except InvalidTag:
            raise DecodingFailed(
                f"a value that names the key {key_id} was not encrypted with it, or was changed since"
            ) from None
        except (binascii.Error, ValueError) as error:
            raise DecodingFailed(f"an encrypted value cannot be read: {error}") from error

    def _bound(self, key_id: str) -> bytes:
        """What is authenticated beside the value."""
        return f"perdure {self.name}:{key_id}".encode()


def _checked(key_id: str) -> str:
    if not isinstance(key_id, str) or not _ID.fullmatch(key_id):
        raise InvalidArgument(f"{key_id!r} cannot be the id of a key: 1 to 63 of letters, digits, '_', '.' and '-'")
    return key_id


def _cipher(key_id: str, key: bytes | str) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ConfigurationError(f"perdure.codecs.Encryption needs perdure[encryption]: {error}") from error
    if isinstance(key, str):
        try:
            key = b64decode(key, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidArgument(
                f"the key {key_id} is no base64; perdure.codecs.Encryption.new_key makes one"
            ) from None
    if not isinstance(key, bytes) or len(key) not in KEY_BYTES:
        raise InvalidArgument(f"the key {key_id} must have 16, 24 or 32 bytes")
    return AESGCM(key)
