"""A process that works out long questions, one after the other. Whoever started it may end it at any moment.

It reads frames from standard input, each a question, and writes one frame with the answer for each. It ends when its
input does, so that it does not outlive the service, however that ends.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
import traceback
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from csdp.errors import InputError, TooLargeError
from csdp.plan import Plan
from csdp.service.whatif import WhatIf

#: Bytes that say how long a frame is.
HEAD = 8
#: How much this process steps back for those that publish.
_NICE = 10


def frame(content: bytes) -> bytes:
    """Content with its length before it."""
    return len(content).to_bytes(HEAD, "big") + content


def _listen(source: BinaryIO, questions: SimpleQueue[bytes]) -> None:
    """Hand over the frames that come; at the end of them the process ends, in the middle of its work too."""
    while len(head := source.read(HEAD)) == HEAD:
        questions.put(source.read(int.from_bytes(head, "big")))
    os._exit(0)


def _solve(known: dict[str, WhatIf], content: bytes) -> dict[str, Any]:
    """The answer, or the rule that the question broke."""
    try:
        dataset, plan, question = pickle.loads(content)  # from the process that started this one
        if plan is not None:
            assert isinstance(plan, Plan)
            known[dataset] = WhatIf(plan)
        return {"answer": known[dataset].solve(question)}
    except TooLargeError as error:
        return {"problem": "too-large", "detail": str(error)}
    except InputError as error:
        return {"problem": "invalid", "detail": str(error)}
    except Exception as error:  # the place alone: a message might quote anything
        last = traceback.extract_tb(error.__traceback__)[-1]
        return {"problem": "failed", "detail": f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"}


def main() -> None:
    """Answer until nobody asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which then ends this process
    os.nice(_NICE)
    source, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not end up among the answers
    questions: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(source, questions), daemon=True).start()
    known: dict[str, WhatIf] = {}
    while True:
        answers.write(frame(json.dumps(_solve(known, questions.get())).encode()))
        answers.flush()


if __name__ == "__main__":
    main()
