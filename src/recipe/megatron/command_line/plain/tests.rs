use super::*;

const LAUNCH: &str = "torchrun --nproc-per-node 8 pretrain_gpt.py --seed 1";

#[track_caller]
fn plain(text: &str) {
    let beyond = first_beyond(text);
    assert_eq!(beyond.map(|span| &text[span]), None, "{text:?}");
}

#[track_caller]
fn beyond(text: &str, at: &str) {
    let span = first_beyond(text).unwrap_or_else(|| panic!("{text:?} is not plain"));
    assert_eq!(&text[span], at, "{text:?}");
}

#[test]
fn plain_scripts_are_assignments_and_a_launch() {
    for text in [
        "#!/bin/bash\nset -euo pipefail\nexport A=1\nARGS=(\n  --a 1 # one\n  --b \"$1\"\n)\n\
         torchrun --nproc-per-node 8 \\\n  pretrain_gpt.py ${ARGS[@]} \"${ARGS[*]}\" 2>&1 \
         | tee log.txt\n",
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\nN=${N:-8}\n\
         python pretrain_gpt.py '--a' $N > log\n",
        "#!/usr/bin/env bash\n#SBATCH --nodes=2 -N 4 -t 1:00 # two\n#SBATCH --exclusive\nA=1\n",
        "#!/bin/sh -e\nA=1; export B=2; echo \"is it? [$A]\" >&2\n",
        "A=y\nA+=x # b\nB=\nC=\"\"\nD='a b'\"c $A\"d\nE=( )\n",
        "echo a > /dev/null 2>&1\ncd ${A:-/x}\nmkdir -p \"$HOME/x\"\n",
        "A=\"a \\\n b\"\nB=(a \\\n  b)\n# \u{e9}\n",
        "# x\n--num-layers 2 --a 'b c' # d\n--e \"*\"\n",
        "torchrun a.py --moe \"([0]*3)\" > log 2>&1\n",
        "A=1 \\\n# no more of it\nB=2\n",
        "G=8\nN=2\nWORLD_SIZE=$(($G * ${N}))\nB=\"$((G+3*N))\"\ntorchrun a.py\n",
        "export G=8\nA=$((G*2)); B=$((2*3-1))\n",
        "D=$(dirname \"$0\")\nexport T=$(date +%F)\ntorchrun a.py --a \"$(pwd)/b\"\n",
        "A=1 B=\"$C\" torchrun a.py\nwait\nexit 0\n",
        "NCCL_ALGO=Ring python a.py &> log\nset +x\nulimit -n 4 &>> /dev/null\n",
        "#SBATCH --export=ALL --array=1-2 --mem-per-cpu=4G -D /x\nA=1 # b\n",
        "set +e\nset +eu\n: a $B\ntrue\n#SBATCH --begin=now\ntorchrun a.py\n",
        "NCCL_ALGO=Ring\nWORLD_SIZE=8\nexport NCCL_ALGO\ntorchrun a.py > \\\n  log\n",
        "torchrun a.py --a 2>> \\\n \\\n log &> \\\n\tlog\n",
        "",
    ] {
        plain(text);
    }
}

