"""Records what a PyTorch training run computes, op by op, as fingerprints: one file a rank.

    import bitproof_trace
    bitproof_trace.auto()                    # records if BITPROOF_TRACE=DIR is set, else nothing

    with bitproof_trace.record("DIR", steps="1-2", ranks="0,3") as trace:
        ...                                  # trace.iteration, .microbatch, .phase may be set

    BITPROOF_TRACE=DIR python -m bitproof_trace train.py --its-arguments

Two such folders are compared with `bitproof trace diff A B`. docs/recorder.md says what is
recorded, what it costs and what it does not see. Needs torch >= 2.1 and nothing else.

The stream has the shape of Megatron-LM pull request 7262 (schema_version, seq, rank, iteration,
kind, name, payload with id, scope, in, out), with microbatch and phase as in pull request 6610. The
recorder makes no collectives, uses no random numbers and holds no tensor; a fault of its own ends
the recording, never the training.
"""
import atexit
import bisect
import collections
import contextlib
import ctypes
import gzip
import hashlib
import json
import math
import os
import platform
import runpy
import socket
import sys
import threading
import traceback
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import (
    TorchDispatchMode, _get_current_dispatch_mode, is_traceable_wrapper_subclass_type)

SCHEMA_VERSION = 1
RECORDER_VERSION = 1
DEFAULT_STEPS = "0-2"
# Records that wait for their rank to be known (before init_process_group) are held, up to here.
PENDING_RECORDS_MAX = 200_000
# A view that is cut into more runs of bytes than this is not followed run by run.
BYTE_RUNS_MAX = 65_536
# Ops whose first operand is written and not read.
WRITE_ONLY = frozenset(
    "copy_ zero_ fill_ bernoulli_ uniform_ normal_ random_ exponential_ geometric_ cauchy_ "
    "log_normal_ _foreach_copy_ _foreach_zero_ set_ eye_".split())
