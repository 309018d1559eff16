"""A model of torch that a worker keeps in step with the shards."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from scar._client.pull_requests import PullFuture
from scar.blocks import Array
from scar.errors import ConfigError, InvalidRequest
from scar.torch.batch_ids import Inputs, RowIds
from scar.torch.embeddings import ModelRows
from scar.torch.error_feedback import ErrorFeedback
from scar.torch.model_tables import ensure_declared, saved_tensors, take_values
from scar.training import Worker


class PulledAhead(NamedTuple):
    """Under way since epoch ``epoch``: parameters, and these rows by table."""

    epoch: int
    ids: dict[str, RowIds]
    future: PullFuture


class PulledModel:
    """The first ``model(...)`` of a clock pulls the parameters into the model.

    Raises :class:`scar.errors.UnknownTable` and :class:`scar.errors.ConfigError` when the job trains another
    model. ``push_dtype``: ``torch.bfloat16`` halves what is pushed of float32 parameters; what rounding takes
    is added to the next push. ``pull_dtype``: the same of what is pulled in each clock; the shards keep and
    step float32. Rows of embeddings, buffers and frozen parameters stay as they are.
    """

    def __init__(
        self,
        worker: Worker,
        model: torch.nn.Module,
        push_dtype: torch.dtype | None = None,
        pull_dtype: torch.dtype | None = None,
    ) -> None:
        self._worker = worker
        self._model = model
        self._tensors = saved_tensors(model)
        ensure_declared(self._tensors, worker)
        self._rows = ModelRows(worker, model, self._tensors)
        dense = [name for name in self._tensors if name not in self._rows.tables]
        rules = {name: worker.job.table(name).rule.kind for name in dense}
        self._trained = [name for name, kind in rules.items() if kind != "assign"]
        self._rounding = ErrorFeedback() if self._is_short("pushes", push_dtype) else None
        self._short = tuple(self._trained) if self._is_short("pulls", pull_dtype) else ()
        parameters = {id(parameter) for parameter in model.parameters()}
        self._buffers = [name for name in dense if id(self._tensors[name]) not in parameters]
        self._clock = worker.clock_number
        self._ahead: dict[int, PulledAhead] = {}  # by clock
        # the frozen ones, too: once is enough for them
        values = worker.pull(dense, bfloat16=self._short)
        self._pulled = take_values(self._tensors, values)
        model.register_forward_pre_hook(_PullsFirst(self), with_kwargs=True)

    @property
    def is_current(self) -> bool:
        """Whether the parameters are of the open clock."""
        return self._clock == self._worker.clock_number

    @property
    def is_exact(self) -> bool:
        """Whether the parameters in the model are the shards', bit by bit, and not rounded to bfloat16."""
        return not self._short

    def pull(self) -> None:
        """Take the parameters of the open clock. A call of the model does it; a call of a part of it does
        not.
        """
        self._pull({})

    def pull_ahead(self, inputs: Inputs) -> None:
        """Begin to pull parameters, and rows of a call with these inputs, for the next clock; return at once.

        They are used there unless the placement has changed meanwhile. BSP has none before the open clock is
        closed: nothing is done then.
        """
        ids = {} if self._worker.job.consistency == "bsp" else self._rows.next_rows(inputs)
        if not ids:
            return
        names = [*self._trained, *self._buffers, *ids]
        future = self._worker.pull_async(names, rows=ids, bfloat16=self._short, ahead=1)
        self._ahead[self._worker.clock_number + 1] = PulledAhead(self._worker.epoch, ids, future)

    def find_places(self, parts: Inputs) -> dict[int | str, int | str]:
        """Which of these parts of a batch the model was called with last: by its input, their names."""
        return self._rows.find_places(parts)

    def prepare_call(self, inputs: Inputs) -> None:
        """The model is about to be called: pull, as one, the parameters if they are of another clock, and the
        rows that the call will look up, if it looks up the same inputs as the last one.
        """
        self._rows.begin_call(inputs)
        ids = self._rows.expected_rows()
        if ids or not self.is_current:
            self._pull(ids)

    def _pull(self, ids: dict[str, RowIds]) -> None:
        dense = [] if self.is_current and ids else [*self._trained, *self._buffers]
        values = self._take_ahead(ids) if dense else None
        if values is None:
            values = self._worker.pull([*dense, *ids], rows=ids, bfloat16=self._short if dense else ())
        if dense:
            self._pulled = take_values(self._tensors, {name: values[name] for name in dense})
            self._clock = self._worker.clock_number
        self._rows.hold_rows(ids, values)

    def _take_ahead(self, ids: dict[str, RowIds]) -> dict[str, Array] | None:
        """What was pulled ahead, if it is this; None: it is not, or of a placement that is no more."""
        clock = self._worker.clock_number
        ahead = self._ahead.get(clock)
        self._ahead = {later: one for later, one in self._ahead.items() if later > clock}
        if ahead is None or ahead.epoch != self._worker.epoch:
            return None
        if ahead.ids.keys() != ids.keys() or not all(np.array_equal(ahead.ids[one], ids[one]) for one in ids):
            return None
        values: dict[str, Array] = ahead.future.result()
        return values

    def _ensure_current(self) -> None:
        if not self.is_current:
            raise InvalidRequest(
                f"the parameters are of clock {self._clock}, and clock {self._worker.clock_number} is open",
                "Call the model, or pull(), in every clock",
            )

    def _is_short(self, what: str, dtype: torch.dtype | None) -> bool:
        """``what``: pushes or pulls."""
        if dtype is None:
            return False
        if dtype != torch.bfloat16:
            raise ConfigError(f"{what} cannot be {dtype}", "Use torch.bfloat16, or leave it out")
        other = [name for name in self._trained if self._tensors[name].dtype != torch.float32]
        if other:
            raise ConfigError(
                f"{other[0]} is {self._tensors[other[0]].dtype}: only float32 {what} are bfloat16",
                f"Leave {what.removesuffix('s')}_dtype out, or train this model in float32",
            )
        return True

    def _push(
        self,
        dense: dict[str, Array],
        rows: dict[str, Array] | None = None,
        ids: dict[str, RowIds] | None = None,
    ) -> None:
        """Of parameters, and of rows by their ids, as one; one worker's buffers with them."""
        rest = (rows or {}) | self._own_buffers()
        if self._rounding is None:
            self._worker.push(dense | rest, rows=ids)
            return
        dense = self._rounding.add_lost(dense)
        self._worker.push(dense | rest, rows=ids, bfloat16=dense.keys())
        self._rounding.note_pushed(dense)

    def _own_buffers(self) -> dict[str, Array]:
        """Those of one worker count."""
        return (
            {name: self._array(name, self._tensors[name]) for name in self._buffers}
            if self._worker.is_leader
            else {}
        )

    def _share(self, weight: float | None) -> float:
        return 1 / self._worker.world_size if weight is None else weight

    def _array(self, name: str, tensor: torch.Tensor) -> Array:
        array: Array = tensor.detach().cpu().numpy().reshape(self._worker.job.table(name).shape)
        return array


class _PullsFirst:
    """What a model does before a call. A copy of the model does nothing, so that it can be made and saved."""

    def __init__(self, pulled: PulledModel | None = None) -> None:
        self._pulled = pulled

    def __call__(self, _: object, inputs: tuple[object, ...], named: dict[str, object]) -> None:
        if self._pulled is not None:
            every: dict[int | str, object] = dict(enumerate(inputs))
            every.update(named.items())
            self._pulled.prepare_call(every)

    def __reduce__(self) -> tuple[type[_PullsFirst], tuple[()]]:
        return _PullsFirst, ()
