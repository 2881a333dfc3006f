"""Tests of the recorder: python -m unittest discover -s python  (torch on the CPU, gloo, loopback).

Skipped, with the reason, where torch is not installed; with BITPROOF_REQUIRE_TORCH=1 that fails.
"""
import collections
import contextlib
import ctypes
import gc
import glob
import gzip
import hashlib
import io
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
try:
    import torch
except ImportError as error:
    if os.environ.get("BITPROOF_REQUIRE_TORCH") == "1":
        raise
    raise unittest.SkipTest("torch is not installed: %s" % error)
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.nn.functional import cross_entropy

import bitproof_trace as bt


def setUpModule():
    torch.set_num_threads(1)


# ---- a small training ---------------------------------------------------------------------------

class Net(nn.Module):
    def __init__(self, vocab=24, d=8, h=16):
        super().__init__()
        self.emb, self.fc1, self.fc2 = nn.Embedding(vocab, d), nn.Linear(d, h), nn.Linear(h, d)
        self.drop, self.norm, self.head = nn.Dropout(0.1), nn.LayerNorm(d), nn.Linear(d, vocab)

    def forward(self, x):
        e = self.emb(x)
        return self.head(self.norm(e + self.drop(self.fc2(nn.functional.gelu(self.fc1(e))))))


