"""Private temporary folders and files, marked with their owner: the next run removes what a killed process left behind.

The mark is a lock that the system releases when its process ends, however it ends. A process number alone would not do:
numbers are used again. What only some systems have (owners and modes of files, links that are not followed) is used
where it is there.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self

import portalocker

from csdp.errors import InputError

PREFIX = "csdp-scratch-"
_MARK = ".owner"
_HAS_OWNERS = hasattr(os, "geteuid")


class Scratch:
    """A folder of mode 0700 that is removed with its process; making one removes those of processes that are dead.

    Args:
        parent: where to make it; default the system's folder for temporary files.

    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with Scratch(parent) as scratch:
    ...         exists_and_mode = scratch.path.is_dir(), oct(scratch.path.stat().st_mode & 0o777)
    ...     exists_and_mode, list(Path(parent).iterdir())
    ((True, '0o700'), [])
    """

    def __init__(self, parent: str | Path | None = None) -> None:
        where = Path(tempfile.gettempdir() if parent is None else parent).absolute()
        try:
            remove_leftovers(where)
            self.path, mark = _make_marked_folder(where)
        except OSError as error:
            raise InputError(f"folder: {where} cannot be written ({error.strerror}); give another one") from None
        # Also if nobody closes it: readings must not stay on a disk.
        self._remove = weakref.finalize(self, _remove_own, self.path, mark, os.getpid())

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def forbid_core_dumps() -> None:
    """Leave no copy of this process's memory on disk when it crashes, nor of processes that it starts.

    Memory holds raw readings. The limit cannot be raised again. Does nothing if the system has no such limit.
    """
    try:
        import resource
    except ImportError:  # not on this system
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def open_bytes(path: str | Path, flags: int, *, mode: int = 0o600, follow: bool = False) -> int:
    """Open a file for its bytes as they are: Windows would translate newlines. A link is followed only if asked.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     handle = open_bytes(Path(folder) / "key", os.O_WRONLY | os.O_CREAT)
    ...     os.write(handle, b"a\\n"), os.close(handle), (Path(folder) / "key").read_bytes()
    (2, None, b'a\\n')
    """
    nofollow: int = 0 if follow else getattr(os, "O_NOFOLLOW", 0)
    binary: int = getattr(os, "O_BINARY", 0)
    return os.open(path, flags | nofollow | binary, mode)


def is_open_to_others(path: Path) -> bool:
    """Whether others than its owner may read a file, by its mode; False where files have none."""
    return _HAS_OWNERS and bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def lock_and_wait(handle: int) -> None:
    """Take the lock of an open file, waiting for whoever holds it; it is released with the file."""
    portalocker.lock(handle, portalocker.LockFlags.EXCLUSIVE)


def remove_leftovers(parent: Path) -> None:
    """Remove the scratch folders of this user whose processes are dead; those of live ones stay."""
    with os.scandir(parent) as entries:
        folders = [Path(entry.path) for entry in entries if entry.name.startswith(PREFIX)]
    for folder in folders:
        with suppress(OSError):
            _remove_abandoned(folder)


def _make_marked_folder(parent: Path) -> tuple[Path, int]:
    """A new folder and its mark. Whoever cleans up may come between making and marking; then it is made again."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))  # mode 0700
        try:
            mark = open_bytes(folder / _MARK, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except FileNotFoundError:
            continue
        if _try_lock(mark) and os.fstat(mark).st_nlink:
            os.write(mark, f"{os.getpid()}\n".encode())
            return folder, mark
        os.close(mark)


def _try_lock(handle: int) -> bool:
    """Whether the lock of an open file could be taken: nobody alive holds it."""
    try:
        portalocker.lock(handle, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        return False
    return True


def _remove_abandoned(folder: Path) -> None:
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or (_HAS_OWNERS and about.st_uid != os.geteuid()):
        return
    try:
        mark = open_bytes(folder / _MARK, os.O_RDWR)
    except FileNotFoundError:
        folder.rmdir()  # of a process that died before it could mark it; one that holds anything is left alone
        return
    try:
        if _try_lock(mark):
            _empty(folder)
    finally:
        os.close(mark)


def _empty(folder: Path) -> None:
    """Remove a folder, its mark last: a removal that is cut off is finished by the next one."""
    for entry in list(os.scandir(folder)):
        if entry.name != _MARK:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with suppress(OSError):
                    os.unlink(entry.path)
    with suppress(OSError):
        os.unlink(folder / _MARK)
        folder.rmdir()


def _remove_own(folder: Path, mark: int, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked process ends before the one that the folder belongs to
    with suppress(FileNotFoundError):
        _empty(folder)
    os.close(mark)


def write_privately(path: Path, content: bytes) -> None:
    """Replace a file by one of mode 0600 in one step; an error leaves the old file. Durable when this returns.

    One process writes a file at a time. What a killed one left beside it may hold readings, and is removed.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "keys.json"
    ...     write_privately(file, b"{}")
    ...     file.read_bytes(), oct(file.stat().st_mode & 0o777), len(list(file.parent.iterdir()))
    (b'{}', '0o600', 1)
    """
    for entry in path.parent.iterdir():
        if re.fullmatch(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.new", entry.name):
            entry.unlink(missing_ok=True)
    part = path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")
    try:
        with os.fdopen(open_bytes(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make a new name in a directory survive a power cut, where a directory can be opened."""
    if not _HAS_OWNERS:
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- files that commands write -------------------------------------------------------------------------------------


def ensure_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before any privacy budget is spent on its content."""
    if path.is_dir():
        raise InputError(f"{path}: a folder given; the name of a file expected")
    try:
        with _temporary_path(path).open("xb"):
            pass
        _temporary_path(path).unlink()
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); nothing was released") from None


@contextmanager
def replace_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a file and replace the old one when it is complete; an error leaves the old file as it was."""
    part = _temporary_path(path)
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _temporary_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")
