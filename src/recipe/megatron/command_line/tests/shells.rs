//! Scripts that are more than a line: functions, shells of their own, branches, launchers.

use super::*;

#[test]
fn a_function_runs_where_it_is_called() {
    let script = "\
run() {
  local N=2 M
  M=3
  python a.py --n $N --m $M --x \"$1\" --all \"${@}\"
}
other() { python b.py --never 1; }
N=7
M=8
run a 'b c'
python a.py --n $N --m $M
";
    let (_, job, found) = given(script);
    let job = job.unwrap();
    let shown: Vec<Vec<String>> = job
        .phases
        .iter()
        .map(|phase| phase.arguments.iter().map(shown).collect())
        .collect();
    let called = ["--n=2", "--m=3", "--x=a", "--all=[\"a\", \"b c\"]"];
    assert_eq!(shown, [&called[..], &["--n=7", "--m=8"]]);
    assert_eq!(of_script(&found), ["several-launches"]);
    assert_eq!(
        arguments("function f { python a.py --a \"$@\"; }\nX=f\n$X 1"),
        ["--a=1"]
    );
    assert_eq!(
        arguments("f() (python a.py --a $1)\nf 1 || exit 1"),
        ["--a=1"]
    );
    assert_eq!(environment("f() { python a.py --a; }\nB=1 f"), ["B=1"]);
    assert_eq!(
        arguments("f() { return; python a.py --b; }\nf\npython a.py --a"),
        ["--a=-"]
    );
    // Nothing calls it: no launch.
    refused("run() {\n python a.py --a 1\n}\n", "no-arguments", 1);
    let (_, _, found) = given("run() {\n python a.py --a 1\n}\n");
    assert!(
        found[0].to_plain().contains("never called: run"),
        "{found:?}"
    );
    refused("f() { f; }\nf\n", "shell-depth", 1);
    let tree = "a() { b; b; }\nb() { c; c; }\nc() { a; a; }\na\npython a.py --a";
    refused(tree, "shell-depth", 2);
}

#[test]
fn a_script_ends_where_it_exits() {
    assert_eq!(
        arguments("python a.py --a\nexit 0\npython a.py --b\n"),
        ["--a=-"]
    );
    // What stands behind is not even read.
    assert_eq!(arguments("python a.py --a\nexit\nit's over (\n"), ["--a=-"]);
    assert_eq!(
        arguments("exec python a.py --a\npython a.py --b\n"),
        ["--a=-"]
    );
    assert_eq!(
        arguments("f() { exit; }\npython a.py --a\nf\npython a.py --b"),
        ["--a=-"]
    );
    // An exit that may not happen, or only in a shell of its own.
    for start in [
        "(exit)",
        "cd x || exit 1",
        "if x; then exit; fi",
        "exit | cat",
        "exec > log",
    ] {
        assert_eq!(
            arguments(&format!("{start}\npython a.py --a")),
            ["--a=-"],
            "{start}"
        );
    }
    refused("exit\npython a.py --a\n", "no-arguments", 1);
}

#[test]
fn what_another_shell_sets_is_lost() {
    let script = "export A=1\n(export A=2; export B=3)\nexport A=4 | cat\nA=5 &\npython a.py --a";
    assert_eq!(environment(script), ["A=1"]);
    assert_eq!(environment("export A=1\n(A=2; python a.py --a)"), ["A=2"]);
    // A program sees what is exported, and single quotes leave the rest to it.
    let script = "export A=1; B=2\nbash -c 'python a.py --a $A --b $B'";
    assert_eq!(arguments(script), ["--a=1", "--b=$B"]);
    assert_eq!(arguments("bash -c 'python a.py --a $1' name x"), ["--a=x"]);
    assert_eq!(
        arguments("A='--a \"b c\"'\neval python a.py $A"),
        ["--a=b c"]
    );
    assert_eq!(
        arguments("H=$(cd \"$(dirname x)\"; pwd)\npython \"$H/a.py\" --a"),
        ["--a=-"]
    );
    assert_eq!(arguments("sbatch --wrap=\"python a.py --a 1\""), ["--a=1"]);
}

