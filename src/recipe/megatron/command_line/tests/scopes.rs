//! What bash does by rules of its own: such a script is refused, or the names are not known. Each
//! was once read as something else than bash makes of it.

use super::*;

const LAUNCH: &str = "torchrun a.py --bf16 $D --seed ${X:-3}";

/// Refused, whatever the code is.
#[track_caller]
fn is_refused(before: &str) {
    let (_, job, found) = given(&format!("{before}\n{LAUNCH}\n"));
    assert!(job.is_none(), "{before}: {job:?}");
    assert!(!found.is_empty(), "{before}");
}

/// With `NCCL_ALGO` exported as `Ring` before: refused, or bash's own value.
#[track_caller]
fn environment_is(before: &str, expected: Option<&[&str]>) {
    let script = format!("export NCCL_ALGO=Ring\n{before}\n");
    let (_, job, found) = given(&script);
    let shown = |given: &GivenVariable| format!("{}={}", given.name, given.value);
    let env = job.map(|job| job.env.iter().map(shown).collect::<Vec<_>>());
    match expected {
        Some(expected) => assert_eq!(env.as_deref(), Some(&*texts(expected))),
        None => assert_eq!(env, None, "{before}: {found:?}"),
    }
}

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

#[test]
fn a_name_of_a_functions_own_in_a_branch_is_refused() {
    for body in [
        "[ -n \"$U\" ] && local D=x; D=",
        "if [ -n \"$U\" ]; then local D; fi; D=",
        "case $U in a) local D=x ;; esac; D=",
        "for i in $LIST; do local D=x; done; D=",
        "(local D=x; echo); D=",
        "local D=x | cat; D=",
        "[ -n \"$U\" ] && declare D=x; D=",
    ] {
        is_refused(&format!("D=--deterministic-mode\nf() {{ {body}; }}\nf"));
    }
    // On every way through the function: its caller's is as it was.
    let script = "D=--deterministic-mode\nf() { local D=x; D=; }\nf\ntorchrun a.py --bf16 $D";
    assert_eq!(arguments(script), ["--bf16=-", "--deterministic-mode=-"]);
    let script = "f() { local D=; if [ a = a ]; then local N=2; fi; torchrun a.py --a $N; }\nf";
    assert_eq!(arguments(script), ["--a=2"]);
    let script = "if [ -n \"$U\" ]; then f() { local N=2; }; fi\ng() { local N=1; }\nN=3\n\
        [ -n \"$U\" ] && g\ntorchrun a.py --a $N";
    assert_eq!(arguments(script), ["--a=3"]);
}

#[test]
fn names_of_several_scopes_are_refused() {
    for before in [
        "D=--deterministic-mode; f() { local D; declare -g D=; }; f",
        "f() { local X=2; declare -g X=5; }; f",
        "X=1; f() { local X=2; g; }; g() { unset X; }; f",
        "f() { local X; unset X; }; f",
        "f() { unset X; }; X=1 f",
        "f() { export X; }; X=1 f",
        "f() { export X=2; }; X=1 f",
        "f() { declare -x X=2; }; X=1 f",
        "f() { local X; }; X=1 f",
        "X=1 eval 'unset X'",
        "f() { local -; set -a; }; f",
    ] {
        is_refused(&format!("D=\n{before}"));
    }
    let script = "f() { torchrun a.py --a $X; }; X=1 f";
    assert_eq!(arguments(script), ["--a=1"]);
    let script = "X=1; f() { unset X; }; f; torchrun a.py --a ${X:-2}";
    assert_eq!(arguments(script), ["--a=2"]);
}

#[test]
fn a_function_that_may_not_be_defined_is_not_called() {
    for before in [
        "if [ -f nofile ]; then det() { D=--deterministic-mode; }; fi; D=; det",
        "case $U in a) det() { D=--a; } ;; esac; D=; det",
        "for i in $LIST; do det() { D=--a; }; done; D=; det",
        "h() { det() { D=--a; }; }; [ -n \"$U\" ] && h; D=; det",
        "command -v module >/dev/null || module() { :; }; D=; module load nccl",
        "f() { D=--a; }; [ -n \"$U\" ] && export -f f; D=; bash -c f",
        "echo() { D=--a; }; echo",
        "true() { return 1; }; true && D=--a",
    ] {
        is_refused(before);
    }
    let script = "f() { A=1; }; [ -n \"$U\" ] && f() { A=1; }";
    refused(&format!("{script}\ntorchrun a.py --a"), "not-followed", 1);
    // Never called, or surely defined behind.
    let script = "[ -n \"$U\" ] && g() { A=1; }; torchrun a.py --a 1";
    assert_eq!(arguments(script), ["--a=1"]);
    let script = "(export -f f; f() { A=1; }); export A; bash -c 'f; torchrun a.py --a ${A:-2}'";
    assert_eq!(arguments(script), ["--a=2"]);
}