# Ops that move bytes: what nobody has written stays so where it is copied to.
COPIES = frozenset("copy_ clone _to_copy _foreach_copy_ _copy_from lift_fresh_copy".split())
COLLECTIVES = {
    "allreduce_": "all_reduce", "allreduce_coalesced_": "all_reduce_coalesced",
    "allgather_": "all_gather", "_allgather_base_": "all_gather_into_tensor",
    "allgather_coalesced_": "all_gather_coalesced",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor_coalesced",
    "_reduce_scatter_base_": "reduce_scatter_tensor", "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all_single", "recv_any_source_": "recv", "isend": "send",
    "irecv": "recv", "all_gather_into_tensor_out": "all_gather_into_tensor",
    "reduce_scatter_tensor_out": "reduce_scatter_tensor",
}
# Tensors that stand for others and hold no data: what runs on them is no part of the training.
NO_DATA = frozenset(("FakeTensor", "FunctionalTensor"))
REDUCE_OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
# The only variables of the environment that run.json may hold, by name or beginning.
ENVIRONMENT = ("CUBLAS_WORKSPACE_CONFIG", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING",
               "CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
               "OMP_NUM_THREADS", "MKL_NUM_THREADS", "MKL_CBWR", "ATEN_CPU_CAPABILITY",
               "PYTHONHASHSEED", "TORCH_COMPILE_DISABLE", "ROCBLAS_DEFAULT_ATOMICS_MODE",
               "NVIDIA_TF32_OVERRIDE", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
ENVIRONMENT_BEGINNINGS = ("NCCL_", "NVTE_", "TORCH_NCCL_", "GLOO_", "BITPROOF_TRACE")
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE")
SIGNED = {getattr(torch, u): getattr(torch, s) for u, s in (
    ("uint8", "int8"), ("uint16", "int16"), ("uint32", "int32"), ("uint64", "int64"))
    if hasattr(torch, u)}


class RecorderError(Exception):
    """Bad use of the recorder: what was expected, and what to do."""


# ---- digests ------------------------------------------------------------------------------------

def xor_fold(words):
    """The XOR of int64 words, as torch.hash_tensor forms it, for versions without it."""
    while words.numel() > 1:
        half = words.numel() // 2
        odd, pairs = words[2 * half:], words[:half] ^ words[half:2 * half]
        words = torch.cat((pairs, odd)) if odd.numel() else pairs
    return words.item() & (2 ** 64 - 1)


def hash_tensor(t):
    """torch.hash_tensor, mode 0, of a non-empty tensor; unsigned, float8 and float4 as signed."""
    x = t.detach()
    x = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    x = x.resolve_neg().contiguous()
    if x.dtype.is_floating_point and x.dtype.itemsize == 1:
        x = x.view(torch.int8)
    x = x.view(torch.int8 if x.dtype == torch.bool else SIGNED.get(x.dtype, x.dtype))
    if hasattr(torch, "hash_tensor"):
        return "%016x" % torch.hash_tensor(x).item()
    wide = x.to(torch.float64).view(torch.int64) if x.dtype.is_floating_point else x.to(torch.int64)
    return "%016x" % xor_fold(wide.reshape(-1))


def bytes64(t):
    """BLAKE2b-64 of the contiguous little-endian bytes of a non-empty tensor."""
    x = t.detach().resolve_conj().resolve_neg().cpu().contiguous()
    raw = (ctypes.c_char * (x.numel() * x.element_size())).from_address(x.data_ptr())
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


@contextlib.contextmanager
def unseen():
    """Work of the recorder's own: no mode sees it, autograd does not record it."""
    with torch.no_grad(), torch._C._DisableTorchDispatch():
        yield


def leaves(value):
    """The tensors in an argument or a result, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)


# ---- memory -------------------------------------------------------------------------------------

def byte_runs(t):
    """The runs of bytes of its storage that a strided tensor covers; None if they are too many."""
    if t.numel() == 0:
        return []
    size, begin = t.element_size(), t.storage_offset() * t.element_size()
    dims = sorted((st * size, n) for st, n in zip(t.stride(), t.shape) if n > 1 and st > 0)
    length = size
    while dims and dims[0][0] <= length:
        stride, n = dims.pop(0)
        length = stride * (n - 1) + length
    if math.prod(n for _, n in dims) > BYTE_RUNS_MAX:
        return None
    starts = [begin]
    for stride, n in dims:
        starts = [s + stride * i for s in starts for i in range(n)]
    return sorted((s, s + length) for s in starts)


def hull(t):
    """First byte and end of what a tensor covers in its storage."""
    size = t.element_size()
    begin = t.storage_offset() * size
    if t.numel() == 0:
        return begin, begin
    return begin, begin + sum((n - 1) * st for n, st in zip(t.shape, t.stride())) * size + size


class ByteSet:
    """Disjoint runs of bytes in order."""

    def __init__(self):
        self.runs = []

    def add(self, begin, end):
        if begin >= end:
            return
        near = [r for r in self.runs if r[0] <= end and begin <= r[1]]
        merged = (min([begin] + [r[0] for r in near]), max([end] + [r[1] for r in near]))
        self.runs = [r for r in self.runs if r not in near]
        bisect.insort(self.runs, merged)

    def remove(self, cuts):
        """Takes away runs that are sorted by their begins and by their ends."""
        kept, ends = [], [end for _, end in cuts]
        for begin, end in self.runs:
            at = bisect.bisect_right(ends, begin)
            while begin < end and at < len(cuts) and cuts[at][0] < end:
                if cuts[at][0] > begin:
                    kept.append((begin, cuts[at][0]))
                begin, at = max(begin, cuts[at][1]), at + 1
            if begin < end:
                kept.append((begin, end))
        self.runs = kept

    def meets(self, begin, end):
        at = bisect.bisect_right(self.runs, (begin, math.inf))
        return ((at > 0 and self.runs[at - 1][1] > begin and begin < end)
                or (at < len(self.runs) and self.runs[at][0] < end))


class Storage:
    """What is known of one storage: a number in order of first sight, and its unwritten bytes."""
    __slots__ = ("number", "weak", "unwritten")

    def __init__(self, number, storage):
        self.number, self.weak, self.unwritten = number, StorageWeakRef(storage), None


class Memory:
    """All storages seen. A weak reference keeps a storage's identity (not its bytes) from reuse."""

    def __init__(self):
        self.known, self.count, self.limit = {}, 0, 4096

    def of(self, t):
        storage = t.untyped_storage()
        found = self.known.get(storage._cdata)
        if found is None:
            if len(self.known) >= self.limit:
                self.known = {k: s for k, s in self.known.items() if not s.weak.expired()}
                self.limit = max(4096, 2 * len(self.known))
            found = self.known[storage._cdata] = Storage(self.count, storage)
            self.count += 1
        return found

    def taint(self, t, begin=0, end=None):
        """Bytes of a tensor's storage that nobody has written."""
        end = t.untyped_storage().nbytes() if end is None else end
        if begin < end:
            storage = self.of(t)
            storage.unwritten = storage.unwritten or ByteSet()
            storage.unwritten.add(begin, end)

    def taint_view(self, t):
        runs = byte_runs(t)
        for begin, end in [hull(t)] if runs is None else runs:
            self.taint(t, begin, end)

    def written(self, t):
        """An op wrote all of `t`. A view of too many runs stays as it was: unknown, never clean."""
        storage = self.of(t)
        if storage.unwritten is not None:
            storage.unwritten.remove(byte_runs(t) or [])
            if not storage.unwritten.runs:
                storage.unwritten = None

    def tainted(self, t):
        unwritten = self.of(t).unwritten
        if unwritten is None:
            return False
        runs = byte_runs(t)
        return any(unwritten.meets(b, e) for b, e in ([hull(t)] if runs is None else runs))


def is_plain(t):
    """Whether the bytes of a tensor can be read: strided, on a device, of the class itself."""
    return t.layout == torch.strided and t.device.type != "meta" and not t.is_quantized \
        and not torch._C._functorch.is_functorch_wrapped_tensor(t)


# ---- the file -----------------------------------------------------------------------------------

class Stream:
    """One rank's file. It must not exist; each flush appends whole lines (and a whole gzip member),
    so that what a killed run leaves behind is readable to its end."""

    def __init__(self, folder, rank, compress):
        os.makedirs(folder, exist_ok=True)
        stem = os.path.join(folder, "rank_%06d.jsonl" % rank)
        for other in (stem, stem + ".gz", stem + ".zst"):
            if os.path.exists(other):
                raise RecorderError(
                    "%s exists: a trace is never written over; name another folder" % other)
        self.compress, self.path = compress, stem + ".gz" * compress
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self.fd = os.open(self.path, flags, 0o644)
        self.append([])    # an empty gzip member: the file is whole from the first moment on

    def append(self, lines):
        data = b"".join(lines)
        data = gzip.compress(data, 3, mtime=0) if self.compress else data
        while data:
            data = data[os.write(self.fd, data):]

    def close(self):
        os.close(self.fd)


def allowed_environment():
    names = [n for n in os.environ if n in ENVIRONMENT or n.startswith(ENVIRONMENT_BEGINNINGS)]
    return {n: os.environ[n] for n in sorted(names) if not any(w in n for w in SECRET_WORDS)}


def description(settings, rank, world_size):
    """run.json: the versions and switches that decide bits, and how it was recorded."""
    flags = {"deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
             "float32_matmul_precision": torch.get_float32_matmul_precision(),
             "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
             "cudnn_deterministic": torch.backends.cudnn.deterministic,
             "cudnn_benchmark": torch.backends.cudnn.benchmark,
             "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
             "tf32_cudnn": torch.backends.cudnn.allow_tf32,
             "num_threads": torch.get_num_threads(), "num_interop_threads":
             torch.get_num_interop_threads()}
    versions = {"torch": torch.__version__, "python": platform.python_version(),
                "cuda": torch.version.cuda, "hip": getattr(torch.version, "hip", None)}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        versions["gpu"] = torch.cuda.get_device_name()
        versions["cudnn"] = torch.backends.cudnn.version()
        with contextlib.suppress(Exception):
            versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    dist = torch.distributed
    backend = dist.get_backend() if dist.is_available() and dist.is_initialized() else None
    return {"schema_version": SCHEMA_VERSION, "recorder": "bitproof_trace",
            "recorder_version": RECORDER_VERSION, "torch": torch.__version__,
            "world_size": world_size, "backend": backend, "written_by_rank": rank,
            "host": socket.gethostname(), "machine": platform.machine(), "versions": versions,
            "flags": flags, "environment": allowed_environment(),
            "steps": settings.steps_text, "ranks": None if settings.ranks.spans is None else
            [r for r in range(world_size) if r in settings.ranks],
            "digest": "torch.hash_tensor mode 0 (unsigned and float8 viewed as signed)",
            "bytes64": "BLAKE2b-64 of the contiguous little-endian bytes" if settings.bytes
            else None}


class Numbers:
    """`all`, or numbers and ranges: `0,3,8-15`."""

    def __init__(self, text):
        self.spans = None
        if text.strip() != "all":
            try:
                pairs = [part.split("-") for part in text.split(",")]
                self.spans = [(int(p[0]), int(p[-1])) for p in pairs]
                bad = any(len(p) > 2 or a > b for p, (a, b) in zip(pairs, self.spans))
            except ValueError:
                bad = True
            if bad:
                raise RecorderError("%r: expected `all`, or numbers and ranges as 0,3,8-15" % text)

    def __contains__(self, n):
        return self.spans is None or any(a <= n <= b for a, b in self.spans)

    def last(self):
        return math.inf if self.spans is None else max(b for _, b in self.spans)


class Settings:
    """What is asked for: by argument, else by BITPROOF_TRACE_NAME, else the default."""

    def __init__(self, folder, **asked):
        def value(name, default):
            given = asked.pop(name, None)
            return os.environ.get("BITPROOF_TRACE_" + name.upper(), default) if given is None \
                else given

        def switch(name, default):
            given = value(name, default)
            if str(given).lower() not in ("0", "1", "true", "false"):
                raise RecorderError("%s: expected 0 or 1, found %r" % (name, given))
            return str(given).lower() in ("1", "true")
        self.folder = os.fspath(folder)
        self.steps_text, self.ranks_text = str(value("steps", DEFAULT_STEPS)), str(
            value("ranks", "all"))
        self.steps, self.ranks = Numbers(self.steps_text), Numbers(self.ranks_text)
        self.flush_every = int(value("flush", 256))
        self.bytes, self.memory = switch("bytes", True), switch("memory", True)
        self.pointers, self.compress = switch("pointers", False), switch("gzip", True)
        if asked:
            raise RecorderError("unknown setting: %s" % ", ".join(sorted(asked)))


# ---- what an op does with its operands ----------------------------------------------------------

class Usage:
    """Read from an op's schema, once an op."""

    def __init__(self, func):
        self.base = base = func.overloadpacket.__name__
        self.arguments = [(a.name, a.alias_info is not None and a.alias_info.is_write,
                           a.kwarg_only) for a in func._schema.arguments]
        self.uninitialised = base.startswith(("empty", "_empty", "new_empty", "resize_"))
        self.view = bool(getattr(func, "is_view", False))
        # FSDP2 fills its buffer here, and its schema does not say so.
        self.fills = "all_gather_output" if base == "all_gather_copy_in" else None
        self.reads_no_bytes = base.endswith("_like") or base.startswith("new_") or self.view

    def operands(self, args, kwargs):
        """(tensor, written, write_only) of each operand, in the schema's order."""
        for i, (name, writes, kwarg_only) in enumerate(self.arguments):
            value = args[i] if i < len(args) else kwargs.get(name)
            only = name == self.fills or (
                writes and (kwarg_only or (i == 0 and self.base in WRITE_ONLY)))
            for t in leaves(value):
                yield t, writes, only

    def named(self, args, kwargs):
        return {name: args[i] if i < len(args) else kwargs.get(name)
                for i, (name, _, _) in enumerate(self.arguments)}


class View:
    """A tensor by its storage's weak reference: it can be looked at later, and holds no bytes."""

    def __init__(self, t):
        self.weak, self.hull = StorageWeakRef(t.untyped_storage()), hull(t)
        self.key, self.dtype, self.device = t.untyped_storage()._cdata, t.dtype, t.device
        self.place = t.storage_offset(), tuple(t.shape), tuple(t.stride())

    def tensor(self):
        storage = torch.UntypedStorage._new_with_weak_ptr(self.weak.cdata)
        if storage is None:
            return None
        return torch.empty(0, dtype=self.dtype, device=self.device).set_(storage, *self.place)

    def meets(self, t):
        begin, end = hull(t)
        return begin < self.hull[1] and self.hull[0] < end


class Flight:
    """A collective that was launched and is not recorded yet."""

    def __init__(self, name, inputs, reads, writes, facts):
        self.name, self.inputs, self.facts, self.work = name, inputs, facts, None
        self.reads, self.writes = [View(t) for t in reads if is_plain(t)], [
            View(t) for t in writes if is_plain(t)]

    def is_done(self):
        """Whether its results are there. A NCCL future says so too early: only the work counts."""
        if self.work is None or self.work.is_completed():
            return True
        on_cpu = all(v.device.type == "cpu" for v in self.reads + self.writes)
        with contextlib.suppress(RuntimeError):
            return on_cpu and self.work.get_future().done()
        return False


def collective_operands(base, named, is_root):
    """The tensors that a c10d op reads, and those that it writes, on this rank."""
    inputs = [t for n in ("input_tensor", "input_tensors", "input_list", "input", "inputs")
              for t in leaves(named.get(n))]
    outputs = [t for n in ("output_tensor", "output_tensors", "output_lists", "output", "outputs",
                           "out") for t in leaves(named.get(n))]
    both = list(leaves(named.get("tensors")))
    if base in ("send", "isend"):
        return both or list(leaves(named.get("tensor"))), []
    if base.startswith(("recv", "irecv")):
        return [], both or list(leaves(named.get("tensor")))
    if base.startswith("broadcast_"):
        return (both + inputs if is_root else []), both + inputs
    if base.startswith("reduce_") and not base.startswith("reduce_scatter"):
        return both, both if is_root else []
    if base in ("all_reduce_", "all_reduce_coalesced_"):
        return inputs, inputs
    return inputs + both, outputs + both


def reduce_name(op):
    if isinstance(op, str):
        return op.lower()
    unboxed = torch._C._distributed_c10d.ReduceOp.unbox(op)
    kinds = torch._C._distributed_c10d.ReduceOp
    return next((n.lower() for n in REDUCE_OPS if unboxed == getattr(kinds, n, None)), "other")


# ---- the recorder -------------------------------------------------------------------------------

class Recorder(TorchDispatchMode):
    """One process's recording. Its public face: iteration, microbatch, phase, tensor(), close()."""

    @classmethod
    def ignore_compile_internals(cls):
        return True    # else torch.compile would fall back to eager, and training would change

    def __init__(self, settings, rank_now):
        super().__init__()
        self.settings, self.memory, self.lock = settings, Memory(), threading.RLock()
        self.live, self.entered, self.failed, self.stream, self.rank = True, False, None, None, None
        self.clock = {"iteration": 0, "microbatch": None, "phase": "setup"}
        self.by_user, self.in_step, self.saw_backward, self.stepped = set(), 0, False, False
        self.lines, self.seq, self.seen = [], 0, collections.Counter()
        self.usages, self.flights, self.batches, self.group_seq = {}, [], {}, collections.Counter()
        self.scopes, self.backward_scopes, self.local = {}, {}, threading.local()
        self.modules, self.parameters = weakref.WeakKeyDictionary(), {}
        self.roots, self.undo, self.streams, self.unseen = 0, [], {}, collections.Counter()
        if rank_now:
            self.open(required=True)

    # -- time

    def _set(self, name, value):
        self.by_user.add(name)
        if name == "iteration" and value != self.clock[name]:
            self._turn(value)
        self.clock[name] = value

    iteration = property(lambda s: s.clock["iteration"], lambda s, v: s._set("iteration", v))
    microbatch = property(lambda s: s.clock["microbatch"], lambda s, v: s._set("microbatch", v))
    phase = property(lambda s: s.clock["phase"], lambda s, v: s._set("phase", v))

    def _turn(self, iteration):
        """Another iteration begins."""
        self._guard(self._settle, [f for f in self.flights if f.is_done()], "turn")
        self._guard(self.flush)
        if iteration > self.settings.steps.last():
            self.close()
            return
        self.seen.clear()
        self.backward_scopes.clear()
        self.clock["iteration"], self.stepped, self.saw_backward = iteration, False, False
        if "microbatch" not in self.by_user:
            self.clock["microbatch"] = None
        self._enter_window()

    def _enter_window(self):
        """Modes are a stack: within another one's `with`, its end would take ours off instead."""
        if self.entered or not self.live or self.clock["iteration"] not in self.settings.steps:
            return
        if torch._C._len_torch_dispatch_stack():
            self.unseen["ops before the end of another dispatch mode"] += 1
            return
        self.entered = True
        self.__enter__()

    # -- guarded work

    def _guard(self, work, *args):
        if not self.live:
            return None
        try:
            with self.lock, unseen():
                return work(*args)
        except Exception:
            return self._fail(traceback.format_exc())

    def _fail(self, why):
        """Ends the recording, and says so in the trace and on stderr; training goes on."""
        self.live, self.failed = False, why
        say("the recorder failed; training goes on unrecorded:\n" + why)
        with contextlib.suppress(Exception):
            self._record("recorder", "failed", [], [], reason=why.splitlines()[-1])
            self.flush()

    def open(self, required=False):
        """Makes this rank's file as soon as the rank is known (`required`: it is 0 if unknown)."""
        rank, world = rank_and_world()
        if self.stream is not None or (rank is None and not required):
            return
        self.rank, world = (0, 1) if rank is None else (rank, world)
        if self.rank not in self.settings.ranks:
            self.lines, self.live = [], False
            self._unpatch()
            return
        description_path = os.path.join(self.settings.folder, "run.json")
        first = next(r for r in range(world) if r in self.settings.ranks)
        if self.rank == first and os.path.exists(description_path):
            raise RecorderError("%s exists: a trace is never written over; name another folder"
                                % description_path)
        self.stream = Stream(self.settings.folder, self.rank, self.settings.compress)
        if self.rank == first:
            with open(description_path, "x", encoding="utf-8") as file:
                json.dump(description(self.settings, self.rank, world), file, indent=1)
                file.write("\n")

    def flush(self):
        if self.stream is None:
            if len(self.lines) > PENDING_RECORDS_MAX:
                raise RecorderError("%d records and still no rank: call auto() later, or set RANK"
                                    % len(self.lines))
            return
        for record in self.lines:
            record["rank"] = self.rank
        self.stream.append([json.dumps(r, separators=(",", ":")).encode() + b"\n"
                            for r in self.lines])
        self.lines = []

    def _record(self, kind, name, ins, outs, **extra):
        if self.clock["iteration"] not in self.settings.steps and kind != "recorder":
            return
        count = self.seen[kind, name]
        self.seen[kind, name] += 1
        payload = {"id": "%s:%s:%d" % ("aten" if kind == "op" else kind, name, count),
                   "scope": self._scope(), "in": ins, "out": outs}
        payload.update((k, v) for k, v in extra.items() if v is not None)
        self.lines.append({"schema_version": SCHEMA_VERSION, "seq": self.seq, "rank": None,
                           "iteration": self.clock["iteration"],
                           "microbatch": self.clock["microbatch"], "phase": self._phase(),
                           "kind": kind, "name": name, "payload": payload})
        self.seq += 1
        if len(self.lines) >= self.settings.flush_every:
            self.flush()

    def fingerprint(self, t, write_only=False, writes=False):
        t = getattr(t, "_local_tensor", t)
        s = {"shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch."),
             "numel": t.numel(), "digest": None, "bytes64": None}
        if not is_plain(t):
            return {**s, "unreadable": "%s %s on %s" % (type(t).__name__, t.layout, t.device.type)}
        flying = self.flights and any(v.key == t.untyped_storage()._cdata and v.meets(t)
                                      for f in self.flights
                                      for v in f.writes + (f.reads if writes else []))
        for mark, holds in (("write_only", write_only), ("in_flight", flying)):
            if holds:
                s[mark] = True
        if write_only or flying:
            return s
        if self.memory.tainted(t):
            s["tainted"] = True
        elif t.numel() == 0:
            s["digest"] = "0" * 16
        elif t.is_cuda and torch.cuda.is_current_stream_capturing():
            s["capturing"] = True
        else:
            try:
                s["digest"] = hash_tensor(t)
                s["bytes64"] = bytes64(t) if self.settings.bytes else None
            except NotImplementedError:
                s["unreadable"] = "%s on %s: torch cannot hash it" % (s["dtype"], t.device.type)
        return s

    def _place(self, t):
        """Where a tensor lies: storage, its bytes there, strides; the address if asked for."""
        begin, end = hull(t)
        place = [self.memory.of(t).number, begin, end, list(t.stride())]
        return place + [t.untyped_storage().data_ptr()] if self.settings.pointers else place

    def _note(self, ins, outs):
        """For a later look at the program's own graph; `note` is no part of a comparison."""
        if not self.settings.memory:
            return None
        note = {"memory": {"in": [self._place(t) if is_plain(t) else None for t in ins],
                           "out": [self._place(t) if is_plain(t) else None for t in outs]}}
        device = next((t.device for t in ins + outs if t.is_cuda), None)
        if device is not None:
            note["stream"] = self._stream_number(torch.cuda.current_stream(device))
        return note

    def _stream_number(self, stream):
        key = (stream.device_index, stream.stream_id)
        return self.streams.setdefault(key, len(self.streams))

    # -- ops

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        others = [t for t in types if t not in (torch.Tensor, torch.nn.Parameter)]
        if others:
            if all(is_traceable_wrapper_subclass_type(t) for t in others):
                return NotImplemented    # it unwraps itself (DTensor); its plain ops come here
            self.unseen.update(t.__name__ for t in others if t.__name__ not in NO_DATA)
            return func(*args, **kwargs)
        after = self._guard(self._before, func, args, kwargs)
        out = func(*args, **kwargs)
        if after is not None:
            self._guard(after, out)
        return out

    def _before(self, func, args, kwargs):
        usage = self.usages.get(func) or self.usages.setdefault(func, Usage(func))
        if func.namespace in ("c10d", "_c10d_functional"):
            return self._launch(usage, args, kwargs)
        operands = list(usage.operands(args, kwargs))
        tensors = [t for t, _, _ in operands]
        if any(t.device.type == "meta" for t in tensors):
            return None
        if usage.uninitialised:
            sizes = [(t, t.untyped_storage().nbytes()) for t, writes, _ in operands if writes]
            return lambda out: self._allocated(sizes, out)
        if not usage.view:
            self._settle_before(tensors)
        ins = [self.fingerprint(t, only, writes) for t, writes, only in operands]
        places = self._note(tensors, [])
        late = usage.base in COPIES and any(t.is_cuda for t in tensors) and bool(
            usage.named(args, kwargs).get("non_blocking"))
        return lambda out: self._after(func, usage, operands, ins, places, late, out)

    def _allocated(self, sizes, out):
        for t, before in sizes:
            self.memory.taint(t, before)
        for t in leaves(out):
            if not sizes and is_plain(t):
                self.memory.taint(t)

    def _after(self, func, usage, operands, ins, places, late, out):
        outs = list(leaves(out)) or [t for t, writes, _ in operands if writes]
        for t in outs[:1] if usage.fills else [t for t, _, only in operands if only]:
            if is_plain(t):
                self.memory.written(t)
        unwritten = any("tainted" in s for s in ins)
        if unwritten and usage.base in COPIES:
            for t in [t for t, writes, _ in operands if writes] or outs:
                self.memory.taint_view(t)
        reads_tainted = unwritten and not usage.reads_no_bytes
        node = torch._C._autograd._get_sequence_nr() - 1
        self.backward_scopes.setdefault(node, self._scope())
        if outs or reads_tainted:
            if places is not None:
                places["memory"]["out"] = self._note([], outs)["memory"]["out"]
            marks = [self._copied_late(t) if late and not t.is_cuda else self.fingerprint(t)
                     for t in outs]
            self._record("op", str(func), ins, marks, note=places,
                         reads_tainted=True if reads_tainted else None)

    def _copied_late(self, t):
        """A non-blocking copy to the host may still be under way: its bytes say nothing yet."""
        s = self.fingerprint(t, write_only=True)
        del s["write_only"]
        return {**s, "in_flight": True}

    # -- collectives

    def _launch(self, usage, args, kwargs):
        named, base = usage.named(args, kwargs), usage.base
        if base in ("wait_tensor", "wait_tensors"):
            waited = list(leaves(list(named.values())))
            return lambda out: self._settle(self._flights_of(waited), "wait")
        if base == "check_for_nan":
            return None
        group = named.get("process_group", named.get("group_name"))
        if isinstance(group, torch.ScriptObject):
            group = torch._C._distributed_c10d.ProcessGroup.unbox(group)
        elif isinstance(group, str):
            group = torch._C._distributed_c10d._resolve_process_group(group)
        root = named.get("root_rank", named.get("src") if base.startswith("broadcast") else None)
        reads, writes = collective_operands(base, named, root in (None, group.rank()))
        self._settle_before(reads + writes)
        name = COLLECTIVES.get(base, base.strip("_"))
        ins = [self.fingerprint(t) for t in reads]
        flight = Flight(name, ins, reads, writes, self._facts(name, named, group, root))
        functional = "process_group" not in named
        return lambda out: self._launched(flight, group, functional, out)

    def _facts(self, name, named, group, root):
        ranks = torch.distributed.get_process_group_ranks(group)
        facts = {"group": group.group_name, "group_ranks": ranks, "root": root}
        with contextlib.suppress(Exception):
            facts["algo"] = torch.distributed.get_backend(group)
        if named.get("reduce_op") is not None:
            facts["op"] = reduce_name(named["reduce_op"])
        peer = named.get("dst", named.get("src"))
        if name in ("send", "recv"):
            peer = None if peer is None else ranks[peer]
            facts.update(peer=peer, tag=named.get("tag"), any_source=True if peer is None else None)
            key, field = (group.group_name, name, peer), "pair_seq"
        else:
            key, field = group.group_name, "group_seq"
        facts[field] = self.group_seq[key]
        self.group_seq[key] += 1
        return facts

    def _launched(self, flight, group, functional, out):
        if functional:
            if not flight.writes:
                flight.writes = [View(t) for t in leaves(out)]
            flight.work = NeverDone
        else:
            boxed = out[-1] if isinstance(out, (tuple, list)) else out
            if isinstance(boxed, torch.ScriptObject):
                flight.work = torch._C._distributed_c10d.Work.unbox(boxed)
        self.flights.append(flight)
        batch = self.batches.get(group.group_name)
        if batch is not None:
            batch.append(flight)
            flight.work = flight.work or NeverDone
        elif flight.work is None:
            self._settle([flight], "call")

    def _flights_of(self, tensors):
        if not self.flights:
            return []
        keys = collections.defaultdict(list)
        for t in tensors:
            if is_plain(t):
                keys[t.untyped_storage()._cdata].append(t)
        return [f for f in self.flights
                if any(v.meets(t) for v in f.writes for t in keys.get(v.key, ()))]

    def _settle_before(self, tensors):
        """An op uses results of collectives whose wait was not seen (DDP waits in C++)."""
        flights = self._flights_of(tensors)
        if any(v.device.type == "cuda" for f in flights for v in f.writes):
            torch.cuda.current_stream().synchronize()
        self._settle([f for f in flights if f.is_done()], "use")

    def _settle(self, flights, completed):
        for flight in flights:
            self.flights.remove(flight)
            in_place = {(v.key, v.place) for v in flight.reads}
            outs, tensors = [], []
            for view in flight.writes:
                t = view.tensor()
                if t is None:
                    size = math.prod(view.place[1])
                    outs.append({"shape": list(view.place[1]), "numel": size, "digest": None,
                                 "dtype": str(view.dtype).removeprefix("torch."),
                                 "bytes64": None, "freed": True})
                    continue
                if (view.key, view.place) not in in_place:
                    self.memory.written(t)
                outs.append(self.fingerprint(t))
                tensors.append(t)
            note = self._note([], tensors) or {}
            if flight.name == "recv" and flight.facts.get("peer") is None:
                note["source"] = getattr(flight.work, "_source_rank", lambda: None)()
            self._record("collective", flight.name, flight.inputs, outs, **flight.facts,
                         completed=completed, note=note or None)

    def _waited(self, work):
        self._settle([f for f in self.flights if f.work is work], "wait")

    # -- modules, optimizers, phases

    def _stack(self):
        if not hasattr(self.local, "stack"):
            self.local.stack = []
        return self.local.stack

    def _scope(self):
        stack = self._stack()
        if stack:
            return stack[-1]
        if torch._C._current_graph_task_id() != -1:
            node = torch._C._current_autograd_node()
            return self.backward_scopes.get(node._sequence_nr(), "") if node is not None else ""
        return ""

    def _phase(self):
        if "phase" in self.by_user:
            return self.clock["phase"]
        if self.in_step:
            return "optimizer"
        if torch._C._current_graph_task_id() != -1:
            self.saw_backward = True
            return "recompute" if self._stack() else "backward"
        return "gradients" if self.saw_backward else self.clock["phase"]

    def _enter_module(self, module, _args):
        if not torch.compiler.is_compiling() and self.live:
            if not self._stack() and torch._C._current_graph_task_id() == -1:
                self._begin_forward(module)
            self._stack().append(self.modules.get(module, type(module).__name__))

    def _leave_module(self, _module, _args, _output):
        if not torch.compiler.is_compiling() and self.live and self._stack():
            self._stack().pop()

    def _begin_forward(self, module):
        """The outermost module is called: a step's or a microbatch's forward begins."""
        if "iteration" not in self.by_user and (self.stepped or self.clock["iteration"] == 0):
            self._turn(self.clock["iteration"] + 1)
        if not self.live:
            return
        self._enter_window()
        if "microbatch" not in self.by_user:
            before = self.clock["microbatch"]
            self.clock["microbatch"] = 0 if before is None else before + bool(self.saw_backward)
        self.saw_backward = False
        if "phase" not in self.by_user:
            self.clock["phase"] = "forward"
        self._guard(self._name_modules, module)
        self._guard(self.open, True)

    def _name_modules(self, root):
        if root in self.modules:
            return
        prefix = "" if not self.roots else "%s#%d" % (type(root).__name__, self.roots)
        self.roots += 1
        for name, module in root.named_modules():
            path = "/".join(p for p in (prefix, name.replace(".", "/")) if p)
            self.modules.setdefault(module, path)
        for name, parameter in root.named_parameters():
            self.parameters.setdefault(parameter, ".".join(p for p in (prefix, name) if p))

    def _parameters_of(self, optimizer):
        for g, group in enumerate(optimizer.param_groups):
            for p, parameter in enumerate(group["params"]):
                yield self.parameters.get(parameter, "group%d.param%d" % (g, p)), parameter

    def _before_step(self, optimizer, _args, _kwargs):
        self._guard(self._gradients, optimizer)
        self.in_step += 1

    def _gradients(self, optimizer):
        for name, parameter in self._parameters_of(optimizer):
            grad = parameter.grad
            if grad is not None:
                self._settle_before([grad])
            self._record("grad", name, [], [] if grad is None else [self.fingerprint(grad)],
                         absent=True if grad is None else None)

    def _after_step(self, optimizer, _args, _kwargs):
        self._guard(lambda: [self._record("param", name, [], [self.fingerprint(p)])
                             for name, p in self._parameters_of(optimizer)])
        self.in_step, self.stepped, self.saw_backward = max(0, self.in_step - 1), True, False
        if "phase" not in self.by_user:
            self.clock["phase"] = "setup"

    def written(self, *tensors):
        """Says that a kernel which torch's dispatcher does not see has written all of these."""
        self._guard(lambda: [self.memory.written(t) for t in tensors])

    def tensor(self, name, value, kind="tensor"):
        """A record of the user's own: a loss, a norm, a hidden state."""
        def write():
            t = value if isinstance(value, torch.Tensor) else torch.tensor(
                value, dtype=torch.float64)
            self._settle_before([t])
            self._record(kind, name, [], [self.fingerprint(t)])
        self._guard(write)

    # -- on and off

    def start(self):
        self.parameters = torch.utils.weak.WeakTensorKeyDictionary()
        modules, optimizers = torch.nn.modules.module, sys.modules["torch.optim.optimizer"]
        handles = [modules.register_module_forward_pre_hook(self._enter_module),
                   modules.register_module_forward_hook(self._leave_module, always_call=True),
                   optimizers.register_optimizer_step_pre_hook(self._before_step),
                   optimizers.register_optimizer_step_post_hook(self._after_step)]
        self.undo = [handle.remove for handle in handles]
        self._patch(torch.UntypedStorage, "resize_", self._resize)
        if torch.distributed.is_available():
            c10d = torch._C._distributed_c10d
            for name in ("wait", "synchronize"):
                self._patch(c10d.Work, name, self._wait)
            self._patch(c10d.ProcessGroup, "_start_coalescing", self._start_batch)
            self._patch(c10d.ProcessGroup, "_end_coalescing", self._end_batch)
        if torch.cuda.is_available():
            for name in ("record", "wait", "synchronize", "query"):
                self._patch(torch.cuda.Event, name, self._event)
        if self.clock["iteration"] in self.settings.steps:
            self.entered = True
            self.__enter__()

    def _patch(self, owner, name, around):
        original, own = getattr(owner, name), name in vars(owner)

        def patched(this, *args, **kwargs):
            return around(original, name, this, *args, **kwargs)
        setattr(owner, name, patched)
        self.undo.append(lambda: setattr(owner, name, original) if own else delattr(owner, name))

    def _resize(self, original, _name, storage, *args, **kwargs):
        before = storage.nbytes()
        result = original(storage, *args, **kwargs)
        if storage.device.type != "meta" and storage.nbytes() > before:
            self._guard(lambda: self.memory.taint(torch.empty(
                0, dtype=torch.uint8, device=storage.device).set_(storage), before))
        return result

    def _wait(self, original, _name, work, *args, **kwargs):
        result = original(work, *args, **kwargs)
        self._guard(self._waited, work)
        return result

    def _start_batch(self, original, _name, group, *args, **kwargs):
        result = original(group, *args, **kwargs)
        self.batches[group.group_name] = []
        return result

    def _end_batch(self, original, _name, group, *args, **kwargs):
        work = original(group, *args, **kwargs)
        for flight in self.batches.pop(group.group_name, []):
            flight.work = work
        return work

    def _event(self, original, name, event, *args, **kwargs):
        result = original(event, *args, **kwargs)
        stream = args[0] if args else kwargs.get("stream")

        def write():
            where = stream if stream is not None else torch.cuda.current_stream()
            number = self.streams.setdefault(("event", id(event)), len(self.streams))
            self._record("event", name, [], [], note={
                "event": number, "stream": self._stream_number(where),
                "answer": result if name == "query" else None})
        if self.clock["iteration"] in self.settings.steps:
            self._guard(write)
        return result

    def _unpatch(self):
        while self.undo:
            self.undo.pop()()

    def close(self):
        """Writes what is left and takes every hook and patch away. May be called twice."""
        global _active
        self._guard(self._finish)
        self.live = False
        self._unpatch()
        if self.entered and _get_current_dispatch_mode() is self:
            self.entered = False
            self.__exit__(None, None, None)
        if self.stream is not None:
            self.stream.close()
            self.stream = None
        if _active is self:
            _active = None

    def _finish(self):
        self._settle([f for f in self.flights if f.is_done()], "end")
        for flight in self.flights:
            outs = [self.fingerprint(t) for t in (v.tensor() for v in flight.writes)
                    if t is not None]
            self._record("collective", flight.name, flight.inputs, outs, **flight.facts,
                         completed="never")
        self.flights = []
        self.open(required=self.clock["iteration"] > 0)
        if self.stream is None:
            if self.lines:
                say("no rank was known and no module ran: nothing is written")
            return
        self._record("recorder", "end", [], [], records=self.seq,
                     unseen=dict(sorted(self.unseen.items())) or None)
        self.flush()


