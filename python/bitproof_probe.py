"""Runs one collective on probe inputs and keeps what comes out.

    torchrun --nproc-per-node 8 probe.py
    torchrun --nnodes 2 --nproc-per-node 8 ... probe.py --backend nccl

Written by `bitproof plan probe` beside `probe.json` and `inputs/`. Each rank runs the collective
once for each number of its input file, on a buffer that holds that number everywhere, and writes
all results to `outputs/rank_NNNNNN.bin`. Nothing else is recorded, and nothing is sent anywhere.
On several machines without a shared file system, copy this folder to each and the output files
back. Environment variables of NCCL are those of the job that is asked about.
"""

import argparse
import ctypes
import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def packed(tensor):
    """The tensor's bytes; numpy may not be there."""
    tensor = tensor.cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = "nccl" if torch.cuda.is_available() else "gloo"
    parser.add_argument("--backend", default=default, help=f"default: {default}")
    arguments = parser.parse_args()
    folder = pathlib.Path(__file__).resolve().parent
    probe = json.loads((folder / "probe.json").read_text())
    dist.init_process_group(arguments.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    if world != probe["ranks"]:
        sys.exit(f"{world} ranks were started, the probe is for {probe['ranks']}")
    device = torch.device("cpu")
    if arguments.backend == "nccl":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dtype, elements = DTYPES[probe["dtype"]], probe["elements"]
    inputs = bytearray((folder / "inputs" / f"rank_{rank:06}.bin").read_bytes())
    values = torch.frombuffer(inputs, dtype=dtype)
    if values.numel() != probe["runs"]:
        sys.exit(f"{values.numel()} inputs of {probe['runs']}: copy the folder again")
    outputs = folder / "outputs"
    outputs.mkdir(exist_ok=True)
    aside = outputs / f".rank_{rank:06}.partial"
    with open(aside, "wb") as file:
        for value in values:
            buffer = value.to(device).expand(elements).contiguous()
            if probe["operation"] == "reduce-scatter":
                result = torch.empty(elements // world, dtype=dtype, device=device)
                dist.reduce_scatter_tensor(result, buffer)
            else:
                dist.all_reduce(buffer)
                result = buffer
            file.write(packed(result))
        file.flush()
        os.fsync(file.fileno())
    aside.rename(outputs / f"rank_{rank:06}.bin")
    dist.barrier()
    if rank == 0:
        versions = f"torch {torch.__version__}, {arguments.backend}"
        if arguments.backend == "nccl":
            versions += " " + ".".join(map(str, torch.cuda.nccl.version()))
        print(f"{probe['runs']} runs on {world} ranks, {versions}")
        print(f"next: bitproof plan identify --inputs {folder}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
