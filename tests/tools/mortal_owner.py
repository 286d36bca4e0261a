"""An owner that can be killed at a named step of answering, and started again quickly.

Reads lines "PORT STEP NUMBER" and for each starts one life of the owner of OWNER.toml: a forked
process that serves on the port and kills itself with SIGKILL at the step of its NUMBER-th
answer ("-" for no step). Prints "PORT PID" when it serves and "dead" when it is.

Usage: mortal_owner.py OWNER.toml
"""

import os
import signal
import sys
import threading
from pathlib import Path

from owner.answering import DataOwner
from owner.calls import Calls
from owner.ledger import Ledger
from owner.ledger_charges import Charges
from owner.ledger_given import GivenLog
from owner.ledger_held import HeldLedger
from owner.server import start_owner


def arm(step, number):  # noqa: C901
    """Wrap one step of answering, in this process only; the product has no such hooks."""
    calls = iter(range(1, 10**9))

    def reached():
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    charge, answer, send = Ledger.charge, DataOwner.answer_at_once, Calls._send
    committing = {Charges._charge_next.__code__, Charges._charge_block.__code__}
    keep, give, sync = HeldLedger.keep, GivenLog.give, os.fdatasync
    statement = {"in_transaction": "UPDATE accounts", "at_commit": "COMMIT"}.get(step, "")

    def traced(sql):
        if sql.startswith(statement):
            reached()

    def killing_charge(self, **values):
        if step == "before_charge":
            reached()
        if statement:
            self._held.db.set_trace_callback(traced)
        charge(self, **values)
        self._held.db.set_trace_callback(None)

    def killing_keep(self, *books):
        # The last thing of a transaction: it is committed, its caller does not know yet.
        if sys._getframe(1).f_code in committing:
            reached()
        keep(self, *books)

    def killing_give(self, *values):
        if step == "before_note":
            reached()
        give(self, *values)
        if step == "after_note":
            reached()

    def killing_sync(handle):
        reached()
        sync(handle)

    def killing_answer(self, *arguments, **values):
        response = answer(self, *arguments, **values)
        # None: it waits for noise, and is asked again.
        if response is not None:
            reached()
        return response

    answered = []

    def noted_answer(self, *arguments, **values):
        response = answer(self, *arguments, **values)
        if response is not None:
            answered.append(response)
        return response

    async def killing_send(self, context, reply):
        await send(self, context, reply)
        if answered:
            answered.clear()
            reached()

    if step in {"before_charge", "in_transaction", "at_commit"}:
        Ledger.charge = killing_charge
    elif step == "after_commit":
        HeldLedger.keep = killing_keep
    elif step in {"before_note", "after_note"}:
        GivenLog.give = killing_give
    elif step == "in_note":
        os.fdatasync = killing_sync
    elif step == "before_send":
        DataOwner.answer_at_once = killing_answer
    elif step == "after_send":
        DataOwner.answer_at_once = noted_answer
        Calls._send = killing_send


def live(settings, port, step, number):
    """One life, which ends by SIGKILL, or when whoever began it is gone."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    arm(step, number)
    running = start_owner(settings, listen=f"127.0.0.1:{port}", insecure_noise_seed=None)
    print(running.port, os.getpid(), flush=True)
    threading.Event().wait()


def _end_with_input():
    """Nothing is written while a life lasts, so the input ends with whoever writes it."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def main():
    settings = Path(sys.argv[1])
    for line in sys.stdin:
        port, step, number = line.split()
        child = os.fork()
        if child == 0:
            try:
                live(settings, int(port), step, int(number))
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        print("dead", flush=True)


if __name__ == "__main__":
    main()