#[test]
fn anything_else_is_beyond() {
    for (text, at) in [
        ("if true; then A=1; fi\n", "if"),
        ("A=1\nf() { A=2; }\nf\n", "("),
        ("A=$(cat x)\n", "$("),
        ("A=`cat x`\n", "`"),
        ("A=${B%x}\n", "${B%x}"),
        ("A=${B:=x}\n", "${B:=x}"),
        ("A=${B=x}\n", "${B=x}"),
        ("A=${B:?}\n", "${B:?}"),
        ("A=${B:+x}\n", "${B:+x}"),
        ("A=${!B}\n", "${!B}"),
        ("A=${#B}\n", "${#B}"),
        ("A=${B:-$C}\n", "${B:-$C}"),
        ("A=${B:-'x'}\n", "${B:-'x'}"),
        ("A=${B[1]}\n", "${B[1]}"),
        ("A=$@\n", "$@"),
        ("A=(\"$@\")\n", "$@"),
        ("A=\"$*\"\n", "$*"),
        // What may be empty, or of the caller's.
        ("A+=x\n", "A"),
        ("A+=(x)\n", "A"),
        ("B=${A[@]}\n", "${A[@]}"),
        ("B=x\nC=${B[@]}\n", "${B[@]}"),
        // An array is no word, nor the other way round.
        ("A=()\nB=${A-x}\n", "${A-x}"),
        ("A=(\"\" x)\nB=${A:-x}\n", "${A:-x}"),
        ("A=(a)\nB=$A\n", "$A"),
        ("A=(a)\nA=b\n", "A"),
        ("A=a\nA=(b)\n", "A"),
        ("A=(a)\nA+=b\n", "A"),
        ("A=(a)\nexport A=b\n", "A=b"),
        ("A=(a)\nexport A\n", "A"),
        // Numbers that a shell may read otherwise, and what is none.
        ("A=$((1+01))\n", "$("),
        ("A=$((1234567*2))\n", "$("),
        ("A=$((2*-3))\n", "$("),
        ("A=$((6/4))\n", "$("),
        ("A=$((2*2*2*2))\n", "$("),
        ("A=$((B*2))\n", "$("),
        ("B=08\nA=$((B*2))\n", "$("),
        ("B=8\nB+=1\nA=$((B*2))\n", "$("),
        ("B=8\nB=$C\nA=$(($B*2))\n", "$("),
        ("B=(8)\nA=$((B*2))\n", "$("),
        ("B=8\nA=$((B++))\n", "$("),
        ("A=$((B=1))\n", "$("),
        ("B=8 torchrun a.py --a $((B*2))\n", "$("),
        // What a command prints may be several words.
        ("torchrun a.py --a $(pwd)\n", "$("),
        ("A=($(pwd))\n", "$("),
        ("A=$(pwd; cat x)\n", "$("),
        ("A=$(date $B)\n", "$("),
        ("A=$(date > x)\n", "$("),
        ("A=$(dirname $(pwd))\n", "$("),
        ("A=$( )\n", "$("),
        ("A=$(pwd\n", "$("),
        // Whether the program sees it is the caller's matter.
        ("WORLD_SIZE=8\npython a.py\n", "WORLD_SIZE"),
        ("NCCL_ALGO=Ring\ntorchrun a.py\n", "NCCL_ALGO"),
        (
            "NCCL_ALGO=Ring\ntorchrun a.py\nexport NCCL_ALGO\n",
            "NCCL_ALGO",
        ),
        (
            "export NCCL_ALGO=Ring\nNCCL_ALGO=Tree\ntorchrun a.py\n",
            "NCCL_ALGO",
        ),
        ("torchrun a.py >\\\nlog\n", "\\"),
        ("torchrun a.py 2\\\n> log\n", "\\"),
        ("A=(1) torchrun a.py\n", "A=(1) torchrun"),
        ("A=1\nA+=2 torchrun a.py\n", "A+=2 torchrun"),
        ("A=1 echo b\n", "A=1 echo"),
        ("A=1 export B=2\n", "A=1 export"),
        ("exit 0\ntorchrun a.py\n", "exit"),
        ("#!/bin/sh\ntorchrun a.py &> log\n", "&"),
        ("torchrun a.py &>1 &\n", "&"),
        ("export A=1 &> /dev/null\n", "&> /dev/null"),
        ("#SBATCH --export=NONE\n", "#SBATCH --export=NONE"),
        ("A=$[1+1]\n", "$["),
        ("A=$#\n", "$#"),
        ("A=$$\n", "$$"),
        ("A=$?\n", "$?"),
        ("A=$0\n", "$0"),
        ("A=\"a$\"\n", "$\""),
        ("A=$\n", "$\n"),
        ("nohup torchrun x\n", "nohup"),
        ("A=1 B=2\n", "A=1 B=2"),
        ("torchrun x && torchrun y\n", "&"),
        ("torchrun x &\n", "&"),
        ("torchrun x || A=1\n", "|"),
        ("export A=1 | tee log\n", "|"),
        ("echo a | tee log\n", "|"),
        ("torchrun x | tee log | cat\n", "|"),
        ("torchrun x | cat\n", "| cat"),
        ("torchrun x >| tee --a\n", "|"),
        ("torchrun x >(cat)\n", "("),
        ("torchrun x < a\n", "<"),
        ("torchrun x --seed 5>log\n", ">"),
        ("torchrun x 3> log\n", ">"),
        ("> log torchrun x\n", ">"),
        ("echo NCCL_ALGO=Tree > x.conf\n", "> x.conf"),
        ("echo NCCL_ALGO=Tree >> x.conf\n", ">> x.conf"),
        ("export A=1 > log\n", "> log"),
        ("torchrun x;; A=1\n", ";"),
        ("cat <<EOF\nEOF\n", "cat"),
        ("echo a <<EOF\nEOF\n", "<"),
        ("echo a <<< b\n", "<"),
        ("[[ a == b ]]\n", "["),
        ("[ a = b ]\n", "["),
        ("(A=1)\n", "("),
        ("{ A=1; }\n", "{"),
        ("! true\n", "!"),
        ("time torchrun x\n", "time"),
        ("torchrun a.py\ntorchrun b.py\n", "torchrun"),
        ("python a.py\ntorchrun b.py\n", "torchrun"),
    ] {
        beyond(text, at);
    }
}

