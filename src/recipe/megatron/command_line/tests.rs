//! Scripts: what their launches say, where, and what is refused.

use super::*;
use crate::recipe::megatron::GivenValue;

fn given(text: &str) -> (Source, Option<GivenJob>, Vec<Diagnostic>) {
    let source = Source::new("launch.sh", text);
    let mut findings = Findings::default();
    let job = read(&source, &mut findings);
    (source, job, findings.into_vec())
}

/// Arguments of the only launch as `flag=value` texts; `-` is a switch.
#[track_caller]
fn arguments(text: &str) -> Vec<String> {
    let (_, job, found) = given(text);
    let job = job.unwrap_or_else(|| panic!("{}", found[0].to_plain()));
    assert_eq!(job.phases.len(), 1);
    job.phases[0].arguments.iter().map(shown).collect()
}

fn shown(argument: &GivenArgument) -> String {
    let value = match &argument.value {
        GivenValue::On => "-".to_string(),
        GivenValue::Off => "off".to_string(),
        GivenValue::Nothing => "nothing".to_string(),
        GivenValue::Text(text) => text.clone(),
        GivenValue::List(words) => format!("{words:?}"),
    };
    format!("{}={value}", argument.flag)
}

#[track_caller]
fn refused(text: &str, code: &str, line: usize) {
    let (_, job, found) = given(text);
    assert!(job.is_none(), "{job:?}");
    let finding = found.iter().find(|f| f.code == code);
    let finding = finding.unwrap_or_else(|| panic!("no {code}: {found:?}"));
    let (place, _) = finding.place.as_ref().unwrap();
    assert_eq!(place.source.line_column(place.span.start).0, line);
}

#[test]
fn flags_take_the_words_up_to_the_next_flag() {
    let line = "torchrun --nproc_per_node 8 pretrain_gpt.py --a 1 --b --c x y --d=z --e -1 --f -.5";
    let expected = [
        "--a=1",
        "--b=-",
        "--c=[\"x\", \"y\"]",
        "--d=z",
        "--e=-1",
        "--f=-.5",
    ];
    assert_eq!(arguments(line), expected);
    assert_eq!(
        arguments("--a 1\n--b\n--c 2 \\\n  --d\n"),
        ["--a=1", "--b=-", "--c=2", "--d=-"]
    );
}

#[test]
fn quotes_escapes_and_comments_are_a_shells() {
    let script = "python a.py --a 'x y' --b \"p\\\"q\" # --c 1\n";
    assert_eq!(arguments(script), ["--a=x y", "--b=p\"q"]);
    assert_eq!(
        arguments("python a.py --a x\\ y --b '' --c a#b"),
        ["--a=x y", "--b=", "--c=a#b"]
    );
    assert_eq!(
        arguments("python a.py --a $'x\\'y' --b \"\\\n1\""),
        ["--a=x'y", "--b=1"]
    );
    assert_eq!(
        arguments("python a.py --a 1 > f --b 2>&1 --c <in | tee --d"),
        ["--a=1", "--b=-", "--c=-"]
    );
    let here = "cat <<EOF\npython x.py --z 9 'open\nEOF\npython a.py --a 1\n";
    assert_eq!(arguments(here), ["--a=1"]);
}

