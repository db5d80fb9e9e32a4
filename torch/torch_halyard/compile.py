"""torch.compile(backend="halyard"): AOTAutograd's graphs, forward and backward, captured into hy_graphs and replayed without Python.

A graph's first call runs node by node and finds out what can be captured. From the second call on, each run of nodes that can be is
one hy_graph, bound to the tensors of the call; the nodes between (what falls back to the CPU, draws random numbers or needs the host)
run as they are. compile_report() tells where and why a graph was split.
"""

import functools
import itertools
import operator
import threading
import weakref

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.node import map_arg
from torch_halyard import npu, patterns, slices
from torch_halyard._library import native_ops, shim

MAX_SHAPES = 8  # of one dynamic graph that are captured; further ones run node by node
_compiled = []
_numbers = itertools.count()
_capturing = threading.Lock()  # the stream on which graphs are captured is one for all threads


def compile_report():
    """One entry a graph, in the order of compilation: {"graph": "forward 0", "nodes", "captured", "graphs", "calls",
    "launches", "packed", "shapes", "choices", "splits"}.

    `captured` of its nodes are in `graphs` hy_graphs, for each of `shapes` shapes: `calls` of the op table, of which the graphs' passes (fusion
    and others) left `launches`. `packed` are the bytes of weights that are kept in the form in which kernels read them, shared by graphs that
    multiply by the same ones. `choices` is what the search took for each of the hy_graphs. `splits` are the other nodes, [{"op", "reason"}].
    """
    return [graph.report() for graph in (reference() for reference in _compiled) if graph is not None]


def clear_compile_report():
    _compiled.clear()


# ---- nodes ----

def _run(node, values, causal=()):
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    if node in causal:
        args = patterns.without_mask(args, causal=args[0].shape[-2] == args[1].shape[-2])  # nothing is hidden from the last query
    result = node.target(*args, **kwargs)
    return _conformed(result, node.meta.get("val")) if _makes(node) else result


def _makes(node):
    """Whether it gives tensors of its own: no view, nothing written in place."""
    return isinstance(node.target, torch._ops.OpOverload) and not node.target.is_view and not node.target._schema.is_mutable


def _conformed(result, traced):
    """With the strides that the tracing assumed, which views behind it rely on; ops may choose others."""
    if isinstance(result, (list, tuple)):
        return [_conformed(*pair) for pair in zip(result, traced)]
    if not isinstance(result, torch.Tensor) or not isinstance(traced, torch.Tensor) or result.is_contiguous() and traced.is_contiguous():
        return result
    steps = [step if isinstance(step, int) else step.node.hint for step in traced.stride()]
    strides, step = [0] * result.dim(), 1
    for dim in sorted(range(result.dim()), key=lambda dim: (steps[dim], -dim)):
        strides[dim] = step
        step *= max(result.shape[dim], 1)
    if all(size == 1 or want == have for size, want, have in zip(result.shape, strides, result.stride())) or 0 in steps:
        return result
    return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device).copy_(result)


def _pick(nodes, values):
    return [values[node] if isinstance(node, Node) else node for node in nodes]


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for part in value for t in _tensors(part)] if isinstance(value, (list, tuple)) else []


def _launches(node):
    return node.target is not operator.getitem and not getattr(node.target, "is_view", False)


def _refusal(node, tensors):
    """Why this node cannot be part of a hy_graph; None where it can."""
    device = torch._C._get_privateuse1_backend_name()
    if node.target is not operator.getitem and not isinstance(node.target, torch._ops.OpOverload):
        return "is no ATen op"
    if any(t.device.type != device for t in tensors):
        return "has a tensor on another device"
    return None


# ---- a graph at one shape ----

class _Step:
    """Nodes that run together: as one hy_graph, or one by one."""

    def __init__(self, nodes, graph):
        self.nodes, self.graph = nodes, graph
        self.number = None  # of the hy_graph, once it is captured
        self.inputs = self.outputs = self.dead = ()