def train(model, steps=3, microbatches=2, each=lambda step: None, no_sync=None):
    """Losses, digests of the parameters and one of the generator's state, as text."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        for micro in range(microbatches):
            x = torch.randint(0, 24, (2, 7))
            quiet = no_sync is not None and micro + 1 < microbatches
            with no_sync() if quiet else contextlib.nullcontext():
                loss = cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
                loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        each(step)
    parameters = []    # digests that owe nothing to the recorder's
    for p in model.parameters():
        p = getattr(p, "_local_tensor", p).detach()
        raw = struct.pack("<%df" % p.numel(), *p.reshape(-1).tolist())
        parameters.append(hashlib.blake2b(raw, digest_size=8).hexdigest())
    rng = hashlib.sha256(bytes(torch.get_rng_state().tolist())).hexdigest()
    return {"losses": losses, "parameters": parameters, "rng": rng}


def records_of(folder, rank=0):
    path = os.path.join(folder, "rank_%06d.jsonl.gz" % rank)
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Case(unittest.TestCase):
    def setUp(self):
        self.base = tempfile.mkdtemp(prefix="bitproof-trace-test-")
        self.addCleanup(shutil.rmtree, self.base)
        self.folder = os.path.join(self.base, "trace")

    def recorded(self, work, **settings):
        settings.setdefault("steps", "all")
        with bt.record(self.folder, **settings) as trace:
            work(trace)
        return records_of(self.folder)

    def by_name(self, records, start):
        found = [r for r in records if r["name"].startswith(start)]
        self.assertTrue(found, "no record of %s" % start)
        return found


class Digests(unittest.TestCase):
    def test_known_vectors(self):
        self.assertEqual(bt.hash_tensor(torch.tensor([1.0, 2.0])), "7ff0000000000000")
        self.assertEqual(bt.hash_tensor(torch.tensor([1.0, -2.5, 3.25])), "bffe000000000000")
        self.assertEqual(bt.hash_tensor(torch.randperm(65536)), "0" * 16)
        self.assertEqual(bt.hash_tensor(torch.tensor([255], dtype=torch.uint8)), "f" * 16)

    def test_bytes_are_those_of_the_logical_order(self):
        t = torch.arange(12.0).view(3, 4).t()
        raw = struct.pack("<12f", *t.reshape(-1).tolist())
        self.assertEqual(bt.bytes64(t), hashlib.blake2b(raw, digest_size=8).hexdigest())
        self.assertEqual(bt.hash_tensor(t), bt.hash_tensor(t.t()))
        self.assertNotEqual(bt.bytes64(t), bt.bytes64(t.t()))

    def test_every_dtype_has_a_digest_and_the_fold_agrees_with_torch(self):
        names = ("float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool uint16 uint32 "
                 "uint64 complex64 complex128 float8_e4m3fn float8_e5m2").split()
        generator = torch.Generator().manual_seed(3)
        for dtype in (getattr(torch, n) for n in names if hasattr(torch, n)):
            for n in (1, 2, 7, 64):
                t = (torch.randn(n, generator=generator) * 9).abs().to(dtype)
                self.assertRegex(bt.hash_tensor(t), "^[0-9a-f]{16}$")
                self.assertRegex(bt.bytes64(t), "^[0-9a-f]{16}$")
                if dtype.is_floating_point and dtype.itemsize > 1:
                    words = t.to(torch.float64).view(torch.int64)
                    self.assertEqual("%016x" % bt.xor_fold(words), bt.hash_tensor(t))

    def test_lazy_conjugates_are_read_as_what_they_mean(self):
        z = torch.tensor([1 + 2j, 3 - 4j])
        self.assertEqual(bt.bytes64(z.conj()), bt.bytes64(z.conj().resolve_conj().clone()))
        self.assertEqual(bt.hash_tensor(z.conj()), bt.hash_tensor(z.conj().resolve_conj().clone()))


class Bytes(unittest.TestCase):
    def test_sets_of_bytes_against_brute_force(self):
        rng = random.Random(11)
        for _ in range(400):
            runs, flags = bt.ByteSet(), [False] * 48
            for _ in range(rng.randrange(1, 12)):
                begin, length = rng.randrange(40), rng.randrange(0, 8)
                if rng.random() < 0.5:
                    runs.add(begin, begin + length)
                    flags[begin:begin + length] = [True] * length
                else:
                    step = length + rng.randrange(0, 3)
                    cuts = [(b, b + length) for b in range(begin, 40, max(1, step))][:3]
                    cuts = cuts if length else []
                    runs.remove(cuts)
                    for b, e in cuts:
                        flags[b:e] = [False] * (min(e, 48) - b)
                flags = (flags + [False] * 48)[:48]
                held = [any(b <= i < e for b, e in runs.runs) for i in range(48)]
                self.assertEqual(held, flags)
                for i in range(47):
                    self.assertEqual(runs.meets(i, i + 2), any(flags[i:i + 2]))

    def test_a_views_bytes_against_brute_force(self):
        rng = random.Random(12)
        for _ in range(400):
            dims = rng.randrange(0, 4)
            shape = [rng.randrange(0, 4) for _ in range(dims)]
            stride = [rng.choice((0, 1, 2, 3, 4, 12)) for _ in range(dims)]
            offset = rng.randrange(4)
            t = torch.zeros(64, dtype=torch.int16).as_strided(shape, stride, offset)
            touched = set()
            for flat in range(t.numel()):
                at, rest = offset, flat
                for n, st in zip(reversed(shape), reversed(stride)):
                    at, rest = at + rest % n * st, rest // n
                touched |= {2 * at, 2 * at + 1}
            runs = bt.byte_runs(t)
            self.assertEqual({i for b, e in runs for i in range(b, e)}, touched)
            self.assertEqual([e for _, e in runs], sorted(e for _, e in runs))
            if touched:
                self.assertEqual(bt.hull(t), (min(touched), max(touched) + 1))


class Memory(Case):
    def test_an_uninitialised_read_is_marked_and_not_digested(self):
        def work(_):
            x = torch.empty(6)
            x + 1
            x.zero_()
            x + 2
        adds = self.by_name(self.recorded(work), "aten.add")
        operand = adds[0]["payload"]["in"][0]
        self.assertEqual((operand["digest"], operand["bytes64"]), (None, None))
        self.assertTrue(operand["tainted"] and adds[0]["payload"]["reads_tainted"])
        self.assertNotIn("tainted", adds[1]["payload"]["in"][0])
        self.assertIsNotNone(adds[1]["payload"]["in"][0]["digest"])
        self.assertNotIn("reads_tainted", adds[1]["payload"])

    def test_write_only_operands_are_left_out(self):
        def work(_):
            torch.empty(4).copy_(torch.ones(4))
            torch.add(torch.ones(2), 1, out=torch.empty(2))
            torch.empty(3).bernoulli_(0.5)
        records = self.recorded(work)
        for name, place in (("aten.copy_", 0), ("aten.add.out", -1), ("aten.bernoulli_", 0)):
            record = self.by_name(records, name)[0]
            operand = record["payload"]["in"][place]
            self.assertTrue(operand["write_only"])
            self.assertIsNone(operand["digest"])
            self.assertIsNotNone(record["payload"]["out"][0]["digest"])

    def test_taint_goes_by_bytes_and_is_shared_by_views(self):
        def work(_):
            buffer = torch.empty(4, 4)
            buffer[:, :2].fill_(1)       # half of each row
            buffer[:, :2].sum()          # clean
            buffer[1:3].sum()            # partly unwritten
            buffer.view(16)[4:].sum()
            buffer[:, 2:].copy_(torch.ones(4, 2))
            buffer.view(16)[4:].sum()    # clean
        sums = self.by_name(self.recorded(work), "aten.sum")
        tainted = [bool(r["payload"]["in"][0].get("tainted")) for r in sums]
        self.assertEqual(tainted, [False, True, True, False])

    def test_a_copy_of_unwritten_memory_is_unwritten(self):
        def work(_):
            a = torch.empty(4)
            b = a.clone()
            b.sum()
            torch.ones(4).copy_(a).sum()
            torch.zeros_like(a).sum()    # reads only the shape
        records = self.recorded(work)
        sums = self.by_name(records, "aten.sum")
        self.assertEqual([bool(r["payload"]["in"][0].get("tainted")) for r in sums],
                         [True, True, False])
        zeros = self.by_name(records, "aten.zeros_like")[0]
        self.assertNotIn("reads_tainted", zeros["payload"])

    def test_grown_storage_is_unwritten_where_it_grew(self):
        def work(_):
            a = torch.ones(2)
            a.resize_(4)
            a[:2].sum()
            a.sum()
            b = torch.ones(4)
            b.untyped_storage().resize_(0)
            b.untyped_storage().resize_(16)
            b.sum()
        sums = self.by_name(self.recorded(work), "aten.sum")
        self.assertEqual([bool(r["payload"]["in"][0].get("tainted")) for r in sums],
                         [False, True, True])

    def test_an_op_kernel_unseen_can_be_declared(self):
        def work(trace):
            a = torch.empty(2)
            ctypes.memset(a.data_ptr(), 0, 8)
            trace.written(a)
            a.sum()
        sums = self.by_name(self.recorded(work), "aten.sum")
        self.assertEqual(sums[0]["payload"]["in"][0]["digest"], "0" * 16)

    def test_what_cannot_be_read_says_so_and_the_recording_goes_on(self):
        def work(_):
            model = nn.Embedding(8, 2, sparse=True)
            model(torch.tensor([1, 3])).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
            torch.ones(3) + 1
        records = self.recorded(work)
        grad = next(r for r in records if r["kind"] == "grad")["payload"]["out"][0]
        self.assertIsNone(grad["digest"])
        self.assertIn("sparse", grad["unreadable"])
        self.assertEqual(records[-1]["name"], "end")

    def test_inputs_are_digested_before_the_call(self):
        def work(_):
            torch.ones(3).add_(1)
        add = self.by_name(self.recorded(work), "aten.add_")[0]["payload"]
        self.assertEqual(add["in"][0]["bytes64"], bt.bytes64(torch.ones(3)))
        self.assertEqual(add["out"][0]["bytes64"], bt.bytes64(torch.full((3,), 2.0)))

    def test_places_in_storage_are_noted(self):
        def work(_):
            a = torch.zeros(4, 3)
            a[1:, 1:].sum()
        record = self.by_name(self.recorded(work), "aten.sum")[0]
        storage, begin, end, stride = record["payload"]["note"]["memory"]["in"][0]
        self.assertEqual((begin, end, stride), (16, 48, [3, 1]))
        self.assertIsInstance(storage, int)

    def test_no_tensor_is_kept_alive(self):
        gc.disable()
        self.addCleanup(gc.enable)

        def work(_):
            a = torch.ones(1000)
            b = (a * 2).sum()
            weak = [bt.StorageWeakRef(t.untyped_storage()) for t in (a, b)]
            del a, b
            self.assertTrue(all(w.expired() for w in weak))
        self.recorded(work)


class Training(Case):
    def fresh(self, wrap=lambda model: model, **settings):
        """The same training without and with the recorder."""
        torch.manual_seed(1)
        without = train(wrap(Net()))
        torch.manual_seed(1)
        with bt.record(self.folder, **{"steps": "all", **settings}):
            recorded = train(wrap(Net()))
        self.assertEqual(recorded, without)
        return records_of(self.folder)

    def test_losses_parameters_and_generator_are_untouched(self):
        records = self.fresh()
        self.assertIn("aten.bernoulli_.float", {r["name"] for r in records})

    def test_iterations_microbatches_phases_and_scopes_by_default(self):
        records = self.fresh()
        self.assertEqual(sorted({r["iteration"] for r in records}), [0, 1, 2, 3])
        products = [r for r in records if r["name"] == "aten.addmm.default"]
        self.assertEqual([(r["iteration"], r["microbatch"]) for r in products[::3]],
                         [(i, m) for i in (1, 2, 3) for m in (0, 1)])
        self.assertEqual([r["payload"]["scope"] for r in products[:3]], ["fc1", "fc2", "head"])
        self.assertEqual({r["phase"] for r in products}, {"forward"})
        backward = [r for r in records if r["name"] == "aten.mm.default"]
        self.assertEqual({r["phase"] for r in backward}, {"backward"})
        self.assertEqual({r["payload"]["scope"] for r in backward}, {"fc1", "fc2", "head"})
        grads = [r for r in records if r["kind"] == "grad" and r["iteration"] == 2]
        params = [r for r in records if r["kind"] == "param" and r["iteration"] == 2]
        names = [n for n, _ in Net().named_parameters()]
        self.assertEqual([r["name"] for r in grads], names)
        self.assertEqual([r["name"] for r in params], names)
        self.assertLess(grads[-1]["seq"], params[0]["seq"])
        steps = [r["seq"] for r in records if r["phase"] == "optimizer" and r["kind"] == "op"
                 and r["iteration"] == 2]
        self.assertTrue(grads[-1]["seq"] < steps[0] < steps[-1] < params[0]["seq"])
        keys = collections.Counter((r["iteration"], r["kind"], r["payload"]["id"])
                                   for r in records)
        self.assertEqual(set(keys.values()), {1})

    def test_time_can_be_set_by_the_user(self):
        def work(trace):
            trace.iteration, trace.microbatch, trace.phase = 7, 2, "warmup"
            torch.ones(1) + 1
            trace.tensor("loss", 0.5, kind="metric")
        records = self.recorded(work)
        self.assertEqual({(r["iteration"], r["microbatch"], r["phase"]) for r in records},
                         {(7, 2, "warmup")})
        metric = next(r for r in records if r["kind"] == "metric")
        raw = struct.pack("<d", 0.5)
        self.assertEqual(metric["payload"]["out"][0]["bytes64"],
                         hashlib.blake2b(raw, digest_size=8).hexdigest())

    def test_windows_are_kept_and_everything_is_off_after_them(self):
        before = switches()
        torch.manual_seed(1)
        states = []
        with bt.record(self.folder, steps="2"):
            train(Net(), steps=4, each=lambda step: states.append(switches()))
        records = records_of(self.folder)
        self.assertEqual({r["iteration"] for r in records}, {2})
        self.assertEqual(states[3], before)
        self.assertNotEqual(states[1], before)
        self.assertTrue([r for r in records if r["kind"] == "op"])

    def test_another_dispatch_mode_keeps_its_place(self):
        class Other(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))
        torch.manual_seed(1)
        model = Net()
        with bt.record(self.folder, steps="1-2"):
            with Other() as other:
                train(model, steps=1)    # the window begins within it
                self.assertIs(_get_current_dispatch_mode(), other)
            self.assertEqual(torch._C._len_torch_dispatch_stack(), 0)
            train(model, steps=1)
        records = records_of(self.folder)
        self.assertEqual({r["iteration"] for r in records if r["kind"] == "op"}, {2})
        self.assertTrue(records[-1]["payload"]["unseen"])

    def test_recomputation_has_a_phase_of_its_own(self):
        from torch.utils.checkpoint import checkpoint

        class Recomputed(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                return checkpoint(self.inner, x, use_reentrant=False)
        records = self.fresh(Recomputed)
        products = [r for r in records if r["name"] == "aten.addmm.default"]
        again = [r["payload"]["scope"] for r in products if r["phase"] == "recompute"]
        # torch stops a recomputation once it has all that backward saved: before the last product.
        self.assertEqual(again, ["inner/fc1", "inner/fc2"] * 6)
        forward = [r["payload"]["scope"] for r in products if r["phase"] == "forward"]
        self.assertEqual(forward, ["inner/fc1", "inner/fc2", "inner/head"] * 6)

    def test_a_compiled_module_computes_the_same_and_its_inside_is_not_seen(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            records = self.fresh(lambda m: torch.compile(m, backend="aot_eager"))
        self.assertEqual(records[-1]["name"], "end")
        torch._dynamo.reset()

    def test_a_fault_of_the_recorder_ends_the_recording_and_not_the_training(self):
        torch.manual_seed(1)
        without = train(Net())
        original, calls = bt.hash_tensor, []

        def faulty(t):
            calls.append(1)
            if len(calls) > 300:
                raise ZeroDivisionError("planted")
            return original(t)
        bt.hash_tensor = faulty
        self.addCleanup(setattr, bt, "hash_tensor", original)
        torch.manual_seed(1)
        told = io.StringIO()
        with contextlib.redirect_stderr(told), bt.record(self.folder, steps="all"):
            recorded = train(Net())
        self.assertEqual(recorded, without)
        self.assertIn("planted", told.getvalue())
        last = records_of(self.folder)[-1]
        self.assertEqual((last["kind"], last["name"]), ("recorder", "failed"))
        self.assertIn("planted", last["payload"]["reason"])

    def test_an_error_of_the_training_is_passed_on(self):
        def work(_):
            with self.assertRaisesRegex(RuntimeError, "shape|size"):
                torch.ones(2, 3) @ torch.ones(2, 3)
            torch.ones(1) + 1
        self.by_name(self.recorded(work), "aten.add")


def switches():
    """Everything that a recorder could have patched or hooked, by identity."""
    c10d, module = torch._C._distributed_c10d, torch.nn.modules.module
    optimizer = sys.modules["torch.optim.optimizer"]
    return ([getattr(c10d.Work, n) for n in ("wait", "synchronize")],
            [getattr(c10d.ProcessGroup, n) for n in ("_start_coalescing", "_end_coalescing")],
            "resize_" in vars(torch.UntypedStorage),
            [len(hooks) for hooks in (
                module._global_forward_pre_hooks, module._global_forward_hooks,
                optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)],
            torch._C._len_torch_dispatch_stack())


class Files(Case):
    def test_an_existing_trace_is_refused_and_left_alone(self):
        self.recorded(lambda _: torch.ones(1) + 1)
        before = {f: read(f) for f in glob.glob(self.folder + "/*")}
        with self.assertRaisesRegex(bt.RecorderError, "exists"):
            with bt.record(self.folder):
                self.fail("it was not refused")
        os.remove(os.path.join(self.folder, "run.json"))
        with self.assertRaisesRegex(bt.RecorderError, "never written over"):
            with bt.record(self.folder, gzip=False):
                self.fail("a second file for this rank was not refused")
        for path, data in before.items():
            if os.path.exists(path):
                self.assertEqual(read(path), data)
        self.assertEqual(len(os.listdir(self.folder)), 1)

    def test_plain_files_and_settings_that_are_wrong(self):
        with bt.record(self.folder, gzip=False, steps="all", bytes=False, memory=False):
            torch.ones(1) + 1
        with open(os.path.join(self.folder, "rank_000000.jsonl")) as file:
            record = json.loads(file.readline())
        self.assertIsNone(record["payload"]["out"][0]["bytes64"])
        self.assertNotIn("note", record["payload"])
        for wrong in ({"steps": "3-1"}, {"ranks": "x"}, {"bytes": "maybe"}, {"colour": 1}):
            with self.assertRaises(bt.RecorderError):
                bt.Settings(self.base, **wrong)

    def test_run_json_holds_no_secrets(self):
        planted = {"NCCL_ALGO": "Ring", "NCCL_SECRET_KEY": "hush", "AWS_SECRET": "hush",
                   "WANDB_API_KEY": "hush", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        for name, value in planted.items():
            old = os.environ.get(name)
            os.environ[name] = value
            self.addCleanup(lambda n=name, o=old: os.environ.pop(n) if o is None
                            else os.environ.__setitem__(n, o))
        self.recorded(lambda _: torch.ones(1) + 1)
        with open(os.path.join(self.folder, "run.json")) as file:
            text = file.read()
        self.assertNotIn("hush", text)
        environment = json.loads(text)["environment"]
        self.assertEqual(environment["NCCL_ALGO"], "Ring")
        self.assertEqual(environment["CUBLAS_WORKSPACE_CONFIG"], ":4096:8")
        self.assertEqual(json.loads(text)["torch"], torch.__version__)

    def test_a_forked_child_writes_nothing(self):
        def work(_):
            torch.ones(1) + 1
            child = os.fork()
            if child == 0:
                torch.ones(1) * 3
                gc.collect()
                os._exit(0)
            os.waitpid(child, 0)
            torch.ones(1) + 2
        records = self.recorded(work)
        self.assertFalse([r for r in records if r["name"].startswith("aten.mul")])
        self.assertEqual([r["seq"] for r in records], list(range(len(records))))


SCRIPT = """
import os, signal, sys
sys.path.insert(0, %r)
import torch
torch.set_num_threads(1)
import test_bitproof_trace as t, bitproof_trace
before = t.switches()
if os.environ.get("AUTO"):
    bitproof_trace.auto()