#[test]
fn variables_and_arrays_are_put_in() {
    let script = "\
N=4; SIZE=\"$N\"8
A=( --x $N # comment
  --y \"a b\" )
A+=(--z)
S=\"--p 1 --q\"
python a.py \"${A[@]}\" $S --r $SIZE --s ${NONE:-7} --t ${NONE} --u $NONE/x --v ${N}k";
    let expected = [
        "--x=4",
        "--y=a b",
        "--z=-",
        "--p=1",
        "--q=-",
        "--r=48",
        "--s=7",
        "--t=${NONE}",
        "--u=$NONE/x",
        "--v=4k",
    ];
    assert_eq!(arguments(script), expected);
    // Quoted, a text stays one word; unquoted elements are split.
    assert_eq!(
        arguments("S='1 2'\npython a.py --a \"$S\" --b $S"),
        ["--a=1 2", "--b=[\"1\", \"2\"]"]
    );
    assert_eq!(
        arguments("A=(1 '2 3')\npython a.py --a ${A[@]} --b \"${A[*]}\" --c $A"),
        ["--a=[\"1\", \"2\", \"3\"]", "--b=1 2 3", "--c=1"]
    );
    let script = "A=(1 2); declare -A B=([x]=3 [y]=4)\n\
        python a.py --a ${A[1]} --b ${B[x]} --c ${A[7]} --d ${B[z]}";
    assert_eq!(
        arguments(script),
        ["--a=2", "--b=3", "--c=${A[7]}", "--d=${B[z]}"]
    );
}

#[test]
fn nothing_is_executed() {
    let script = "X=$(touch /tmp/never)\npython a.py --a $X --b `date` --c $((1+2)) --d ${X%/*}";
    let expected = [
        "--a=$(touch /tmp/never)",
        "--b=`date`",
        "--c=3",
        "--d=${X%/*}",
    ];
    assert_eq!(arguments(script), expected);
}

#[test]
fn arguments_stand_where_they_were_written() {
    let script = "A=(\n  --num-layers 12\n)\nS=\"--lr \\\n  1e-4\"\npython a.py ${A[@]} $S\n";
    let (source, job, _) = given(script);
    let job = job.unwrap();
    let at = |place: &Place| {
        (
            &source.text[place.span.clone()],
            source.line_column(place.span.start),
        )
    };
    let arguments = &job.phases[0].arguments;
    assert_eq!(at(&arguments[0].flag_place), ("--num-layers", (2, 3)));
    assert_eq!(at(&arguments[0].value_place), ("12", (2, 16)));
    assert_eq!(at(&arguments[1].flag_place), ("--lr", (4, 4)));
    assert_eq!(at(&arguments[1].value_place), ("1e-4", (5, 3)));
}

#[test]
fn the_environment_is_what_is_exported() {
    let script = "\
export A=1 B
B=2; C=3; export C; D=4
unset C
export -n A
mpirun -np 2 -x E=5 -x PATH python a.py --a 1";
    let (_, job, _) = given(&format!("H=8 env F=6 {}", script.lines().last().unwrap()));
    let names = |job: &GivenJob| -> Vec<String> {
        job.env
            .iter()
            .map(|v| format!("{}={}", v.name, v.value))
            .collect()
    };
    assert_eq!(names(&job.unwrap()), ["H=8", "F=6", "E=5"]);
    let (_, job, _) = given(script);
    assert_eq!(names(&job.unwrap()), ["B=2", "E=5"]);
}

/// The program's name is taken for it, so that the option ends without its value.
#[test]
fn a_wrappers_last_option_may_lack_its_value() {
    for wrapper in [
        "mpirun -np 16 -x",
        "mpirun --mca",
        "mpirun -genv",
        "env -u",
        "srun --export",
        "docker run -e",
        "singularity exec --env",
        "nsys profile --env-var",
        "timeout",
        "numactl -N",
    ] {
        let (_, job, findings) = given(&format!("{wrapper} X=a.py --num-layers 1"));
        assert!(job.is_some() || !findings.is_empty(), "{wrapper}");
    }
}

#[test]
fn the_world_comes_from_torchrun_or_slurm() {
    let world = |text: &str| -> Vec<String> {
        let (_, job, _) = given(text);
        let variables = job.unwrap().phases.remove(0).variables;
        variables
            .iter()
            .map(|v| format!("{}={}", v.name, v.value))
            .collect()
    };
    let both = ["GPUS_PER_NODE=4", "NNODES=2"];
    assert_eq!(
        world("torchrun --nproc-per-node=4 --nnodes 2 a.py --a"),
        both
    );
    assert_eq!(
        world("#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\nsrun python a.py --a"),
        both
    );
    assert_eq!(
        world(
            "#SBATCH --nodes=2 --gres=gpu:4\ntorchrun --nproc_per_node \
        $SLURM_GPUS_ON_NODE --nnodes $SLURM_NNODES a.py --a"
        ),
        both
    );
    // Of two kinds of resources the GPUs are not told apart; and none of the other kind is one.
    for gres in ["gpu:8,nvme:4", "nvme:4"] {
        let script = format!(
            "#SBATCH --gres={gres}\ntorchrun --nproc_per_node $SLURM_GPUS_ON_NODE a.py --a"
        );
        assert_eq!(world(&script), ["NNODES=1"], "{gres}");
    }
    // The last of an option counts, whatever it says; of two options that differ, none.
    let four = "--nproc-per-node 4 --nnodes $SLURM_NNODES";
    for (request, nodes) in [
        ("#SBATCH --nodes=1\n#SLURM --nodes=4", "4"),
        ("#SBATCH --nodes=2\n#SBATCH -N 1", "1"),
        ("#SBATCH --nodes=2\n#SBATCH --nodes=1-4", "$SLURM_NNODES"),
        ("#SBATCH --nodes=1-4", "$SLURM_NNODES"),
        ("#SBATCH -N1-4", "$SLURM_NNODES"),
    ] {
        let found = world(&format!("{request}\ntorchrun {four} a.py --a"));
        assert_eq!(
            found,
            ["GPUS_PER_NODE=4", &format!("NNODES={nodes}")],
            "{request}"
        );
    }
    for requests in [
        "--gpus-per-node=4\n#SBATCH --gpus-per-node=a100:2,v100:2",
        "--gres=gpu:4\n#SBATCH --gres=gpu:8,nvme:2",
        "--gres=gpu:4\n#SBATCH --gres=nvme:2",
        "--gres=gpu:4 --gpus-per-node=8",
    ] {
        let script =
            format!("#SBATCH {requests}\ntorchrun --nproc_per_node $SLURM_GPUS_ON_NODE a.py --a");
        assert_eq!(world(&script), ["NNODES=1"], "{requests}");
    }
    let same = "#SBATCH --gres=gpu:a100:4 --gpus-per-node=4\n";
    let script = format!("{same}torchrun --nproc_per_node $SLURM_GPUS_ON_NODE a.py --a");
    assert_eq!(world(&script), ["GPUS_PER_NODE=4", "NNODES=1"]);
    let tasks = "#SBATCH --ntasks=4\n#SBATCH --ntasks=8\nsrun python a.py --a";
    assert_eq!(world(tasks), ["WORLD_SIZE=8"]);
    let tasks = "#SBATCH --ntasks=4\n#SBATCH --ntasks=x\nsrun python a.py --a";
    assert_eq!(world(tasks), [""; 0]);
    let open = "torchrun --nproc_per_node $GPUS a.py --a";
    assert_eq!(world(open), ["NNODES=1"]);
}

#[test]
fn flags_alone_are_a_list_and_no_script() {
    assert_eq!(arguments("# a list\n--a 1 --b\n"), ["--a=1", "--b=-"]);
    refused("#!/bin/bash\n--a 1 --b\n", "stray-flags", 2);
}

#[test]
fn the_file_of_a_redirection_may_stand_in_the_next_line() {
    for redirection in [
        "> \\\n  --b",
        ">> \\\n--b",
        ">\\\n--b",
        "2> \\\n \\\n  --b",
        "2\\\n> --b",
        "2>\\\n>\\\n--b",
        "&> \\\n  --b",
        ">\\\n&2",
        "2>&1 > \\\n\t--b",
        "< \\\n --b",
    ] {
        let script = format!("torchrun a.py --a 1 {redirection} --c\n");
        assert_eq!(arguments(&script), ["--a=1", "--c=-"], "{script}");
    }
    for none in [">\n", "> ;", "> \\\n\n", "2> && x", "> | tee log"] {
        refused(&format!("torchrun a.py --a 1 {none}\n"), "shell-syntax", 1);
    }
}

#[test]
fn inner_shells_are_read() {
    let script = "o=\"--a 1 \\\n --b\"\nr=\"python -u x/pretrain_gpt.py $o\"\n\
        srun -l sh -c \"${r} --c 'd e'\"\n";
    assert_eq!(arguments(script), ["--a=1", "--b=-", "--c=d e"]);
    let mut nested = "python a.py --a 'b c'".to_string();
    for _ in 0..4 {
        nested = format!("bash -c '{}'", nested.replace('\'', "'\\''"));
    }
    assert_eq!(arguments(&nested), ["--a=b c"]);
    // A shell that starts itself through a variable.
    let endless = "export A='bash -c \"$A\"'\nbash -c \"$A\"\n";
    refused(endless, "shell-depth", 1);
}

#[test]
fn what_cannot_be_known_is_told() {
    let codes = |text: &str| -> Vec<&str> {
        let (_, job, found) = given(text);
        assert!(job.is_some(), "{found:?}");
        of_script(&found)
    };
    assert_eq!(
        codes("if x; then N=1; else N=2; fi\npython a.py --a $N"),
        ["undecided-branch"]
    );
    assert_eq!(codes("python a.py --a 1 \"$@\""), ["unset-variable"]);
    assert_eq!(codes("source env.sh\npython a.py --a 1"), ["not-read"]);
    assert_eq!(
        codes("python b.py --a 1\npython pretrain_x.py --a 1"),
        ["not-read"]
    );
    assert_eq!(codes("torchrun $CMD --x\npython a.py --a 1"), ["not-read"]);
    assert_eq!(codes("bash env.sh\npython a.py --a 1"), ["not-read"]);
    assert_eq!(
        codes("ssh h 'torchrun b.py --x'\npython a.py --a 1"),
        ["not-read"]
    );
    assert_eq!(codes("python a.py --a-b 1 --a_b 2"), ["repeated-argument"]);
    let both = ["--a-b=1", "--a_b=2"];
    assert_eq!(arguments("python a.py --a-b 1 --a_b 2"), both);
    assert_eq!(codes("python a.py --a 1 --a 1"), [""; 0]);
}

#[test]
fn several_launches_are_phases() {
    let (_, job, found) = given("torchrun pretrain_gpt.py --a 1\ntorchrun pretrain_gpt.py --a 2\n");
    assert_eq!(found[0].code, "several-launches");
    assert!(
        found[0].to_plain().contains("launch.sh:2:10"),
        "{}",
        found[0].to_plain()
    );
    let names: Vec<_> = job
        .unwrap()
        .phases
        .iter()
        .map(|phase| phase.name.clone())
        .collect();
    assert_eq!(names, ["pretrain_gpt.py", "pretrain_gpt.py (2)"]);
}

#[test]
fn broken_scripts_are_refused_with_their_places() {
    refused("A=1\npython a.py --a 'x\n", "shell-syntax", 2);
    refused("A=1\nB=(1 2\npython a.py\n", "shell-syntax", 2);
    refused("python a.py --a ${B\n", "shell-syntax", 1);
    refused("python a.py --a \\ \n  --b\n", "broken-continuation", 1);
    refused("python a.py 1 --a\n", "stray-word", 1);
    refused("python a.py --d=z 1\n", "stray-word", 1);
    refused("echo hello\n", "no-arguments", 1);
    refused(
        &format!("python a.py --a {}", "x".repeat(70_000)),
        "value-too-long",
        1,
    );
    refused(
        &format!("python a.py {}", "--a ".repeat(5_000)),
        "too-many",
        1,
    );
    refused(&"python a.py --a\n".repeat(65), "too-many", 65);
}

#[test]
fn bombs_end_at_their_limits() {
    let mut double = "A=xxxxxxxx\n".to_string();
    (0..64).for_each(|_| double += "A=$A$A\n");
    refused(&(double + "python a.py --a $A\n"), "shell-size", 19);
    let mut arrays = "A=(1 2)\n".to_string();
    (0..64).for_each(|_| arrays += "A=(${A[@]} ${A[@]})\n");
    refused(&(arrays + "python a.py ${A[@]}\n"), "shell-size", 15);
    refused(&"python a.py --a\n".repeat(300), "too-many", 257);
    let exports: String = (0..300).map(|i| format!("export A{i}=1\n")).collect();
    refused(&(exports + "python a.py --a\n"), "too-many", 257);
    // Few words, called again and again.
    let body = "A=1\n".repeat(5_000);
    let calls = "f\n".repeat(1_000);
    refused(
        &format!("f() {{\n{body}}}\n{calls}python a.py --a\n"),
        "shell-size",
        509,
    );
    let nested = "${a:-".repeat(100_000);
    refused(&format!("python a.py --a {nested}"), "shell-syntax", 1);
    let nested = format!("{}x{}", "${a:-".repeat(1_000), "}".repeat(1_000));
    refused(&format!("python a.py --a {nested}"), "shell-syntax", 1);
    refused(&"x ".repeat(100_000), "shell-syntax", 1);
}

/// Codes of the findings of a script that is read, in order.
#[track_caller]
fn codes(text: &str) -> Vec<&'static str> {
    let (_, job, found) = given(text);
    assert!(job.is_some(), "{found:?}");
    of_script(&found)
}

/// All codes but those about the program: `a.py` is none of Megatron's.
fn of_script(found: &[Diagnostic]) -> Vec<&'static str> {
    let codes = found.iter().map(|finding| finding.code);
    codes.filter(|code| *code != "other-program").collect()
}

#[track_caller]
fn environment(text: &str) -> Vec<String> {
    let (_, job, found) = given(text);
    let job = job.unwrap_or_else(|| panic!("{found:?}"));
    let shown = |given: &GivenVariable| format!("{}={}", given.name, given.value);
    job.env.iter().map(shown).collect()
}

#[track_caller]
fn world(text: &str) -> Vec<String> {
    let (_, job, found) = given(text);
    let job = job.unwrap_or_else(|| panic!("{found:?}"));
    let shown = |given: &GivenVariable| format!("{}={}", given.name, given.value);
    job.phases[0].variables.iter().map(shown).collect()
}

mod against_bash;
mod doubts;
mod plain_scripts;
mod scopes;
mod shells;
mod wrappers;
