"""Everything that csdp raises on purpose.

Errors say what was given, what is allowed, and what to do; they carry their figures as data, and never a
private reading::

    CsdpError
    ├── InputError (also a ValueError)     something given is not valid
    │   ├── AlteredPlanError               a plan holds another chain than it was written for
    │   └── UncheckedModelError            the data reject the model, or did not test it
    ├── NoStationaryLawError               several stationary laws, or none that can be checked
    ├── TooLargeError                      the work would pass a stated size limit
    ├── InfeasibleError                    no plan meets the target
    ├── NotUsefulError                     a release would hardly improve on guessing the usual value
    ├── BudgetExceeded                     a release would pass a limit of its dataset
    ├── BrokerError                        the broker of a stream refuses the connection (csdp.stream)
    └── LedgerError                        the ledger cannot be used
        ├── LedgerBusyError                locked, full or out of reach; nothing was written
        ├── LedgerCorruptError             damaged, truncated or not a ledger at all
        ├── LedgerVersionError             written by another version of the format
        ├── LedgerConflictError            a request contradicts what the ledger records
        │   └── LedgerTermsError           the dataset is published under other terms by now
        └── LedgerHeldError                another process publishes the dataset

    CsdpWarning (a UserWarning)
    ├── PrivacyLeakWarning                 something private is about to shape something public
    └── UnsafeRandomnessWarning            noise drawn from a seed gives no protection
"""

from __future__ import annotations

from typing import Any


class CsdpError(Exception):
    """Root of everything csdp raises on purpose."""


class InputError(CsdpError, ValueError):
    """Something given is not valid; the message says what is allowed."""


class AlteredPlanError(InputError):
    """A plan holds another chain than the one that it was written for."""


class UncheckedModelError(InputError):
    """The data reject the model of a plan, or did not test it, and publishing under it was not confirmed."""


class NoStationaryLawError(CsdpError):
    """The chain has several stationary laws, so the prior must be given."""


class TooLargeError(CsdpError):
    """The work would pass a size limit; `needed` and `limit` carry the figures."""

    def __init__(self, message: str, *, needed: float, limit: float) -> None:
        super().__init__(message)
        self.needed = needed
        self.limit = limit


class InfeasibleError(CsdpError):
    """No plan meets the target.

    `nearest` is the closest that one can, `no_data` the squared error of publishing nothing.
    """

    def __init__(self, message: str, *, nearest: float, no_data: float) -> None:
        super().__init__(message)
        self.nearest = nearest
        self.no_data = no_data


class NotUsefulError(CsdpError):
    """A release would remove less than 5 % of the squared error of guessing the usual value; nothing was charged.

    Attributes: `usefulness`, the share that it would remove; `helps`, what would help, in words.
    """

    def __init__(self, message: str, *, usefulness: float, helps: tuple[str, ...]) -> None:
        super().__init__(message)
        self.usefulness = usefulness
        self.helps = helps


class BudgetExceeded(CsdpError):  # noqa: N818 - the name is part of the public interface
    """A release would pass a limit of its dataset; refused before any data was touched.

    Attributes: `limit_name` ("budget", "moment_limit", "event_limit" or "window_limit"), `spent`, `requested` (the
    value after the release), `remaining`, `fits` (what would be affordable, in words and numbers), `affordable_from`
    (the first tick at which the same release could be afforded, or None).
    """

    def __init__(
        self,
        message: str,
        *,
        limit_name: str,
        spent: float,
        requested: float,
        remaining: float,
        fits: dict[str, Any] | None = None,
        affordable_from: int | None = None,
    ) -> None:
        super().__init__(message)
        self.limit_name = limit_name
        self.spent = spent
        self.requested = requested
        self.remaining = remaining
        self.fits = fits or {}
        self.affordable_from = affordable_from


class LedgerError(CsdpError):
    """The ledger cannot be used."""


class LedgerBusyError(LedgerError):
    """The ledger is locked, full or out of reach; nothing was written."""


class LedgerCorruptError(LedgerError):
    """The file is damaged, truncated or not a ledger at all; nothing was written."""


class LedgerVersionError(LedgerError):
    """The ledger was written by another version of the format."""


class LedgerConflictError(LedgerError):
    """A request contradicts what the ledger records."""


class LedgerTermsError(LedgerConflictError):
    """The dataset is published under another plan or grid by now; nothing was charged. Open a new publisher."""


class LedgerHeldError(LedgerError):
    """Another process publishes the dataset, or this one has lost the right to publish it."""


class CsdpWarning(UserWarning):
    """Root of the warnings csdp gives."""


class PrivacyLeakWarning(CsdpWarning):
    """Something private is about to shape something public."""


class UnsafeRandomnessWarning(CsdpWarning):
    """Noise drawn from a seed gives no protection; for tests only."""