#[test]
fn words_of_double_brackets_are_not_split() {
    let of = |before: &str| {
        let script = format!("N=1\n{before} N=2; fi\ntorchrun a.py --a $N");
        arguments(&script).remove(0)
    };
    assert_eq!(of("A='a '; if [[ $A == a ]]; then"), "--a=1");
    assert_eq!(of("A='\ta'; if [[ $A == a ]]; then"), "--a=1");
    assert_eq!(of("A='a b'; if [[ $A == 'a b' ]]; then"), "--a=2");
    assert_eq!(of("A=; if [[ -z $A ]]; then"), "--a=2");
    assert_eq!(of("A='a '; if [ $A = a ]; then"), "--a=2");
    // An operator between words is no operand of another.
    assert_eq!(of("A=-n; if [[ $A < b ]]; then"), "--a=$N");
}

#[test]
fn a_chain_of_tests_that_are_known_is_decided() {
    let of = |condition: &str| {
        let script = format!("A=a\nif {condition}; then N=1; else N=2; fi\ntorchrun a.py --a $N");
        arguments(&script).remove(0)
    };
    assert_eq!(of("[[ $A == a ]] || [[ $A == b ]] || [[ -z $U ]]"), "--a=1");
    assert_eq!(of("[[ $A == b ]] || [ $A = c ]"), "--a=2");
    assert_eq!(of("[ $A = a ] && [ -n \"$A\" ]"), "--a=1");
    assert_eq!(of("[ $A = b ] && [ -n \"$U\" ]"), "--a=2");
    assert_eq!(of("[ $A = b ] && [ -n \"$U\" ] || [ $A = a ]"), "--a=1");
    assert_eq!(of("[ -n \"$U\" ] || [ $A = a ]"), "--a=$N");
    // What is not run sets nothing.
    let script = "if [ a = a ] || [ -n \"${N:=5}\" ]; then :; fi\ntorchrun a.py --a ${N:-2}";
    assert_eq!(arguments(script), ["--a=2"]);
}

#[test]
fn what_is_assigned_in_words_that_are_kept_is_not_known() {
    for before in [
        "Y=1; : ${Y:+${X:=5}}",
        ": \"${A:-\"${X:=5}\"}\"",
        "echo ${S#${X:=a}}",
        "[[ -n ${X:=5} ]]",
        "A=${X:=5} true",
        "A=${X:=5} cd /",
        ": <<EOF\n${X:=5}\nEOF",
        "echo $[X=2]",
        "unset \"A[X=2]\"",
        "[[ -v A[X=5] ]]",
        "[ -v 'A[X=5]' ]",
        "[[ X=2 -eq 2 ]]",
        "[[ 3 -gt X*=2 ]]",
    ] {
        let (_, job, _) = given(&format!("D=\n{before}\n{LAUNCH}"));
        let seed = |job: &GivenJob| job.phases[0].arguments.iter().map(shown).nth(1);
        let seed = job.as_ref().and_then(seed);
        let is_right = seed
            .as_deref()
            .is_none_or(|seed| seed.contains('$') || seed == "--seed=5" || seed == "--seed=a");
        assert!(is_right, "{before}: {seed:?}");
    }
    // Cut, and nothing assigned.
    let script = "A=a=1\necho ${A#*=} ${A%%=*}\nX=4\ntorchrun a.py --a $X";
    assert_eq!(arguments(script), ["--a=4"]);
}

#[test]
fn commands_behind_options_of_the_shell_are_run() {
    for tool in [
        "command -p",
        "command --",
        "builtin --",
        "eval --",
        "time -p",
        "time",
    ] {
        let script = format!("{tool} export NCCL_ALGO=Tree\ntorchrun a.py --a");
        environment_is(&script, Some(&["NCCL_ALGO=Tree"]));
    }
    let launch = "A=1\nexport NCCL_ALGO\ntorchrun a.py --a";
    for ends in ["set +ea", "set +xa", "set +a", "set +o allexport"] {
        let script = format!("set -a\n{ends}\nunset NCCL_ALGO; NCCL_ALGO=Tree\n{launch}");
        let script = script.replace("export NCCL_ALGO\n", "");
        environment_is(&script, Some(&[]));
    }
    // A shell of its own does not go on with it; one that is told so does.
    let script = "set -a; bash -c 'B=2; torchrun a.py --a'";
    environment_is(script, Some(&["NCCL_ALGO=Ring"]));
    environment_is("bash -ac 'torchrun a.py --a'", None);
    environment_is("bash -o allexport -c 'torchrun a.py --a'", None);
    environment_is("BASH_ENV=x bash -c 'torchrun a.py --a'", None);
    environment_is("export BASH_ENV=x; bash -c 'torchrun a.py --a'", None);
    environment_is(
        "trap 'NCCL_ALGO=Tree' USR1; kill -USR1 $$; torchrun a.py --a",
        None,
    );
    environment_is(
        "trap f EXIT; kill 5; torchrun a.py --a",
        Some(&["NCCL_ALGO=Ring"]),
    );
}