#[test]
fn commands_of_the_shell_are_beyond() {
    for (text, at) in [
        ("set -k\n", "set -k"),
        ("set -a\n", "set -a"),
        ("set pipefail\n", "set pipefail"),
        ("set -- a b\n", "set --"),
        ("set -o posix\n", "set -o"),
        ("set +\n", "set +"),
        ("set +o pipefail\n", "set +o"),
        ("set +a\n", "set +a"),
        ("set -\n", "set -"),
        ("local A\n", "local"),
        ("declare A=1\n", "declare"),
        ("readonly A=1\n", "readonly"),
        ("unset A\n", "unset"),
        ("read A\n", "read"),
        ("alias a=b\n", "alias"),
        ("shopt -s extglob\n", "shopt"),
        ("trap x DEBUG\n", "trap"),
        ("eval x\n", "eval"),
        ("exec x\n", "exec"),
        ("exit\n", "exit"),
        ("source x\n", "source"),
        (". x\n", "."),
        ("command export A=1\n", "command"),
        ("builtin export A=1\n", "builtin"),
        ("env A=1 torchrun x\n", "env"),
        ("srun torchrun x\n", "srun"),
        ("bash -c 'torchrun x'\n", "bash"),
        ("module load x\n", "module"),
        ("conda activate x\n", "conda"),
        ("/usr/bin/torchrun x\n", "/usr/bin/torchrun"),
        ("$A x\n", "$A"),
        ("'torchrun' x\n", "'torchrun'"),
        ("tor\\\nchrun x\n", "tor"),
        ("export -n A\n", "-n"),
        ("export -f f\n", "-f"),
        ("export $A\n", "$A"),
        ("export \"A=b\"\n", "\"A=b\""),
        ("export A+=b\n", "A+=b"),
        ("export A=(b)\n", "("),
        ("function f\n", "function"),
        ("--a 1\nA=1\n", "A"),
        ("--a 1\ntorchrun x\n", "torchrun"),
        ("--a $B\n", "$"),
        ("--a 1 > x\n", "> x"),
        ("A=1\n--a 1\n", "--a"),
    ] {
        beyond(text, at);
    }
}