print("patched" if t.switches() != before else "nothing patched")
torch.manual_seed(1)
kill = os.environ.get("KILL")
die = lambda step: step == 1 and kill and os.kill(os.getpid(), signal.SIGKILL)
print(",".join(t.train(t.Net(), each=die)["parameters"]), sys.argv[1:])
""" % HERE


class Processes(Case):
    def script(self, *arguments, **environment):
        path = os.path.join(self.base, "train.py")
        with open(path, "w") as file:
            file.write(SCRIPT)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("BITPROOF_TRACE")}
        return subprocess.run([sys.executable, *arguments, path, "--lr", "1"], text=True, cwd=HERE,
                              env={**kept, **environment}, capture_output=True, timeout=300)

    def test_off_patches_nothing_and_on_changes_nothing(self):
        off = self.script(AUTO="1")
        self.assertEqual(off.returncode, 0, off.stderr)
        self.assertTrue(off.stdout.startswith("nothing patched"))
        on = self.script(AUTO="1", BITPROOF_TRACE=self.folder, BITPROOF_TRACE_STEPS="1-2")
        self.assertTrue(on.stdout.startswith("patched"), on.stderr)
        self.assertEqual(on.stdout.split()[1], off.stdout.split()[2])
        self.assertEqual({r["iteration"] for r in records_of(self.folder)}, {1, 2})
        again = self.script(AUTO="1", BITPROOF_TRACE=self.folder, RANK="0", WORLD_SIZE="1")
        self.assertEqual((again.returncode, again.stdout), (0, off.stdout))
        self.assertIn("exists", again.stderr)

    def test_as_a_module_the_script_gets_its_arguments(self):
        ran = self.script("-m", "bitproof_trace", BITPROOF_TRACE=self.folder)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertTrue(ran.stdout.rstrip().endswith("['--lr', '1']"))
        self.assertEqual(sorted({r["iteration"] for r in records_of(self.folder)}), [0, 1, 2])

    def test_a_killed_run_leaves_a_readable_prefix(self):
        ran = self.script(AUTO="1", KILL="1", BITPROOF_TRACE=self.folder,
                          BITPROOF_TRACE_STEPS="all", BITPROOF_TRACE_FLUSH="32")
        self.assertEqual(ran.returncode, -signal.SIGKILL)
        records = records_of(self.folder)    # reads to the end of the file, without an error
        self.assertGreater(len(records), 256)
        self.assertEqual([r["seq"] for r in records], list(range(len(records))))
        self.assertEqual(max(r["iteration"] for r in records), 2)
        self.assertNotIn("recorder", {r["kind"] for r in records})


if __name__ == "__main__":
    unittest.main()
