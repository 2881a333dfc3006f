//! What stands before a program, and what a script does that is not what it seems.

use super::*;

/// The environment of a job behind `export NCCL_ALGO=Ring`; `None` where it is refused for it.
fn behind(launch: &str) -> (Option<Vec<String>>, bool) {
    let (_, job, found) = given(&format!("export NCCL_ALGO=Ring\n{launch}"));
    let is_refused = found.iter().any(|f| f.code == "unset-variable");
    assert_eq!(job.is_none(), is_refused, "{launch}: {found:?}");
    let shown = |given: &GivenVariable| format!("{}={}", given.name, given.value);
    let is_open = job
        .as_ref()
        .is_some_and(|job| job.phases[0].reads.is_some());
    let env = job.map(|job| job.env.iter().map(shown).collect());
    (env, is_open)
}

#[test]
fn a_wrapper_that_may_drop_variables_leaves_none_known() {
    for wrapper in [
        "docker run --rm img",
        "docker run -e NCCL_ALGO img",
        "sudo",
        "ssh host",
        "kubectl exec pod --",
        "apptainer exec --cleanenv img.sif",
        "apptainer exec -e img.sif",
        "singularity exec --containall img.sif",
        "mpiexec -n 8 -genvlist PATH",
        "mpirun --mca mca_base_env_list 'A=1'",
        "env -S 'NCCL_ALGO=Tree'",
        "env $VARIABLES",
        "srun $OPTIONS",
        "./set_env.sh",
        "$LAUNCHER",
        "srun ./bind.sh",
        "exec -c",
        "uv run --env-file x",
    ] {
        let launch = format!("{wrapper} python a.py --a");
        assert_eq!(behind(&launch), (None, false), "{wrapper}");
    }
    for wrapper in ["bash -lc", "docker run img bash -c", "ssh host bash -c"] {
        let launch = format!("{wrapper} 'python a.py --a'");
        assert_eq!(behind(&launch), (None, false), "{wrapper}");
    }
    let steered = "export SLURM_EXPORT_ENV=NONE; srun python a.py --a";
    assert_eq!(behind(steered), (None, false));
    let late = "#SBATCH --export=NONE\npython a.py --a";
    let (_, job, _) = given(late);
    assert!(job.expect("read").phases[0].reads.is_some());
}

#[test]
fn a_wrapper_that_is_known_changes_what_it_says() {
    let ring = || Some(vec!["NCCL_ALGO=Ring".to_string()]);
    for plain in [
        "nohup",
        "timeout 10",
        "numactl -N 0",
        "nice -n 5",
        "uv run --no-sync",
        "srun -n 8",
    ] {
        let launch = format!("{plain} python a.py --a");
        assert_eq!(behind(&launch), (ring(), false), "{plain}");
    }
    assert_eq!(
        behind("apptainer exec x.sif python a.py --a"),
        (ring(), true)
    );
    assert_eq!(
        behind("mpirun -n 8 -H a:4,b:4 python a.py --a"),
        (ring(), true)
    );
    let tree = || Some(vec!["NCCL_ALGO=Tree".to_string()]);
    for sets in [
        "mpirun -n 8 -x NCCL_ALGO=Tree",
        "srun --export ALL,NCCL_ALGO=Tree",
        "nsys profile --env-var=NCCL_ALGO=Tree",
    ] {
        let launch = format!("{sets} python a.py --a");
        assert_eq!(behind(&launch), (tree(), false), "{sets}");
    }
    for sets in [
        "docker run -eNCCL_ALGO=Tree img",
        "docker run --env NCCL_ALGO=Tree img",
        "sudo NCCL_ALGO=Tree",
        "apptainer exec --env NCCL_ALGO=Tree x.sif",
    ] {
        let launch = format!("{sets} python a.py --a");
        assert_eq!(behind(&launch), (tree(), true), "{sets}");
    }
    let none = Some(Vec::new());
    assert_eq!(behind("srun --export NONE python a.py --a"), (none, false));
}

#[test]
fn each_launch_has_its_own_environment() {
    let script = "export NCCL_ALGO=Tree\ntorchrun pretrain_gpt.py --a\nunset NCCL_ALGO\n\
        torchrun pretrain_gpt.py --b";
    let (_, job, _) = given(script);
    let job = job.expect("read");
    let of = |phase| job.variable(phase, "NCCL_ALGO").map(|v| v.value.clone());
    assert_eq!((of(0), of(1)), (Some("Tree".to_string()), None));
}