class _Plan:
    """A graph at one shape: the values that are no tensors, the attentions whose mask is causal there, and the steps."""

    def __init__(self, nodes, refused, constants, causal, results, options):
        self.refused, self.constants, self.causal, self.results, self.options = refused, constants, causal, results, options
        self.steps = self._grouped([node for node in nodes if node not in constants])
        self._connect()

    def _grouped(self, nodes):
        steps, home = [], {}
        for node in nodes:
            producer = home.get(node.args[0]) if node.target is operator.getitem else None
            if producer is None:
                graph = node not in self.refused
                if not (graph and steps and steps[-1].graph):
                    steps.append(_Step([], graph))
                producer = steps[-1]
            producer.nodes.append(node)
            home[node] = producer
        for step in steps:
            step.graph = step.graph and sum(map(_launches, step.nodes)) > 1
        return steps

    def _connect(self):
        """What each step takes, gives, and is the last to use."""
        kept = {node for node in self.results if isinstance(node, Node)}
        last = {}
        for index, step in enumerate(self.steps):
            inside = set(step.nodes)
            taken = dict.fromkeys(node for inner in step.nodes for node in inner.all_input_nodes)
            step.inputs = [node for node in taken if node not in inside and node not in self.constants]
            step.outputs = [node for node in step.nodes if node in kept or any(user not in inside for user in node.users)]
            last.update(dict.fromkeys([*step.inputs, *step.outputs], index))
        for step in self.steps:
            step.dead = []
        for node, index in last.items():
            if node not in kept:
                self.steps[index].dead.append(node)

    def split(self, step, node, reason):
        """The node runs by itself from now on, what is around it in hy_graphs of their own."""
        self.refused[node] = reason
        place = self.steps.index(step)
        self.steps[place:place + 1] = self._grouped(step.nodes)
        self._connect()

    def capture(self, step, values):
        """Makes the step's hy_graph without running it; the node that does not allow it, and why."""
        inputs = _apart([values[node] for node in step.inputs])
        inner = {**self.constants, **dict(zip(step.inputs, inputs))}
        uses = {node: sum(node in other.all_input_nodes for other in step.nodes) for node in step.nodes}
        uses.update(dict.fromkeys(step.outputs, len(step.nodes) + 1))
        node = None
        with _capturing, npu.stream(_side_stream(npu.current_device())):
            torch.ops.halyard.capture_begin()
            try:
                for node in step.nodes:
                    inner[node] = _run(node, inner, self.causal)
                    for used in node.all_input_nodes:
                        if used in uses:
                            uses[used] -= 1
                            if uses[used] == 0:
                                del inner[used]  # its memory serves the next ones
            except Exception as error:
                torch.ops.halyard.capture_drop()
                return node, str(error).splitlines()[0]
            try:
                step.number = torch.ops.halyard.capture_end(inputs, [inner[output] for output in step.outputs],
                                                                  self.options["superoptimize"], self.options["pack_weights"])
            except RuntimeError as error:
                return node, str(error).splitlines()[0]
        weakref.finalize(step, torch.ops.halyard.graph_release, step.number).atexit = False
        return None, None


@functools.lru_cache
def _side_stream(device):
    return torch.Stream(device=f"{torch._C._get_privateuse1_backend_name()}:{device}")


def _apart(tensors):
    """The tensors, with others of the same shape for those whose memory overlaps: a graph tells its inputs apart by address."""
    def ends(t):
        span = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride())) + 1 if t.numel() else 0
        return t.data_ptr(), t.data_ptr() + span * t.element_size()

    order = sorted((*ends(t), index) for index, t in enumerate(tensors) if t.numel())
    result, reach = list(tensors), 0
    for begin, end, index in order:
        if begin < reach:
            t = tensors[index]
            result[index] = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
        reach = max(reach, end)
    return result


# ---- a graph ----

