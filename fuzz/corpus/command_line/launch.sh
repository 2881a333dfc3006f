#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=4
# A launch of our own: arrays, continuations, an inner shell.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_ALGO="Ring" NVTE_ALLOW_NONDETERMINISTIC_ALGO=0
NODES=${SLURM_NNODES:-1}
DATA=$1
TP=2

MODEL_ARGS=(
    --num-layers 4            # small
    --hidden-size 128
    --num-attention-heads 4
    --seq-length 64 --max-position-embeddings 64
)
TRAINING_ARGS="--micro-batch-size 2 --global-batch-size 32 \
    --train-iters 20 --lr 2.5e-4"
if [ "$TP" -gt 1 ]; then
    TRAINING_ARGS+=" --sequence-parallel"
fi

torchrun --nproc_per_node 4 --nnodes=$NODES tools/preprocess_data.py --workers 2 > log.txt 2>&1

cmd="pretrain_gpt.py ${MODEL_ARGS[*]} $TRAINING_ARGS \
    --tensor-model-parallel-size $TP --split 90,9,1 --data-path 0.5 $DATA 0.5 'other text' \
    --bf16 --lr-warmup-fraction=.01 --adam-eps 1e-8"
srun --label bash -c "torchrun --nproc-per-node=4 --nnodes $NODES ${cmd} $@" 2>&1 | tee out.log