#[test]
fn env_takes_variables_away() {
    let exports = "export A=1 B=2 C=3\n";
    let of = |line: &str| environment(&format!("{exports}{line} python a.py --a"));
    assert_eq!(of(""), ["A=1", "B=2", "C=3"]);
    assert_eq!(of("env -u A --unset=B D=4"), ["C=3", "D=4"]);
    assert_eq!(of("env -i E=5 nice"), ["E=5"]);
    assert_eq!(of("srun --export=B,F=6"), ["B=2", "F=6"]);
    assert_eq!(of("srun --export=ALL,A=7"), ["B=2", "C=3", "A=7"]);
    assert_eq!(of("env -u A bash -c 'python a.py --b' #"), ["B=2", "C=3"]);
    assert_eq!(
        environment("A=1\nset -a\nB=2\nset +a\nC=3\npython a.py --a"),
        ["B=2"]
    );
}

#[test]
fn sums_are_reckoned_where_all_is_known() {
    let script = "G=4; N=$((G * 2))\nB=$(( $N*(${G}-1) ))\n\
        python a.py --n $N --b $B --c $((B/5%3)) --d $((X + 1)) --e \"$((G<<1))\" --f $((07))";
    let expected = [
        "--n=8",
        "--b=24",
        "--c=1",
        "--d=$((X + 1))",
        "--e=$((G<<1))",
        "--f=$((07))",
    ];
    assert_eq!(arguments(script), expected);
    // A sum of a value in doubt is in doubt.
    let script = "N=1\nif x; then N=2; fi\npython a.py --a $((N * 2))";
    assert_eq!(codes(script), ["undecided-branch"]);
    assert_eq!(arguments(script), ["--a=$((N * 2))"]);
    // What is counted in the script is not known.
    assert_eq!(arguments("N=1\n((N++))\npython a.py --a $N"), ["--a=$N"]);
    assert_eq!(arguments("N=1\nread N\npython a.py --a $N"), ["--a=$N"]);
}

#[test]
fn doubts_are_told_where_they_matter() {
    let all = ["undecided-branch"];
    for doubt in [
        "if x; then export NCCL_ALGO=Tree; fi",
        "[ -z $X ] && export NCCL_ALGO=Tree",
        "export NCCL_ALGO=Ring; if x; then unset NCCL_ALGO; fi",
    ] {
        refused(&format!("{doubt}\npython a.py --a"), "unset-variable", 1);
    }
    assert_eq!(codes("if x; then python a.py --a; fi"), all);
    assert_eq!(codes("test -d x && python a.py --a"), all);
    assert_eq!(
        codes("case $1 in a|b) python a.py --a ;; *) echo ;; esac"),
        all
    );
    // Nothing hangs on these.
    for sound in [
        "cd x && python a.py --a",
        "python a.py --a || exit 1",
        "if x; then export NOT_KNOWN=1; fi\npython a.py --a",
        "if x; then echo python b.py --b; fi\npython a.py --a",
        "while read line; do X=$line; done < f\npython a.py --a",
        "(cd x; python a.py --a)",
        "if [[ $1 == a && ( $2 > 3 ) ]]; then X=1; fi\npython a.py --a",
    ] {
        assert_eq!(codes(sound), [""; 0], "{sound}");
    }
    // An option over a value that the script has itself.
    let script = "N=2\nwhile [ $# -gt 0 ]; do case $1 in --n) N=\"$2\"; shift 2;; esac; done\n\
        python a.py --a $N";
    assert_eq!(
        (codes(script), arguments(script)),
        (vec!["not-read"], vec!["--a=2".to_string()])
    );
    // What a caller does not know, its function does not know.
    let script = "f() { python a.py --a $1; }\nN=1; if x; then N=2; fi\nf $N";
    assert_eq!(
        (codes(script), arguments(script)),
        (all.to_vec(), vec!["--a=$N".to_string()])
    );
    let script = "for i in 1 2; do export NCCL_ALGO=Ring; python a.py --a; done";
    assert_eq!(codes(script), [""; 0]);
    let script = "for i in 1 2; do A+=\" --b $i\"; done\npython a.py --bf16 $A";
    refused(script, "unset-variable", 2);
    // Words of which nothing is known, where no value can stand.
    for open in [
        "$M --bf16",
        "--bf16 ${X}",
        "--lr 1e-4 $Y",
        "--seed=1 $Z",
        "--bf16 `x`",
        "--data-path x $Y",
    ] {
        refused(&format!("python a.py {open}"), "unset-variable", 1);
    }
    assert_eq!(arguments("python a.py --lr $X"), ["--lr=$X"]);
    let script = "for N in 3 4; do python a.py --a $N; done";
    assert_eq!(
        (codes(script), arguments(script)),
        (all.to_vec(), vec!["--a=3".to_string()])
    );
}

