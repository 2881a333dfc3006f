//! What bash would pass is not always what stands in the script: then nothing is assumed.

use super::*;

/// The only argument's word is not known: an error.
#[track_caller]
fn is_open(before: &str) {
    let script = format!("DET=--deterministic-mode\n{before}\npython a.py --bf16 $DET");
    let (_, job, found) = given(&script);
    assert!(job.is_none(), "{before}: {job:?}");
    assert!(
        found.iter().any(|f| f.code == "unset-variable"),
        "{found:?}"
    );
}

#[track_caller]
fn is_kept(before: &str) {
    let script = format!("DET=--deterministic-mode\n{before}\npython a.py --bf16 $DET");
    assert_eq!(
        arguments(&script),
        ["--bf16=-", "--deterministic-mode=-"],
        "{before}"
    );
}

#[test]
fn what_may_have_changed_is_not_known() {
    for before in [
        "if x; then DET=; fi",
        "[ -f x ] && DET=",
        "[ -f x ] || { DET=; }",
        "for d in \"$@\"; do DET=$d; done",
        "for d in; do DET=--a; done",
        "for d; do DET=--a; done",
        "while x; do DET=; done",
        "until x; do DET=; done",
        "case $X in a) DET= ;; esac",
        "if x; then :; elif y; then DET=; fi",
        "f() { if x; then return; fi; DET=; }\nf",
        "if x; then unset DET; fi",
        "DET[0]=--a",
        "DET[1]=--a",
        "declare DET[0]=--a",
        "unset \"DET[0]\"",
        "unset ${!D*}",
        "unset $X",
        "readonly DET\nDET=--a",
        "declare -u DET=--a",
        "declare -i DET\nDET+=1",
        "read DET",
        "X=(1)\nif x; then DET=; else DET=--b; fi",
        "if ! [ 1 -eq 1 ]; then DET=; fi",
        "source x.sh; DET=\"${Y[@]}\"",
    ] {
        is_open(before);
    }
}

/// Files, and commands whose words are not known.
#[test]
fn behind_what_is_not_read_nothing_is_known() {
    for before in [
        "source x.sh",
        ". x.sh",
        ". <(cmd)",
        "command source x.sh",
        "X=source; $X x.sh",
        "if x; then source x.sh; fi",
        "f() { . x.sh; }\nf",
        "module load x",
        "conda activate x",
        "eval \"$X\"",
        "eval \"$(cmd)\"",
        "$X a",
        "export \"$X\"",
        "export $(cmd)",
        "export \"DET=$X\"",
        "declare \"$X=1\"",
        "f() { local \"$X\"; g; }\nf() { readonly $X; }\nf",
        "read \"$X\"",
        "read -r -aDET",
        "mapfile -t \"$X\"",
    ] {
        is_open(before);
    }
}

#[test]
fn what_is_filled_or_shifted_is_not_known() {
    for before in [
        "printf -v \"$X\" a",
        "printf -v DET a",
        "printf -vDET a",
        "let \"$X\"",
        "let DET=1",
        ": $((DET = 1))",
        "DET=; : ${DET:=$X}",
        "source x.sh; DET=\"${Z:---deterministic-mode}\"",
        "source x.sh; DET+=x",
        "source x.sh; set -- --deterministic-mode \"$X\"; DET=$3",
        "set -- $X --deterministic-mode; DET=$2",
        "set -- --deterministic-mode; source x.sh; DET=$1",
        "set $X; DET=$1",
        "L=($X --deterministic-mode); DET=${L[1]}",
        "f() { DET=$2; }\nf $X --deterministic-mode",
        "IFS=-; L=($DET); DET=${L[0]}",
        "A={a,b}; L=({a,b}); DET=${L[0]}",
        "export DET={a,b}",
        "DET=--a{b,c}; DET=$HOSTNAME",
        "f() { local DET; }\ng() { local DET; h; }\nDET=${HOME:-x}",
    ] {
        is_open(before);
    }
}

#[test]
fn rounds_and_branches_that_go_on_are_followed() {
    for before in [
        "for i in 1 2; do source x.sh; done",
        "for i in 1 2; do if [ $i = 2 ]; then DET=; fi; done",
        "N=0; while [ $N -lt 2 ]; do N=$((N + 1)); if [ $N -eq 2 ]; then DET=; fi; done",
        "A=$DET; for i in 1 2; do DET=$A; A=; done",
        "for i in 1 2; do DET=; break; DET=--deterministic-mode; done",
        "for i in 1 2; do if x; then continue; fi; DET=; done",
        "case $X in a) DET= ;& b) : ;; esac",
        "case a in a) : ;& b) DET=$X ;; esac",
        "case a in a) : ;;& [a]) DET= ;; esac",
    ] {
        is_open(before);
    }
}

