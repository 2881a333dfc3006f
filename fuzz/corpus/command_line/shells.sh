#!/bin/bash
#SBATCH -N 2 --ntasks=16
TP=2; while getopts "t:" o; do case $o in t|x) TP=$OPTARG ;; (*) exit 1 ;; esac; done
[[ -z "$X" && ( $1 =~ ^(a|b)$ ) ]] && export NCCL_PROTO=LL || true
declare -A C=([layers]=4); G=(8 4)
run() {
  local n=$(( ${G[0]} * G2 / 2 )); shift
  (cd x; env -u NCCL_PROTO A=1 mpirun -np 16 -x NCCL_ALGO=Ring python pretrain_gpt.py --num-layers ${C[layers]} --a $n "$@" |& tee log)
}
G2=4
for i in 1 2; do run $i --tensor-model-parallel-size "$TP" & done
if true; then eval "export B=\"$TP 'x'\""; else unset B; fi
srun -n8 bash -s <<'EOF'
torchrun --nproc-per-node=8 pretrain_gpt.py --seed $((1 + 2)) --b ${B:-3}
EOF
cat > f <<-END1
	not read (
	END1
exec python a.py
left ( unread