class NeverDone:
    """Stands for the work of a functional collective: only wait_tensor completes it."""
    is_completed = staticmethod(lambda: False)
    get_future = staticmethod(lambda: NeverDone)
    done = staticmethod(lambda: False)


# ---- entry points -------------------------------------------------------------------------------

_active = None


def say(text):
    print("bitproof_trace: " + text, file=sys.stderr, flush=True)


def rank_and_world():
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    for rank, world in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
                        ("SLURM_PROCID", "SLURM_NTASKS")):
        if os.environ.get(rank, "").isdigit() and os.environ.get(world, "").isdigit():
            return int(os.environ[rank]), int(os.environ[world])
    return None, None


def _forked():
    """A forked child (a data loader's worker) records nothing and writes to no file of ours."""
    global _active
    if _active is not None:
        _active.live, _active.lines, _active = False, [], None


def _start(settings, rank_now):
    global _active
    if _active is not None:
        raise RecorderError("already recording to %s: close that first" % _active.settings.folder)
    recorder = Recorder(settings, rank_now)
    if recorder.live:
        recorder.start()
    _active = recorder
    if not getattr(os, "_bitproof_trace_fork", False) and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forked)
        os._bitproof_trace_fork = True
    return recorder


@contextlib.contextmanager
def record(folder, **settings):
    """Records what runs inside. Refuses a folder that holds this rank's trace already."""
    recorder = _start(Settings(folder, **settings), rank_now=True)
    try:
        yield recorder
    finally:
        recorder.close()


def auto(**settings):
    """Records this process until it ends, if BITPROOF_TRACE names a folder. What is wrong with
    the request is said on stderr; the training runs all the same. Returns the recorder or None."""
    folder = os.environ.get("BITPROOF_TRACE")
    if not folder:
        return None
    try:
        recorder = _start(Settings(folder, **settings), rank_now=rank_and_world()[0] is not None)
    except (RecorderError, OSError, ValueError) as error:
        say("nothing is recorded: %s" % error)
        return None
    atexit.register(recorder.close)
    return recorder


def main(arguments):
    if not arguments or arguments[0].startswith("-"):
        say("expected: BITPROOF_TRACE=DIR python -m bitproof_trace SCRIPT [ARGUMENT...]")
        return 2
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    auto()
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    import bitproof_trace
    sys.exit(bitproof_trace.main(sys.argv[1:]))