#[test]
fn what_is_lost_or_the_same_on_every_way_is_known() {
    for before in [
        "if x; then OTHER=; fi",
        "if x; then DET=--deterministic-mode; fi",
        "if x; then DET=--deterministic-mode; else DET=\"$DET\"; fi",
        "if x; then DET=; exit 1; fi",
        "[ -f x ] || { DET=; exit 1; }",
        "(DET=)",
        "unset -f DET",
        "unset ${!NCCL_*}",
        "while [ $# -gt 0 ]; do DET=; shift; done",
        "TP=2; if [ \"$TP\" -gt 4 ]; then DET=; fi",
        "A=b; if [[ $A != b ]]; then DET=; elif [ $A == b ]; then :; else DET=; fi",
        "DET=; case $X in a) DET=--deterministic-mode ;; *) DET=--deterministic-mode ;; esac",
        "if x; then DET=; fi; DET=--deterministic-mode",
    ] {
        is_kept(before);
    }
}

#[test]
fn what_is_set_again_is_known() {
    for before in [
        "source x.sh; DET=--deterministic-mode",
        "(source x.sh)",
        "source x.sh | cat",
        "eval 'DET=; DET=--deterministic-mode'",
        "X=DET=; eval \"Y$X\"",
        "export \"X=$X\"",
        "A=DET; export \"$A=--deterministic-mode\"",
        "set -- a; DET=${2:---deterministic-mode}",
        "set a --deterministic-mode; DET=$2",
        "unset DET; : ${DET:=--deterministic-mode}",
        "for i in 1 2; do DET=--deterministic-mode; done",
        "for i in 1; do break; DET=; done",
        "case a in a) DET= ;& b) DET=--deterministic-mode ;; *) DET= ;; esac",
        "case a in b) DET= ;; a) : ;; *) DET= ;; esac",
        "case a in a) DET= ;;& b) DET= ;;& *) DET=--deterministic-mode ;; esac",
        "A=a; case \"$A\" in b|a) ;; *) DET= ;; esac",
        "f() { local DET=; }\nf",
        "f() { DET=; }; (f() { :; }); f() { :; }; f",
        "A=b; export A=--deterministic-mode B=$A; DET=$A",
        "A=DET= eval 'B=$A'",
    ] {
        is_kept(before);
    }
}

#[test]
fn a_branch_knows_what_it_sets() {
    let script = "if x; then N=1; python a.py --a $N; fi";
    assert_eq!(arguments(script), ["--a=1"]);
    let script = "case $M in a) N=1;; b) N=2; python a.py --a $N;; esac";
    assert_eq!(arguments(script), ["--a=2"]);
    assert_eq!(
        arguments("N=3; if [ $N -ge 3 ]; then N=4; fi\npython a.py --a $N"),
        ["--a=4"]
    );
}

#[test]
fn doubtful_variables_are_not_exported_with_a_value() {
    for script in [
        "if x; then export NCCL_ALGO=Tree; fi",
        "export NCCL_ALGO=Ring; [ -f x ] && NCCL_ALGO=Tree",
        "export NCCL_ALGO=Ring; readonly NCCL_ALGO; NCCL_ALGO=Tree",
        "NCCL_ALGO=Ring; if x; then export NCCL_ALGO; fi",
        "export NCCL_ALGO=Ring; read NCCL_ALGO",
    ] {
        let script = format!("{script}\npython a.py --a");
        let (_, job, found) = given(&script);
        assert!(job.is_none(), "{script}: {job:?}");
        assert!(
            found.iter().any(|f| f.code == "unset-variable"),
            "{found:?}"
        );
    }
    let script = "if x; then export NCCL_ALGO=Tree; fi; export NCCL_ALGO=Ring\npython a.py --a";
    assert_eq!(environment(script), ["NCCL_ALGO=Ring"]);
    refused("export NCCL_ALGO=$X\npython a.py --a", "unset-variable", 1);
    // No bit follows from these.
    let script = "export MASTER_ADDR=$X; if x; then export NCCL_DEBUG=INFO; fi\npython a.py --a";
    assert_eq!(codes(script), [""; 0]);
}

#[test]
fn names_of_names_are_refused() {
    refused(
        "A=1\ndeclare -n D=A\nD=2\npython a.py --a $A",
        "not-followed",
        2,
    );
    let script = "f() { :; }\nif x; then f() { exit; }; fi\nf\npython a.py --a";
    refused(script, "not-followed", 2);
    // A function that is gone runs nothing.
    let script = "f() { python a.py --b; }\nunset -f f\nf\npython a.py --a";
    assert_eq!(arguments(script), ["--a=-"]);
}

#[test]
fn no_arguments_are_no_words() {
    for none in ["\"$@\"", "$@", "$*", "\"${E[@]}\"", "${E[@]}"] {
        let script = format!("python a.py --a 2 {none} --bf16 {none}");
        assert_eq!(arguments(&script), ["--a=2", "--bf16=-"], "{none}");
        assert_eq!(codes(&script), ["unset-variable"; 2], "{none}");
    }
    assert_eq!(arguments("python a.py --a \"\""), ["--a="]);
    assert_eq!(arguments("E=()\npython a.py --a \"${E[@]}\""), ["--a=-"]);
    assert_eq!(arguments("E=()\npython a.py --a \"${E[*]}\""), ["--a="]);
}

