"""API keys: 256 random bits each, stored as a hash, with a role and the datasets that they are for."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, get_args

from pydantic import TypeAdapter

from csdp import check
from csdp.errors import InputError
from csdp.files import is_open_to_others, lock_and_wait, open_bytes, write_privately

Role = Literal["writer", "reader", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
#: In the place of a dataset's name: all datasets, also those that are added later.
ALL: Final = "*"
VERSION: Final = "csdp/keys/1"
_FORM = re.compile(r"csdp_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
#: Compared with if no key has the id, so that the comparison takes the same time.
_NO_DIGEST = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Key:
    """One key as it is stored: `id` is public, `digest` is the SHA-256 of its secret.

    A secret of 256 random bits cannot be guessed, so a fast hash protects it as well as a slow one would.
    """

    id: str
    role: Role
    datasets: tuple[str, ...]
    label: str
    created: str
    digest: str

    def covers(self, dataset: str) -> bool:
        """Whether the key is for a dataset."""
        return ALL in self.datasets or dataset in self.datasets

    @property
    def is_for_all(self) -> bool:
        """Whether the key is for all datasets."""
        return ALL in self.datasets

    def __repr__(self) -> str:
        return f"Key({self.id}, {self.role})"


def new_key(role: str, datasets: Sequence[str], *, label: str = "") -> tuple[Key, str]:
    """A new key and its secret text, which is shown once and stored nowhere.

    >>> key, text = new_key("reader", ["ward-7"])
    >>> key.covers("ward-7"), key.covers("ward-8"), matches(key, text), matches(key, text[:-1] + "~")
    (True, False, True, False)
    """
    names = tuple(check.text("datasets", name) for name in dict.fromkeys(datasets))
    if not names:
        raise InputError(f"datasets: none given; give at least one name, or {ALL!r} for all")
    secret = secrets.token_urlsafe(32)
    key = Key(
        id=secrets.token_hex(6),
        role=check.choice("role", role, ROLES),
        datasets=names,
        label=label and check.text("label", label, most=100),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        digest=hashlib.sha256(secret.encode()).hexdigest(),
    )
    return key, f"csdp_{key.id}_{secret}"


def matches(key: Key | None, text: str) -> bool:
    """Whether a text is the secret of a key, in a time that does not depend on how much of it is right."""
    form = _FORM.fullmatch(text)
    digest = hashlib.sha256((form[2] if form else text).encode()).hexdigest()
    same = hmac.compare_digest(digest, _NO_DIGEST if key is None else key.digest)
    return same and key is not None and form is not None and form[1] == key.id


class Keys:
    """The keys of a file (mode 0600). The file is read again when it has changed, and replaced as a whole."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._stamp: tuple[int, int, int] | None = None
        self._keys: dict[str, Key] = {}

    def find(self, text: str) -> Key | None:
        """The key with this secret text, or None."""
        form = _FORM.fullmatch(text)
        key = self._current().get(form[1]) if form else None
        return key if matches(key, text) else None

    def all(self) -> list[Key]:
        """Every key, oldest first."""
        return list(self._current().values())

    def add(self, key: Key) -> None:
        """Add a key."""
        with self._changing() as keys:
            keys[key.id] = key

    def remove(self, key_id: str) -> Key | None:
        """Remove a key and return it; None if there is no such key."""
        with self._changing() as keys:
            return keys.pop(key_id, None)

    def _current(self) -> dict[str, Key]:
        try:
            facts = os.stat(self.path)
        except FileNotFoundError:
            self._stamp = None
            self._keys = {}
            return self._keys
        stamp = (facts.st_mtime_ns, facts.st_ino, facts.st_size)
        if stamp != self._stamp:
            self._keys = _read(self.path)
            self._stamp = stamp
        return self._keys

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Key]]:
        """The keys as the file has them, to be changed; written at the end. One writer at a time, of all processes."""
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path}: its folder does not exist; make it first, or give another file")
        lock = self.path.with_name(f".{self.path.name}.lock")
        handle = open_bytes(lock, os.O_RDWR | os.O_CREAT)
        try:
            lock_and_wait(handle)
            keys = _read(self.path) if self.path.exists() else {}
            yield keys
            content = {"version": VERSION, "keys": [asdict(key) for key in keys.values()]}
            write_privately(self.path, (json.dumps(content, indent=1) + "\n").encode())
        finally:
            os.close(handle)
        self._stamp = None


def _read(path: Path) -> dict[str, Key]:
    if is_open_to_others(path):
        raise InputError(f"{path}: others may read it; the file of keys must have mode 0600 (chmod 600 {path})")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        keys = TypeAdapter(list[Key]).validate_python(content["keys"] if content["version"] == VERSION else None)
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{path}: not a file of keys of version {VERSION}, or a damaged one; `csdp serve key new` begins another"
        ) from None
    return {key.id: key for key in keys}