#[test]
fn lines_that_another_reads_are_refused() {
    refused(
        "bash <<EOF\nexport A=1 \\\nEOF\ntorchrun a.py --a\nEOF\n",
        "shell-syntax",
        3,
    );
    let script = "bash <<EOF\ntorchrun a.py \\\n --a\nEOF\n";
    assert_eq!(arguments(script), ["--a=-"]);
    for line in [
        "#!/bin/csh",
        "#!/usr/bin/fish",
        "#!/bin/zsh",
        "#!/bin/bash -a",
        "#!/bin/bash -l",
        "#!/usr/bin/env -S NCCL_ALGO=Tree bash",
    ] {
        refused(&format!("{line}\ntorchrun a.py --a\n"), "other-shell", 1);
    }
    for line in [
        "#!/bin/bash",
        "#!/opt/x/bin/bash -e",
        "#! /usr/bin/env bash",
        "#!/bin/sh -eu",
    ] {
        assert_eq!(
            arguments(&format!("{line}\ntorchrun a.py --a\n")),
            ["--a=-"]
        );
    }
    refused("A='--b ${X --seed 5'\ntorchrun a.py $A", "shell-syntax", 1);
    refused("A='--b `X --seed 5'\ntorchrun a.py $A", "shell-syntax", 1);
    refused("A=(a '$(b c)')\ntorchrun a.py --a", "shell-syntax", 1);
    assert_eq!(arguments("A='--b ${X} c'\ntorchrun a.py --a"), ["--a=-"]);
    // Slurm sets more than its requests say.
    let script = "#SBATCH --nodes=2\ntorchrun a.py --a ${SLURM_NTASKS:-1} --b $SLURM_NNODES";
    assert_eq!(arguments(script), ["--a=${SLURM_NTASKS:-1}", "--b=2"]);
    let script = "#SBATCH --gres=gpu:h100:8\ntorchrun a.py --a $SLURM_GPUS_PER_NODE";
    assert_eq!(arguments(script), ["--a=$SLURM_GPUS_PER_NODE"]);
}

#[test]
fn a_word_behind_a_wrapper_that_is_not_its_own_may_be_a_program() {
    for before in [
        "nohup WRAP",
        "srun -n 4 shifter",
        "nohup poetry run",
        "timeout 5 pipenv run",
        "nohup conda run -n x",
        "uv run dotenv run",
        "mpirun -np 8 direnv exec .",
        "srun -n 8 set_affinity",
        "srun -n 8 -l bind",
        "numactl -N 0 strace -E NCCL_ALGO=Tree",
        "nice -n 5 x",
        "nsys profile -o a wrap",
        "nsys launch",
        "srun --exp=NONE",
        "srun --task-prolog=x",
        "mpirun --tune x",
        "mpirun -am x",
        "timeout --odd 5",
        "apptainer run x.sif",
        "python -m accelerate.commands.launch",
    ] {
        environment_is(&format!("{before} python a.py --a"), None);
    }
    let ring: &[&str] = &["NCCL_ALGO=Ring"];
    for before in [
        "nohup",
        "timeout -s KILL 5",
        "nice -n 5 ionice -c 2",
        "srun -n 4 -l --mpi=pmix --cpu-bind none",
        "srun -N2 -Jname nsys profile -s none -t nvtx,cuda --force-overwrite true",
        "mpirun -np 8 --bind-to none --mca btl tcp --allow-run-as-root",
        "taskset -c 0-3",
        "numactl --cpunodebind=0 --membind 0",
    ] {
        environment_is(&format!("{before} python a.py --a"), Some(ring));
    }
}

#[test]
fn a_launcher_that_runs_another_program_is_refused() {
    for before in [
        "torchrun --no-python --nproc-per-node 4 ./env.sh python",
        "torchrun --no-python env NCCL_ALGO=Tree python",
        "torchrun --no_python nsys profile -e NCCL_ALGO=Tree python",
        "torchrun --run-path",
        "torchrun --np 8",
        "torchrun -nproc-per-node 8",
        "python -c x",
        "torchrun $OPTIONS",
        "export PET_NO_PYTHON=1; torchrun",
    ] {
        environment_is(&format!("{before} a.py --a"), None);
    }
    environment_is("torchrun --nproc 8 a.py --a", Some(&["NCCL_ALGO=Ring"]));
}