#[test]
fn ranks_are_those_that_the_launcher_starts() {
    let of = |before: &str| world(&format!("{before} a.py --a"));
    let both = ["GPUS_PER_NODE=4", "NNODES=2"];
    assert_eq!(of("torchrun --nnodes 2"), ["GPUS_PER_NODE=1", "NNODES=2"]);
    // What torchrun does where nothing is said.
    let alone = ["GPUS_PER_NODE=1", "NNODES=1"];
    assert_eq!(of("torchrun"), alone);
    assert_eq!(of("python -m torch.distributed.run"), alone);
    assert_eq!(of("PET_NNODES=2 PET_NPROC_PER_NODE=4 torchrun"), both);
    assert_eq!(of("PET_NPROC_PER_NODE=4 torchrun --nnodes 2"), both);
    assert_eq!(of("torchrun --nproc-per 4 --nnodes 2"), both);
    assert_eq!(of("deepspeed --num_gpus 4"), ["GPUS_PER_NODE=4"]);
    assert_eq!(of("accelerate launch --num_processes 4"), ["WORLD_SIZE=4"]);
    for wrong in ["--nproc-per-node -8", "--nproc-per-node="] {
        refused(&format!("torchrun {wrong} a.py --a"), "wrong-value", 1);
    }
    // `8` would be the program.
    let stray = "torchrun --nproc-per-node= 8 a.py --a";
    refused(stray, "not-followed", 1);
    refused("echo --b | xargs torchrun a.py --a", "not-followed", 1);
}

#[test]
fn another_program_is_named() {
    for other in [
        "pretrain_bert.py",
        "x/pretrain_t5.py",
        "tools/run_text.py",
        "pretrain_vlm.py",
    ] {
        refused(&format!("torchrun {other} --a 1"), "other-program", 1);
    }
    for unknown in ["train.py", "-m my.train", "finetune.py"] {
        let (_, job, found) = given(&format!("torchrun {unknown} --a 1"));
        assert!(job.is_some());
        assert_eq!(found[0].code, "other-program");
    }
    let both = "torchrun pretrain_bert.py --a 1\ntorchrun x/pretrain_gpt.py --a 2";
    assert_eq!(codes(both), ["not-read"]);
    assert_eq!(arguments(both), ["--a=2"]);
}

#[test]
fn what_reads_other_commands_leaves_the_environment_open() {
    for before in [
        "source env.sh",
        ". ./env.sh",
        "module load nccl",
        "eval \"$(cmd)\"",
        "if x; then . env.sh; fi",
    ] {
        let (_, job, _) = given(&format!("{before}\npython a.py --a"));
        let job = job.expect("nothing depends on it");
        assert!(job.phases[0].reads.is_some(), "{before}");
        assert!(!job.shows_environment(0));
        // A value from before it is none.
        let (_, job, found) = given(&format!("export NCCL_ALGO=Ring\n{before}\npython a.py --a"));
        assert!(job.is_none(), "{before}");
        assert!(found.iter().any(|f| f.code == "unset-variable"));
        let script = format!("{before}\nexport NCCL_ALGO=Ring\npython a.py --a");
        assert_eq!(environment(&script), ["NCCL_ALGO=Ring"], "{before}");
    }
    for none in ["(source env.sh)", "bash env.sh", "f() { source x; }"] {
        let (_, job, _) = given(&format!("export NCCL_ALGO=Ring\n{none}\npython a.py --a"));
        assert!(job.expect("read").phases[0].reads.is_none(), "{none}");
    }
    // What starts the program may set its variables.
    let (_, job, _) = given("$LAUNCHER python a.py --a");
    assert!(job.expect("read").phases[0].reads.is_some());
}

#[test]
fn what_is_read_is_named_where_it_matters() {
    let script = "TP=2\nsource env.sh\npython a.py --a $TP";
    let (_, job, found) = given(script);
    assert_eq!(job.unwrap().phases[0].arguments.len(), 1);
    let told = found.iter().find(|f| f.code == "unset-variable");
    let told = told.expect("it is told").to_plain();
    assert!(
        told.contains("pass it resolved") && told.contains("env.sh"),
        "{told}"
    );
    for odd in [
        "trap 'DET=1' DEBUG",
        "trap 'A=1' ERR",
        "shopt -s lastpipe",
        "for i in 1; do for j in 1; do break 2; done; done",
    ] {
        refused(&format!("{odd}\npython a.py --a"), "not-followed", 1);
    }
    refused("python a.py --a {1,2}", "not-followed", 1);
    assert_eq!(
        codes("trap 'exit 1' ERR; trap 'A=1' EXIT\npython a.py --a"),
        [""; 0]
    );
}