#[test]
fn what_is_not_known_stays_one_word() {
    let script = "X=$(pick --seed 7 --bf16)\npython a.py --a $X --b";
    assert_eq!(arguments(script), ["--a=$(pick --seed 7 --bf16)", "--b=-"]);
    let script = "X=$(get --nnodes 4)\ntorchrun --nproc-per-node 8 --node_rank $X a.py --a";
    assert_eq!(world(script), ["GPUS_PER_NODE=8", "NNODES=1"]);
    for text in ["$'\\61'", "~/x", "\"${X:-'a'}\""] {
        let script = format!("python a.py --a {text}");
        assert!(arguments(&script)[0].contains('$'), "{text}");
    }
    assert_eq!(arguments("python a.py ${X:---a 5 --b}"), ["--a=5", "--b=-"]);
}

#[test]
fn commands_that_variables_hold_are_run() {
    for command in [
        "X='export NCCL_ALGO=Tree'; $X",
        "E=export; $E NCCL_ALGO=Tree",
        "run() { \"$@\"; }; run export NCCL_ALGO=Tree",
        "s() { export NCCL_ALGO=$1; }; run() { \"$@\"; }; run s Tree",
    ] {
        let script = format!("{command}\npython a.py --a");
        assert_eq!(environment(&script), ["NCCL_ALGO=Tree"], "{command}");
    }
    let script = "f() { export NCCL_ALGO=Tree; }\nbash -c 'f; python a.py --a'";
    assert_eq!(environment(script), [""; 0]);
    let script = "f() { export A=1; }\nexport -f f\nbash -c 'f; python a.py --a'";
    assert_eq!(environment(script), ["A=1"]);
}

#[test]
fn what_a_shell_would_not_run_so_is_refused() {
    for (script, code, line) in [
        ("A=1\r\npython a.py --a", "carriage-return", 1),
        ("python a.py --a \\\n # --b \\\n --c", "stray-flags", 3),
        ("NCCL_AL\\\nGO=Tree\npython a.py --a", "shell-syntax", 1),
        ("shopt -s nocasematch\npython a.py --a", "not-followed", 1),
        ("set -k\npython a.py --a", "not-followed", 1),
        (
            "mpirun -n 2 python a.py --a : -n 2 python a.py --b",
            "not-followed",
            1,
        ),
        (": > ${X:=y}\npython a.py --a", "shell-syntax", 1),
    ] {
        refused(script, code, line);
    }
    for doubt in [
        "cd x && export NCCL_ALGO=Tree",
        "X=$(cmd) && export NCCL_ALGO=Tree",
        "! true && export NCCL_ALGO=Tree",
        "export NCCL_ALGO=Ring; f() { local NCCL_ALGO; python a.py --a; }; f",
        "for A in 1 2; do if x; then continue; fi; export NCCL_ALGO=$A; done",
    ] {
        let (_, job, found) = given(&format!("{doubt}\npython a.py --a"));
        assert!(job.is_none(), "{doubt}: {found:?}");
    }
    let script = "for N in 1 2; do if [ $N -eq 1 ]; then continue; fi; python a.py --a $N; done";
    assert_eq!(arguments(script), ["--a=$N"]);
    let script = "for N in Ring Tree; do export NCCL_ALGO=$N; python a.py --a; done";
    assert_eq!(codes(script), ["undecided-branch"]);
}

#[test]
fn what_is_known_decides() {
    for (before, expected) in [
        ("N=2; [ $N -gt 1 ] && X=5", "--a=5"),
        ("N=2; [ $N -gt 1 ] || X=5", "--a=1"),
        ("N=2; (( N > 4 )) && X=5", "--a=1"),
        ("N=2; if (( N == 2 )); then X=$N; fi", "--a=2"),
        ("D=true; if $D; then X=5; fi", "--a=5"),
        ("X=3; : ${X:?}", "--a=3"),
        (
            "f() { while [ $# -gt 0 ]; do X=$1; shift; done; }; f",
            "--a=1",
        ),
        ("exec 10>lock", "--a=1"),
        ("N=1; X=$((N++))", "--a=$X"),
        ("X=1; : $((X+=1))", "--a=$X"),
        ("for ((X = 2; X < 3; X++)); do :; done", "--a=$X"),
    ] {
        let script = format!("X=1; {before}\npython a.py --a $X");
        let found = arguments(&script);
        let is_open = found[0].contains("$((");
        assert!(found == [expected] || is_open, "{before}: {found:?}");
    }
}