#[test]
fn every_launcher_says_how_many_ranks_there_are() {
    let one = |before: &str| world(&format!("{before} python a.py --a"));
    for before in [
        "mpirun -np 16",
        "mpirun --allow-run-as-root -n 16 -x A=1",
        "mpiexec -n16",
        "srun -n 16 -N 2",
        "srun --ntasks=16",
        "srun -n16 bash -c '",
        "#SBATCH -n 16\nsrun",
    ] {
        let end = if before.ends_with('\'') { "'" } else { "" };
        let found = world(&format!("{before} python a.py --a{end}"));
        assert_eq!(found, ["WORLD_SIZE=16"], "{before}");
    }
    let both = ["GPUS_PER_NODE=8", "NNODES=2"];
    assert_eq!(one("srun -N 2 --ntasks-per-node=8"), both);
    let own = |before: &str| world(&format!("{before} a.py --a"));
    assert_eq!(own("srun -N2 torchrun --nproc-per-node 8 --nnodes 2"), both);
    // Not the ranks of the launch itself.
    assert_eq!(
        own("mpirun -np 2 torchrun --nproc_per_node 8 --nnodes 2"),
        both
    );
    assert_eq!(one("docker run -n 3"), [""; 0]);
    // No task of Slurm's.
    assert_eq!(one("#SBATCH -n 16\n"), [""; 0]);
    for open in ["--nproc_per_node $GPUS", "--nproc-per-node gpu"] {
        let line = format!("torchrun {open} a.py --a");
        assert_eq!(
            (world(&line), codes(&line)),
            (vec!["NNODES=1".to_string()], vec!["unset-variable"]),
            "{open}"
        );
    }
}

#[test]
fn what_is_not_closed_is_refused_where_it_begins() {
    for (script, line) in [
        ("A=1\nif x; then\npython a.py --a\n", 2),
        ("if x\npython a.py --a\nfi\n", 1),
        ("python a.py --a\nfi\n", 2),
        ("for x in a; do\npython a.py --a\n", 1),
        ("while x; do python a.py --a\n", 1),
        ("case x in\n a) python a.py --a ;;\n", 1),
        ("f() {\npython a.py --a\n", 1),
        ("( python a.py --a\n", 1),
        ("python a.py --a\n)\n", 2),
        ("python a.py --a\ndone\n", 2),
        ("if [[ a; then python a.py --a; fi\n", 1),
        ("cat <<EOF\npython a.py --a\n", 1),
        ("python a.py --a \"x\n", 1),
        ("A=1\n&& python a.py --a\n", 2),
        ("python a.py --a |\n", 1),
        ("(( A = 1\npython a.py --a\n", 1),
    ] {
        refused(script, "shell-syntax", line);
    }
    for open in ["(", "{ ", "if ", "f() { ", "while "] {
        refused(&open.repeat(10_000), "shell-syntax", 1);
    }
    let nested = format!("{}x{}", "( ".repeat(10_000), " )".repeat(10_000));
    refused(&nested, "shell-syntax", 1);
}

#[test]
fn here_documents_are_scripts_for_a_shell_only() {
    let script = "A=1\nbash -s <<EOF\npython a.py --a $A --b \"c d\"\nEOF\n";
    assert_eq!(arguments(script), ["--a=1", "--b=c d"]);
    let script = "A=1\nsrun -n 2 bash <<'EOF' | tee log\npython a.py --a $A\nEOF\n";
    assert_eq!(arguments(script), ["--a=$A"]);
    let script = "cat > x.sh <<-EOF\n\tpython b.py --b 'open\n\tEOF\npython a.py --a\n";
    assert_eq!(arguments(script), ["--a=-"]);
}

#[test]
fn places_stay_within_the_text() {
    // Words whose characters come from anywhere in it, or from nowhere.
    for script in [
        "\u{feff}'' x; '' && python a.py --a",
        "f() { eval \"export $X$Y\"; python a.py --a; }; Y=bcdef X=a;f",
        "\u{feff}bash -c '' ; export ''; python a.py --\u{e9}",
        "eval \"'\u{e9}\" \"b' && python a.py --a\"",
        "N=\u{e9}; export \"$N\" $((N)); python a.py --a",
        "\u{feff}if '' ; then '' ; fi ; ( '' ) ; python a.py --a",
    ] {
        let (source, _, found) = given(script);
        for finding in &found {
            let (place, _) = finding.place.as_ref().expect("every finding has a place");
            assert!(
                source.text.get(place.span.clone()).is_some(),
                "{script}: {finding:?}"
            );
            finding.to_plain();
        }
    }
}
