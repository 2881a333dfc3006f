"""Tests of the recorder with four processes: gloo on loopback, plain and wrapped models."""
import collections
import contextlib
import hashlib
import itertools
import json
import os
import shutil
import struct
import tempfile
import unittest
import warnings

from test_bitproof_trace import Net, bt, read, records_of, torch, train    # skips without torch

import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WORLD = 4


def arrival_hook(state, bucket):
    """Sums buckets on rank 0 in the order in which they arrive. A store fixes who comes when."""
    order, store, count = state
    buf, turn_of = bucket.buffer(), "bucket %d of all, turn %%d" % next(count)
    if dist.get_rank() == 0:
        acc, tmp = buf.clone(), torch.zeros_like(buf)
        for turn in range(WORLD - 1):
            store.set(turn_of % turn, "go")
            dist.recv(tmp)    # whoever comes first
            acc.add_(tmp)
        buf.copy_(acc.div_(WORLD))
    else:
        store.wait([turn_of % order.index(dist.get_rank())])
        dist.send(buf, 0)
    dist.broadcast(buf, 0)
    done = torch.futures.Future()
    done.set_result(buf)
    return done


def wrapped(kind, model, order, store):
    if kind == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel
        return FullyShardedDataParallel(model, device_id=torch.device("cpu")), None
    if kind == "fully_shard":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (WORLD,))
        fully_shard(model.fc1, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, None
    views = kind == "views"
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001,
                                              gradient_as_bucket_view=views)
    if kind == "arrival":
        ddp.register_comm_hook((order, store, itertools.count()), arrival_hook)
    return ddp, ddp.no_sync


def in_flight(rank, store):
    """Rank 0 reads the result of a collective that cannot be complete yet."""
    x = torch.full((3,), float(rank + 1))
    work = None
    if rank != 0:
        store.wait(["read"])
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        x + 1
        store.set("read", "yes")
    work.wait()
    x + 2


def run(rank, folder, store, kind, recorded=True, order=(1, 2, 3), ranks="all"):
    torch.manual_seed(5)
    with bt.record(folder, steps="all", ranks=ranks) if recorded else contextlib.nullcontext():
        if kind == "in_flight":
            return in_flight(rank, store)
        model, no_sync = wrapped(kind, Net(), order, store)
        torch.manual_seed(100 + rank)
        return train(model, no_sync=no_sync)


# Runs that may share their processes, in order: starting four of them costs the most.
FIRST = {"a": {"kind": "ddp"}, "a-off": {"kind": "ddp", "recorded": False}}
for _kind in ("views", "fsdp", "fully_shard"):
    FIRST[_kind] = {"kind": _kind}
    FIRST[_kind + "-off"] = {"kind": _kind, "recorded": False}
FIRST["arrival-123"] = {"kind": "arrival"}
FIRST["in_flight"] = {"kind": "in_flight"}
FIRST["ranks"] = {"kind": "ddp", "ranks": "1,3"}
SECOND = {"b": {"kind": "ddp"}, "arrival-123-again": {"kind": "arrival"},
          "arrival-312": {"kind": "arrival", "order": (3, 1, 2)}}


