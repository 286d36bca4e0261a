"""Calls that a Dask cluster computes, each whatever becomes of the others and of the cluster."""

from __future__ import annotations

import logging
import queue
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from common.errors import InputError
from common.extras import needing_extras
from common.texts import named, printable

# To reach a scheduler, and once more for what it says first; also for its first worker.
CONNECT_SECONDS = 10
LONGEST_REASON = 200
# How often it is looked whether a worker is left.
LOOK_SECONDS = 10
ENDED = (
    "each worker of the cluster that computed it ended, as where memory runs out; look into their "
    "logs, and give them more memory"
)
# They print tracebacks of what is told of here in a sentence.
LOUD = ("distributed", "distributed.client", "tornado", "tornado.application")

log = logging.getLogger("copriv.learner")


@dataclass(frozen=True)
class LostCall:
    """A call whose worker ended, raised, or returned what cannot be read here."""

    reason: str


def computed_on(
    address: str, work: Callable[..., Any], calls: Mapping[str, tuple[Any, ...]]
) -> Iterator[tuple[str, Any]]:
    """What calls come to on a cluster, in the order in which they end.

    Each is asked for by itself, so that one that is lost, or a cluster that goes away, loses
    nothing of the others.

    Args:
      address: Of a Dask scheduler.
      work: A function of a module that the workers have, too.
      calls: The arguments of each call by its name; arrays that several share are sent once.

    Yields:
      A call's name and what a worker says that it returned, or a :class:`LostCall`.

    Raises:
      InputError: No scheduler answers there, it has no worker or one without that module, or it
        went away.
    """
    with _client(address) as client, _watched(client, address), warnings.catch_warnings():
        _refuse_bare_workers(client, work.__module__, address)
        from distributed import as_completed  # noqa: PLC0415 (an extra of its own)

        # It finds arrays large, and would have them sent in a way that loses them with a worker.
        warnings.filterwarnings("ignore", "Sending large graph")
        send = _sending(client)
        names = {
            client.submit(work, *map(send, arguments), pure=False): name
            for name, arguments in calls.items()
        }
        for future in as_completed(names):  # type: ignore[no-untyped-call]
            yield names[future], _outcome(future, address)


def _refuse_bare_workers(client: Any, module: str, address: str) -> None:
    """Refuse workers that lack a module.

    Each would end at its first call, and without any the cluster waits for ever.

    Raises:
      InputError: There are some.
    """
    found = client.run(find_spec, module, on_error="return")
    bare = [each for each, said in found.items() if said is None or isinstance(said, ImportError)]
    if bare:
        raise InputError(
            f"--cluster {address}: workers without copriv ({named(bare)}); install it there, in "
            "the version that is here, or stop them"
        )


def _sending(client: Any) -> Callable[[Any], Any]:
    """What sends an argument: an array once, anything else with each call."""
    sent: dict[int, Any] = {}

    def send(argument: Any) -> Any:
        if not isinstance(argument, np.ndarray):
            return argument
        if id(argument) not in sent:
            # A call of its own: where a worker ends that holds it, another one gets it again.
            sent[id(argument)] = client.submit(_itself, argument, pure=False)
        return sent[id(argument)]

    return send


def _itself(argument: Any) -> Any:
    return argument


def _outcome(future: Any, address: str) -> Any:
    """What a call that ended came to.

    Raises:
      InputError: It was lost with the scheduler.
    """
    if future.status == "cancelled":
        raise InputError(
            f"--cluster {address}: the Dask scheduler went away; see that it and its workers "
            "run, and type the command again"
        )
    try:
        return future.result()
    except Exception as error:  # whatever was raised there, or while it was read here
        kind = type(error).__name__
        if kind == "KilledWorker":
            return LostCall(ENDED)
        return LostCall(f"{kind}: {printable(error, LONGEST_REASON)}")


@contextmanager
def _client(address: str) -> Iterator[Any]:
    """A line to the scheduler at an address, which has a worker."""
    with needing_extras("--cluster"):
        from distributed import Client  # noqa: PLC0415 (an extra of its own)
    opened: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def open_client() -> None:
        try:
            opened.put(Client(address, timeout=f"{CONNECT_SECONDS}s"))  # type: ignore[no-untyped-call]
        except Exception as error:  # the library raises whatever it makes of what comes from there
            opened.put(error)

    # It waits for ever for one that connects and says nothing.
    threading.Thread(target=open_client, name="cluster", daemon=True).start()
    try:
        client = opened.get(timeout=2 * CONNECT_SECONDS)
    except queue.Empty:
        client = TimeoutError("it says nothing")
    if isinstance(client, Exception):
        said = next(iter(str(client).splitlines()), "") or type(client).__name__
        reason = printable(said, LONGEST_REASON)
        raise InputError(
            f"--cluster {address}: no Dask scheduler answers there ({reason}); "
            "give its address, such as tcp://HOST:8786"
        )
    with _quiet(), client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError:
            raise InputError(
                f"--cluster {address}: the Dask scheduler there has no worker; start one, such as "
                f"with dask worker {address}"
            ) from None
        yield client


@contextmanager
def _watched(client: Any, address: str) -> Iterator[None]:
    """The log says when the last worker has gone: a cluster waits for another one for ever."""
    over = threading.Event()

    def watch() -> None:
        had = True
        while not over.wait(LOOK_SECONDS):
            # Where the scheduler has gone as well, calls say so.
            with suppress(Exception):
                has = bool(client.scheduler_info()["workers"])
                if had and not has:
                    log.warning(
                        "--cluster %s: no worker is left; waiting for one, which dask worker %s "
                        "starts",
                        address,
                        address,
                    )
                had = has

    threading.Thread(target=watch, name="cluster-workers", daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def _quiet() -> Iterator[None]:
    """The library's own log says nothing meanwhile."""
    levels = {name: logging.getLogger(name).level for name in LOUD}
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
