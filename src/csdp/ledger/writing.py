"""The steps that append to a log: each decides on the tail that it is given, and the caller writes what it gathers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from csdp.errors import (
    BudgetExceeded,
    InputError,
    LedgerBusyError,
    LedgerConflictError,
    LedgerCorruptError,
    LedgerTermsError,
)
from csdp.ledger.lease import Fence
from csdp.ledger.log import EntryIndex, Log, Tail, now
from csdp.ledger.outputs import INLINE_VALUES, Outputs
from csdp.ledger.records import (
    GENESIS,
    Admit,
    AdmitChange,
    Charge,
    DatasetState,
    Entry,
    JSONObject,
    Published,
    RecordedDataset,
    Refused,
    Request,
    Reserved,
    Terms,
    decode,
    encode,
    terms_digest,
)
from csdp.ledger.schema import (
    datasets,
    plans,
)

#: What a refusal records, besides its words and the name of the limit.
_FIGURES = ("spent", "requested", "remaining", "fits", "affordable_from")


def open_dataset(connection: sa.Connection, name: str, terms: Terms) -> None:
    """Record a dataset that is not there yet, in the transaction of the caller."""
    head = {"plan_number": 1, "head_seq": 0, "head_hash": GENESIS, "state_seq": None}
    connection.execute(sa.insert(datasets), {"name": name, "created": now(), **head})
    _insert_terms(connection, name, terms)
    log = Log(name, Tail(0, GENESIS, terms, None), connection)
    log.append("open", encode({"number": 1, "terms": terms_digest(terms.to_record())}, "the terms"))
    save(connection, log)


def normalise_terms(terms: Terms) -> Terms:
    """The terms as they come back from disk, where a tuple is a list; or an error where they cannot be recorded."""
    try:
        json.loads(terms.plan_json)
    except (TypeError, ValueError):
        raise InputError("plan_json must be the plan as JSON text") from None
    if not (terms.plan_digest and terms.chain_digest):
        raise InputError("plan_digest and chain_digest must not be empty")
    return Terms.from_record(decode(encode(terms.to_record(), "limits, guarantee and fit cost")))


def check_same_terms(dataset: RecordedDataset, asked: Terms) -> None:
    """Refuse other terms than those that are recorded."""
    live = dataset.terms
    # Not the guarantee: it follows from the plan, and its wording may differ between versions.
    differences = [
        f"{what} (recorded {old!r}, given {new!r})"
        for what, old, new in (
            ("chain", live.chain_digest[:12], asked.chain_digest[:12]),
            ("plan", live.plan_digest[:12], asked.plan_digest[:12]),
            ("limits", live.recorded_limits(), asked.recorded_limits()),
            ("fit cost", live.fit_cost, asked.fit_cost),
        )
        if old != new
    ]
    if differences:
        raise LedgerConflictError(
            f"dataset {dataset.name!r} is published under other terms: {'; '.join(differences)}. Use the recorded"
            " ones, a new dataset name for other data, or Ledger.change_plan, which records the change"
        )


def change_terms(connection: sa.Connection, log: Log, terms: Terms, admit: AdmitChange) -> None:
    """Record new terms from `terms.from_tick` on, with the state that the rule `admit` carries over."""
    name = log.name
    if terms == replace(log.terms, number=terms.number):
        return  # the same change, asked again after its outcome was unknown
    assert terms.from_tick is not None
    state, last_tick, _ = log.last()
    if last_tick is not None and terms.from_tick <= last_tick:
        raise LedgerConflictError(
            f"dataset {name!r} is charged up to tick {last_tick}; a change can only hold from a later tick"
            f" on, not from {terms.from_tick}"
        )
    granted = admit(state, last_tick, log.terms)
    log.change(replace(terms, number=log.terms.number + 1))
    _insert_terms(connection, name, log.terms)
    number, digest = log.terms.number, terms_digest(log.terms.to_record())
    payload = {"number": number, "terms": digest, **granted.to_record()}
    log.append("change", encode(payload, "the state and charge of a change"), tick=terms.from_tick)


def reserve(
    log: Log,
    requests: Sequence[Request],
    admit: Admit,
    *,
    plan_digest: str,
    stop: bool,
    outputs: Outputs,
    durable: bool,
) -> list[Reserved | Published | Refused]:
    """Decide on each request in order."""
    name = log.name
    if plan_digest != log.terms.plan_digest:
        raise LedgerTermsError(
            f"dataset {name!r} is published under plan {log.terms.plan_digest[:12]}, not {plan_digest[:12]};"
            " use the recorded plan, or change it explicitly with change_plan"
        )
    state, last_tick, first = log.last()
    # Nothing is charged after the newest charged tick, so only older requests need a look.
    old = [request.tick for request in requests if last_tick is not None and request.tick <= last_tick]
    known = log.look_up("once", old) | log.look_up("refused", old) if old else {}
    answers: list[Reserved | Published | Refused] = []
    for request in requests:
        tick, query = request.tick, request.query
        committed = known.get(("commit", tick, query))
        if committed is not None:
            # Inside the transaction: a damaged output file must not leave the rest of the batch charged.
            answers.append(outputs.to_published(committed))
            continue
        refusal = _recorded_refusal(name, request, known, first)
        if refusal is not None:
            answers.append(refusal)
            continue
        try:
            granted = admit(state, last_tick, replace(request, terms=log.terms))
        except BudgetExceeded as error:
            answers.append(_refuse(log, request, error))
            if stop:
                break
            continue
        payload = encode(granted.to_record(), "the state and charge of a release")
        entry = log.append("reserve", payload, tick=tick, query=query)
        known["reserve", tick, query] = entry
        # From the text, as a process that resumes reads it, so that both go on alike.
        content = decode(payload)
        state, last_tick, first = DatasetState.from_record(content["state"]), tick, tick
        charge = Charge.from_record(content["charge"])
        answers.append(Reserved(name, tick, query, entry.seq, entry.hash, state, charge, durable))
    return answers


def commit(log: Log, pairs: Sequence[tuple[Reserved, JSONObject]], outputs: Outputs) -> list[Entry]:
    """Record outputs of reservations; the same output again changes nothing, another one is refused."""
    name = log.name
    known = log.find_reserved([reserved for reserved, _ in pairs])
    written = []
    for reserved, output in pairs:
        tick, query = reserved.tick, reserved.query
        holds = known.get(("reserve", tick, query))
        if holds is None and not reserved.durable:
            raise LedgerBusyError(
                f"the database of dataset {name!r} has failed and lost the charge of tick {tick}, which was to reach"
                " the disk together with its output; nothing was published; try again"
            )
        if holds is None or holds.hash != reserved.hash:
            raise LedgerConflictError(
                f"dataset {name!r} has no such reservation of {query!r} at tick {tick}; reserve first"
            )
        prepared, content = outputs.prepare(holds.hash, output)
        payload = encode({"reserve": holds.seq, **prepared}, "an output")
        entry = known.get(("commit", tick, query))
        if entry is None:
            if content is not None:
                if not reserved.durable:
                    raise InputError(
                        f"an output of more than {INLINE_VALUES:,} values goes to a file, which may not be on disk"
                        " before its charge; its reservation must be durable"
                    )
                outputs.write(prepared, content)
            entry = log.append("commit", payload, tick=tick, query=query, plan=holds.plan)
            known["commit", tick, query] = entry
        elif entry.payload != payload:
            raise LedgerConflictError(
                f"dataset {name!r} has already published another output of {query!r} at tick {tick};"
                " publish the recorded one"
            )
        written.append(entry)
    return written


def save(connection: sa.Connection, log: Log, fence: Fence | None = None) -> None:
    """Write what was appended, in a transaction that has locked the dataset."""
    append = log.gather(fence)
    if append is not None and not append.run(connection):
        raise LedgerCorruptError(f"the head of dataset {log.name!r} has moved while it was locked; verify the ledger")


def _insert_terms(connection: sa.Connection, name: str, terms: Terms) -> None:
    row = {
        "dataset": name,
        "number": terms.number,
        "digest": terms.plan_digest,
        "plan": terms.plan_json,
        "chain": terms.chain_digest,
        "limits": encode(terms.recorded_limits(), "limits"),
        "guarantee": encode(terms.guarantee, "a guarantee"),
        "fit_cost": None if terms.fit_cost is None else encode(terms.fit_cost, "a fit cost"),
        "from_tick": terms.from_tick,
        "rule": terms.rule,
    }
    connection.execute(sa.insert(plans), row)


def _recorded_refusal(name: str, request: Request, known: EntryIndex, first: int | None) -> Refused | None:
    tick, query = request.tick, request.query
    held = known.get(("reserve", tick, query))
    if held is not None:
        reason = (
            f"tick {tick} of {query!r} is reserved but not committed: another process is publishing it, or"
            " was stopped before it could; it stays charged and cannot be reserved again"
        )
        return Refused(name, tick, query, "lost", reason, since=held.time)
    if first is None or tick >= first:
        return None
    earlier = known.get(("refuse", tick, query))
    if earlier is not None:  # a repeated run tells the same story as the first
        payload = earlier.data()
        figures = {figure: payload[figure] for figure in _FIGURES}
        error = BudgetExceeded(payload["reason"], limit_name=payload["limit"], **figures)
        return Refused(name, tick, query, "limit", str(error), error)
    reason = f"out of order: tick {tick} is older than {first}, the newest charged or the first of the live plan"
    return Refused(name, tick, query, "order", reason)


def _refuse(log: Log, request: Request, error: BudgetExceeded) -> Refused:
    tick, query = request.tick, request.query
    figures = {figure: getattr(error, figure) for figure in _FIGURES}
    payload = encode({"reason": str(error), "limit": error.limit_name, **figures}, "the figures of a refusal")
    earlier = log.look_up("refused", [tick]).get(("refuse", tick, query))
    if earlier is None or earlier.payload != payload:  # asking in a loop must not fill the disk
        log.append("refuse", payload, tick=tick, query=query)
    return Refused(log.name, tick, query, "limit", str(error), error)