#[test]
fn words_that_a_shell_reads_again_are_beyond() {
    for (text, at) in [
        ("A=*\n", "*"),
        ("A='*'\n", "*"),
        ("A=\"a?\"\n", "?"),
        ("A=(\"[0]=x\")\n", "["),
        ("export A='[a]'\n", "["),
        ("A='a\\b'\n", "\\"),
        ("A=a\\b\n", "\\"),
        ("A=a\\ \n", "\\"),
        ("A=\"a\\b\"\n", "\\"),
        ("A='$B'\n", "$"),
        ("A='`b`'\n", "`"),
        ("A=\"`b`\"\n", "`"),
        ("torchrun a.py '${X --seed 5'\n", "$"),
        ("A={a,b}\n", "{"),
        ("A=~/x\n", "~"),
        ("A=x:~/y\n", "~"),
        ("A=(1 2\n", "("),
        ("A=(1 2)x\n", "x"),
        ("A=(1;2)\n", ";"),
        ("A=(a#b\n$(c))\n", "#"),
        ("A=b=(1)\n", "("),
        ("torchrun --x=(1)\n", "("),
        ("A[1]=x\n", "["),
        ("A+B=x\n", "A+B=x"),
        ("A='x\n", "'"),
        ("A=\"x\n", "\""),
        ("echo $'x'\n", "$'"),
        ("echo $\"x\"\n", "$\""),
        ("echo a#b\n", "#"),
        ("A=\u{e9}\n", "\u{e9}"),
        ("A='\u{a0}'\n", "\u{a0}"),
        ("A=1\u{a0}\n", "\u{a0}"),
        ("\u{feff}A=1\n", "\u{feff}"),
        ("A=1\r\n", "\r"),
        ("# a\rb\n", "\r"),
        ("A='\u{7}'\n", "\u{7}"),
        ("A=1\\\n2\n", "\\"),
        ("A=1\\", "\\"),
        ("N\\\nA=2\n", "N"),
    ] {
        beyond(text, at);
    }
}

#[test]
fn names_by_which_a_shell_changes_are_beyond() {
    for name in [
        "IFS",
        "BASH_ENV",
        "ENV",
        "PS4",
        "POSIXLY_CORRECT",
        "GLOBIGNORE",
        "HOME",
        "PWD",
        "OLDPWD",
        "RANDOM",
        "UID",
        "PPID",
        "SECONDS",
        "_",
        "PET_NNODES",
        "PROMPT_COMMAND",
        "TMOUT",
        "BASHOPTS",
        "SHELLOPTS",
        "OPTIND",
        "COMP_WORDS",
    ] {
        beyond(&format!("{name}=1\n"), name);
        let exported = format!("{name}=1");
        beyond(&format!("export {exported}\n"), &exported);
    }
    beyond("A=$RANDOM\n", "$RANDOM");
    beyond("A=$_\n", "$_");
    beyond("A=${OPTERR:-2}\n", "${OPTERR:-2}");
    beyond("A=\"$BASH_SOURCE\"\n", "$BASH_SOURCE");
    plain("A=$HOME/$PWD\n");
    // Whether a caller has exported it decides what a program sees.
    beyond("NCCL_ALGO=Ring\n", "NCCL_ALGO");
    plain("export NCCL_ALGO=Ring\n");
}

#[test]
fn other_shells_and_what_batch_systems_read_are_beyond() {
    for line in [
        "#!/bin/csh",
        "#!/usr/bin/fish",
        "#!/bin/zsh",
        "#!/bin/bash -l",
        "#!/bin/bash -a",
        "#!/bin/bash -e -a",
        "#!/usr/bin/env -S NCCL_ALGO=Tree bash",
        "#!/usr/bin/env bash -e",
        "#!/opt/x/bash",
        "#!bash",
        "#!",
        "#SBATCH --export=NONE",
        "#SBATCH --exp=NONE",
        "#SBATCH --get-user-env",
        "#SBATCH --container-image=x",
        "#SBATCH --nodes=2 # --export=NONE",
        "#SBATCH 2 --nodes=2",
        "#SBATCH --nodes=2 4",
        "#SBATCH --job-name=\"a --nodes=4\"",
        "#SBATCH --nod=4",
        " #SBATCH --nodes=4",
        "#SLURM --export=NONE",
        "#SLURM --nod=4",
        "#SLURMX",
        "#SBATCHX",
        "#PBS -v A=1",
        "#BSUB -env all",
        "#$ -v A=1",
    ] {
        beyond(&format!("{line}\n{LAUNCH}\n"), line.trim_start());
    }
    // Behind a command they are comments.
    plain(&format!("A=1\n#SBATCH --export=NONE\n{LAUNCH}\n"));
    for line in [
        "A=(1)",
        "A=1\nA+=1",
        "set -o pipefail",
        "export A=$B",
        "B=(1)\nA=${B[@]}",
    ] {
        plain(&format!("#!/bin/bash\n{line}\n"));
        let dash = format!("#!/bin/sh\n{line}\n");
        assert!(first_beyond(&dash).is_some(), "{dash}");
    }
}
