"""Flower carries the letters (extra `federated`): a post over its grid, and what answers at a client's node.

Flower's own way to run a client is to install code that the server sends. Here nothing of it is installed or run: a
node is started so that it leaves its messages to another process, and that process takes the letter out of the message
and gives it to the desk. Flower sees letters as bytes; masks, noise and accounts are this library's own.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final

from apportion.errors import ApportionError, InputError
from apportion.transport import letters
from apportion.transport.conditions import Conditions
from apportion.transport.desk import Desk

_LOG: Final = logging.getLogger(__name__)
_RECORD: Final = "letter"
_FIELD: Final = "bytes"
_WAIT: Final = 0.5  # seconds between looks at what has come
_INTRODUCTION: Final = 20.0  # seconds in which a node says who it is; others are asked again
_TASK: Final = 60.0  # seconds for a link to hand out the task of a run


class FlowerPost:
    """Brings letters to the nodes of a Flower grid.

    Args:
        grid: of the run.
        nodes: ids of nodes, by position.
        timeout: seconds to wait for answers.
    """

    def __init__(self, grid: Any, nodes: Mapping[int, int], timeout: float) -> None:
        self._grid = grid
        self._nodes = dict(nodes)
        self._timeout = timeout

    def exchanged(self, by_position: Mapping[int, bytes], most: int) -> dict[int, bytes]:
        """Deliver letters, and return the answers that came in time; errors of nodes count as silence."""
        sent = {self._nodes[each]: letter for each, letter in by_position.items() if each in self._nodes}
        places = {node: position for position, node in self._nodes.items()}
        came = _exchanged(self._grid, sent, self._timeout)
        return {places[node]: answer for node, answer in came.items() if node in places and len(answer) <= most}


def connected(grid: Any, conditions: Conditions, timeout: float) -> dict[int, int]:
    """Wait until all clients are there; return their nodes by position. Whoever is not on the roster is not asked.

    Args:
        grid: of the run.
        conditions: with the roster.
        timeout: seconds to wait; afterwards those who are there are enough if no more may drop out.
    """
    until, found, strangers = time.monotonic() + timeout, dict[int, int](), set[int]()
    while len(found) < len(conditions.roster) and time.monotonic() < until:
        new = set(grid.get_node_ids()) - set(found.values()) - strangers
        for node, position in _introduced(grid, new, conditions, min(timeout, _INTRODUCTION)).items():
            if position is None or position in found:
                strangers.add(node)
            else:
                found[position] = node
        time.sleep(_WAIT)
    if len(found) < conditions.trust.least:
        raise InputError(
            f"Expected at least {conditions.trust.least} clients of the roster to be connected, got {len(found)}.",
            argument="roster",
        )
    return found


def fit_in_run(address: str, root_certificates: bytes, secret: bytes, run: int, fit: Callable[[Any], None]) -> None:
    """Take the task of one run from a link of Flower, and fit over its grid here. No app is loaded, whoever sent it.

    Args:
        address: of the link.
        root_certificates: that the link's certificate is checked against.
        secret: that the link was started with, so that no other process takes its tasks.
        run: the number of the run; tasks of other runs are ended.
        fit: what to do over the grid.
    """
    required()
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType

    link = _node(address, _secret_of_executor(secret), root_certificates)
    wanted = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
    until = time.monotonic() + _TASK
    with closing(link):
        while time.monotonic() < until:
            found = link.AcquireTask(wanted)
            if found.HasField("task") and found.token and _fitted(address, root_certificates, found.token, run, fit):
                return
            time.sleep(_WAIT)
    raise ApportionError("Flower did not hand out the task of the fit.")


def _fitted(address: str, root_certificates: bytes, token: str, run: int, fit: Callable[[Any], None]) -> bool:
    """Fit if a task is that of the run; end it in any case. Return whether it was."""
    from flwr.common.constant import SubStatus
    from flwr.common.serde import run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid

    grid = HttpGrid(address, insecure=False, root_certificates=root_certificates, token=token)
    alive, how = HeartbeatSender(make_task_heartbeat_fn_http(grid._runtime_client)), SubStatus.FAILED
    alive.start()
    try:
        task = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
        if task.run.run_id == run:
            TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = task.task_id, run, task.context.node_id
            grid.set_run(run_from_proto(task.run))
            fit(grid)
            how = SubStatus.COMPLETED
        return bool(task.run.run_id == run)
    finally:
        grid._runtime_client.PushTaskOutput(PushTaskOutputRequest(sub_status=how, details=""))
        alive.stop()
        grid.close()


def answer_letters(desk: Desk, address: str, secret: bytes, going_on: Callable[[], bool]) -> None:
    """Answer what comes to a node of Flower on this machine.

    Args:
        desk: of the client.
        address: of the node's own interface, on this machine.
        secret: that the node was started with, so that no other process takes its messages.
        going_on: says whether to go on.
    """
    required()
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType

    node = _node(address, _secret_of_executor(secret))
    wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    while going_on():
        try:
            found = node.AcquireTask(wanted)
            if found.HasField("task") and found.token:
                _answer_task(desk, address, found.token)
                continue
        except Exception as problem:  # a node that is not up yet, or a message that cannot be read
            _LOG.debug("No letter: %s", type(problem).__name__)
        time.sleep(_WAIT)


def required() -> Any:
    """Return Flower's app package, without telemetry; refuse in one sentence where it is missing."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    try:
        import flwr.app
    except ImportError:
        raise InputError("A federation needs Flower: pip install 'apportion[federated]'.", argument=None) from None
    return flwr.app