def session(rank, base, number):
    """One of four processes: makes all runs of a session and leaves their results."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    meeting, results = os.path.join(base, "meeting%d" % number), {}
    dist.init_process_group("gloo", store=dist.FileStore(meeting, WORLD), rank=rank,
                            world_size=WORLD)
    for name, how in (FIRST, SECOND)[number].items():
        store = dist.FileStore("%s.%s" % (meeting, name), WORLD)
        results[name] = run(rank, os.path.join(base, name), store, **how)
        dist.barrier()
    with open("%s.%d.json" % (meeting, rank), "w") as file:
        json.dump(results, file)
    dist.destroy_process_group()


def content(record):
    """What a comparison looks at: all but the note."""
    payload = {k: v for k, v in record["payload"].items() if k != "note"}
    return {**record, "payload": payload}


def first_difference(a, b):
    for left, right in zip(a, b):
        if content(left) != content(right):
            return left, right
    return None


class Distributed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = tempfile.mkdtemp(prefix="bitproof-trace-test-")
        cls.addClassCleanup(shutil.rmtree, cls.base)
        cls.results = collections.defaultdict(list)
        for number in range(2):
            mp.spawn(session, (cls.base, number), nprocs=WORLD)
            for rank in range(WORLD):
                with open(os.path.join(cls.base, "meeting%d.%d.json" % (number, rank))) as file:
                    for name, result in json.load(file).items():
                        cls.results[name].append(result)

    def run_once(self, name):
        return os.path.join(self.base, name), self.results[name]

    def test_two_runs_are_identical_byte_for_byte(self):
        a, results = self.run_once("a")
        b, _ = self.run_once("b")
        for rank in range(WORLD):
            records = records_of(a, rank)
            self.assertGreater(len(records), 900)
            self.assertEqual([r["seq"] for r in records], list(range(len(records))))
            self.assertEqual({r["rank"] for r in records}, {rank})
            name = "rank_%06d.jsonl.gz" % rank
            self.assertEqual(read(os.path.join(a, name)), read(os.path.join(b, name)))
        self.assertNotEqual(results[0]["losses"], results[1]["losses"])

    def test_the_training_is_the_same_with_and_without(self):
        for name in ("a", "views", "fsdp", "fully_shard"):
            with self.subTest(name):
                folder, with_recorder = self.run_once(name)
                _, without = self.run_once(name + "-off")
                self.assertEqual(with_recorder, without)
                last = records_of(folder)[-1]
                self.assertEqual((last["kind"], last["name"]), ("recorder", "end"))

    def test_the_wrappers_collectives_are_seen(self):
        for name, wanted in (("a", {"all_gather", "broadcast", "all_reduce"}),
                             ("fsdp", {"all_gather"}), ("fully_shard", {"all_gather_into_tensor"})):
            folder, _ = self.run_once(name)
            seen = {r["name"] for r in records_of(folder) if r["kind"] == "collective"}
            self.assertLessEqual(wanted, seen, name)
            if name != "a":    # how gradients are reduced depends on torch's gloo
                self.assertTrue(seen & {"reduce_scatter_tensor", "all_reduce", "all_to_all"}, seen)

    def test_collectives_join_across_ranks(self):
        folder, _ = self.run_once("a")
        joined = collections.defaultdict(list)
        for rank in range(WORLD):
            sequence = []
            for r in records_of(folder, rank):
                if r["kind"] == "collective":
                    p = r["payload"]
                    self.assertEqual(p["group_ranks"], list(range(WORLD)))
                    self.assertEqual(p["algo"], "gloo")
                    sequence.append(p["group_seq"])
                    joined[p["group"], p["group_seq"]].append(r)
            self.assertEqual(sequence, list(range(len(sequence))))
        reduces = 0
        for same in joined.values():
            self.assertEqual(len(same), WORLD)
            self.assertEqual(len({r["name"] for r in same}), 1)
            if same[0]["name"] == "all_reduce":
                reduces += 1
                self.assertEqual(same[0]["payload"]["op"], "sum")
                ins, outs = ([r["payload"][w][0]["bytes64"] for r in same] for w in ("in", "out"))
                self.assertEqual((len(set(ins)), len(set(outs))), (WORLD, 1))
                self.assertNotIn(outs[0], ins)
        self.assertGreaterEqual(reduces, 3)

    def test_parameters_are_what_training_ended_with(self):
        folder, results = self.run_once("a")
        names = [n for n, _ in Net().named_parameters()]
        last = [r for r in records_of(folder) if r["kind"] == "param"][-len(names):]
        self.assertEqual([r["name"] for r in last], ["module." + n for n in names])
        self.assertEqual({r["iteration"] for r in last}, {3})
        self.assertEqual([r["payload"]["out"][0]["bytes64"] for r in last],
                         results[0]["parameters"])

    def test_arrival_order_parts_the_runs_and_is_named(self):
        a, _ = self.run_once("arrival-123")
        again, _ = self.run_once("arrival-123-again")
        b, _ = self.run_once("arrival-312")
        for rank in range(WORLD):
            here = records_of(a, rank)
            self.assertIsNone(first_difference(here, records_of(again, rank)))
            left, right = first_difference(here, records_of(b, rank))
            self.assertEqual(left["kind"], "collective")
            self.assertEqual(left["name"], "recv" if rank == 0 else "broadcast")
            if rank == 0:
                self.assertTrue(left["payload"]["any_source"])
                sources = [r["payload"]["note"]["source"] for r in (left, right)]
                self.assertEqual(sources, [1, 3])
            self.assertEqual(left["iteration"], 1)

    def test_operands_in_flight_are_marked_and_not_digested(self):
        folder, _ = self.run_once("in_flight")
        adds = [r for r in records_of(folder, 0) if r["name"] == "aten.add.Tensor"]
        self.assertTrue(adds[0]["payload"]["in"][0]["in_flight"])
        self.assertIsNone(adds[0]["payload"]["in"][0]["digest"])
        self.assertNotIn("in_flight", adds[1]["payload"]["in"][0])
        reduced = next(r for r in records_of(folder, 0) if r["kind"] == "collective")
        self.assertEqual(reduced["payload"]["completed"], "wait")
        raw = struct.pack("<3f", *[10.0] * 3)
        wanted = hashlib.blake2b(raw, digest_size=8).hexdigest()
        self.assertEqual(reduced["payload"]["out"][0]["bytes64"], wanted)

    def test_only_the_ranks_asked_for_are_recorded(self):
        folder, results = self.run_once("ranks")
        files = sorted(os.listdir(folder))
        self.assertEqual(files, ["rank_000001.jsonl.gz", "rank_000003.jsonl.gz", "run.json"])
        self.assertEqual(results, self.run_once("a-off")[1])
        with open(os.path.join(folder, "run.json")) as file:
            run = json.load(file)
        self.assertEqual((run["ranks"], run["world_size"], run["backend"]), ([1, 3], 4, "gloo"))


if __name__ == "__main__":
    unittest.main()