class _Compiled:
    """One FX graph of AOTAutograd, called with the list of its inputs."""

    def __init__(self, module, name, options):
        self.name, self.module, self.options = name, module, options
        nodes = list(module.graph.nodes)
        self.placeholders = [node for node in nodes if node.op == "placeholder"]
        self.attributes = [node for node in nodes if node.op == "get_attr"]
        self.nodes = [node for node in nodes if node.op == "call_function"]
        self.results = next(node for node in nodes if node.op == "output").args[0]
        # Where shapes depend on values, a plan of one call does not fit the next.
        data = [node for node in self.nodes if free_unbacked_symbols(node.meta.get("val"))]
        self.splits = dict.fromkeys(data, "gives what depends on values: the whole graph runs node by node")
        self.plans = {}
        self.most = 0 if data else MAX_SHAPES
        _compiled.append(weakref.ref(self))

    def report(self):
        steps = [step for plan in list(self.plans.values())[-1:] for step in plan.steps if step.number is not None]
        calls, launches = (sum(counts) for counts in zip((0, 0), *(torch.ops.halyard.graph_nodes(step.number) for step in steps)))
        return {"graph": self.name, "nodes": len(self.nodes), "captured": sum(len(step.nodes) for step in steps), "graphs": len(steps),
                "calls": calls, "launches": launches, "packed": sum(torch.ops.halyard.graph_packed(step.number) for step in steps),
                "shapes": len(self.plans), "choices": [torch.ops.halyard.graph_choices(step.number) for step in steps],
                "splits": [{"op": str(node.target), "reason": reason} for node, reason in self.splits.items()]}

    def __call__(self, inputs):
        values = dict(zip(self.placeholders, inputs))
        shape = tuple(value for value in inputs if not isinstance(value, torch.Tensor))
        inputs.clear()
        for node in self.attributes:
            values[node] = operator.attrgetter(node.target)(self.module)
        plan = self.plans.get(shape)
        with torch._C._AutoDispatchBelowAutograd():
            if plan is not None:
                self._follow(plan, values)
            elif len(self.plans) < self.most:
                self.plans[shape] = self._explore(values)
            else:
                for node in self.nodes:
                    values[node] = _run(node, values)
        return _pick(self.results, values)

    def _explore(self, values):
        """Runs node by node; the plan for the next calls of this shape."""
        def counts():
            return shim().torch_halyard_fallback_total(), shim().torch_halyard_get_offset(npu.current_device())

        refused, constants = {}, {node: value for node, value in values.items() if not isinstance(value, torch.Tensor)}
        for node in self.nodes:
            fallbacks, drawn = counts()
            result = values[node] = _run(node, values)
            if not _tensors(result):
                constants[node] = result  # a size, or an output that was not asked for
                continue
            reason = _refusal(node, _tensors(result) + [t for used in node.all_input_nodes for t in _tensors(values[used])])
            if (now := counts()) != (fallbacks, drawn):
                reason = "falls back to the CPU" if now[0] != fallbacks else "draws random numbers"
            if reason:
                refused[node] = self.splits[node] = reason
        return _Plan(self.nodes, refused, constants, patterns.causal_at(self.nodes, values), self.results, self.options)

    def _follow(self, plan, values):
        values.update(plan.constants)
        index = 0
        while index < len(plan.steps):
            step = plan.steps[index]
            if step.graph and step.number is None:
                node, reason = plan.capture(step, values)
                if node is not None:
                    self.splits[node] = reason
                    plan.split(step, node, reason)
                    continue
            self._take(step, values)
            for node in step.dead:
                del values[node]
            index += 1

    def _take(self, step, values):
        if step.number is not None:
            try:
                results = torch.ops.halyard.graph_replay(step.number, [values[node] for node in step.inputs])
                values.update(zip(step.outputs, results))
                return
            except ValueError as error:  # tensors that it cannot be bound to: nothing has run yet
                self.splits[step.nodes[0]] = f"the graph that begins here ran node by node: {str(error).splitlines()[0]}"
        for node in step.nodes:
            values[node] = _run(node, values)


# ---- the backend ----

@functools.lru_cache
def _decompositions():
    """Core ATen's, for ops that have no native kernel in any form."""
    from torch._decomp import core_aten_decompositions

    native = {name.partition(".")[0] for name in native_ops()}
    return {op: rule for op, rule in core_aten_decompositions().items() if not (isinstance(op, torch._ops.OpOverload) and op._schema.name in native)}


def _compiler(kind, options):
    def compiler(module, inputs):
        patterns.replace(module.graph)
        slices.push_down(module.graph)
        graph = _Compiled(module, f"{kind} {next(_numbers)}", options)

        def run(inputs):
            return graph(inputs)

        run._boxed_call = True  # the list of inputs is emptied
        return run
    return compiler


def _partition(joint, inputs, **options):
    patterns.replace_joint(joint.graph)
    return default_partition(joint, inputs, **options)


_defaults = {"superoptimize": 0.0, "pack_weights": True}


def halyard(module, inputs, mode=None, options=None):
    """options={"superoptimize": seconds}: each graph is searched for a faster one that is equal, for at most so long; see docs/graphs.md.
    {"pack_weights": False}: no copies of weights in the form in which kernels read them; see docs/pytorch.md.
    """
    unknown = [name for name in options or {} if name not in _defaults] + ([f"mode {mode!r}"] if mode else [])
    if unknown:
        raise ValueError(f"the backend halyard takes the options {' and '.join(_defaults)}, and was given {', '.join(unknown)}")
    options = {name: type(value)((options or {}).get(name, value)) for name, value in _defaults.items()}
    if not options["superoptimize"] >= 0:
        raise ValueError(f"superoptimize is a number of seconds, not {options['superoptimize']}")
    compilers = {f"{place}_compiler": _compiler(kind, options) for place, kind in [("fw", "forward"), ("bw", "backward"), ("inference", "inference")]}
    return aot_autograd(**compilers, decompositions=_decompositions(), partition_fn=_partition)(module, inputs)