def _exchanged(grid: Any, by_node: Mapping[int, bytes], timeout: float) -> dict[int, bytes]:
    flwr = required()
    messages = [
        flwr.Message(
            content=flwr.RecordDict({_RECORD: flwr.ConfigRecord({_FIELD: letter})}),
            message_type="query",
            dst_node_id=node,
        )
        for node, letter in by_node.items()
    ]
    replies = grid.send_and_receive(messages, timeout=timeout) if messages else []
    held = {reply.metadata.src_node_id: _letter(reply) for reply in replies}
    return {node: letter for node, letter in held.items() if letter is not None}


def _letter(message: Any) -> bytes | None:
    """Return the letter in a message of Flower; None if it holds an error or anything else."""
    if message.has_error() or set(message.content) != {_RECORD}:
        return None
    letter = message.content[_RECORD].get(_FIELD)
    return letter if type(letter) is bytes else None


def _introduced(grid: Any, nodes: set[int], conditions: Conditions, timeout: float) -> dict[int, int | None]:
    """Return the position of each node that answered; None for one that is nobody of the roster."""
    nonce = os.urandom(32)
    answers = _exchanged(grid, dict.fromkeys(nodes, letters.hello(nonce)), timeout)
    found: dict[int, int | None] = {}
    for node, answer in answers.items():
        try:
            found[node] = letters.who_is_there(answer, nonce, conditions.roster)
        except ApportionError as problem:
            _LOG.warning("A node is not asked: %s", problem)
            found[node] = None
    return found


def _node(address: str, interceptor: Any, root_certificates: bytes | None = None) -> Any:
    """Return the interface of a node on this machine, or of a link if its root certificates are given."""
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supercore.runtime import RuntimeHttpClient

    component = "flwr-clientapp" if root_certificates is None else "flwr-serverapp"
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=root_certificates is None,  # a node is on this machine
        root_certificates=root_certificates,
        interceptors=[RuntimeVersionHttpInterceptor(component_name=component), interceptor],
        retry_invoker=make_simple_http_retry_invoker(),
    )


def _secret_of_executor(secret: bytes) -> Any:
    from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

    return SuperExecAuthHttpInterceptor(
        master_secret=secret, protected_methods=frozenset({"/flwr.proto.Runtime/AcquireTask"})
    )


def _answer_task(desk: Desk, address: str, token: str) -> None:
    """Take one message from the node, and give it the answer. The code that came with the run is left alone."""
    flwr = required()
    from flwr.common.constant import SubStatus
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
    from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

    node = _node(address, RuntimeTokenHttpInterceptor(token))
    alive = HeartbeatSender(make_task_heartbeat_fn_http(node))
    alive.start()
    try:
        message, context, _run, _code = pull_task_input(node)
        answer = desk.answered(_letter(message) or b"")
        content = flwr.RecordDict({_RECORD: flwr.ConfigRecord({_FIELD: answer})})
        push_message(node, flwr.Message(content, reply_to=message), context)
        push_task_output(client=node, context=context, sub_status=SubStatus.COMPLETED, details="")
    finally:
        alive.stop()
        node.close()
