//! Plain scripts, and what small changes make of them, run by the real bash: a script that is
//! called plain is read as bash reads it. The seed is fixed; `BITPROOF_SCRIPTS` asks for more.

use std::fmt::Write as _;

use super::super::launcher;
use super::super::plain::first_beyond;
use super::super::script::Script;
use super::super::shell::Remark;
use super::super::text::Text;
use super::against_bash::{Choices, NAMES, Printed, printed};

/// Scripts of one run of the test.
const SCRIPTS: u32 = 120;
/// Changed scripts to each, of which most are no longer plain.
const CHANGED: u32 = 7;

fn word(choices: &mut Choices) -> String {
    let name = choices.of(&NAMES);
    match choices.below(20) {
        14..=19 | 0..=2 => choices
            .of(&[
                "a", "b1", "--x=y", "x.y/z", "^NVLS", "a,b:c", "1e-8", "@x%", "5",
            ])
            .to_string(),
        3 => choices
            .of(&["'a b'", "\"a  b\"", "\"\"", "''", "'\"'", "\"it's\""])
            .to_string(),
        4 => format!("${name}"),
        5 => format!("\"${name}\""),
        6 => format!("x${{{name}}}y"),
        7 => format!("{}{{{name}:-d}}", choices.of(&["$", "x$"])),
        8 => format!("\"${{{name}-e}} z\""),
        9 => format!("\"p ${name} q\"'r s'"),
        10 => choices
            .of(&["\"${L[@]}\"", "${L[@]}", "\"${L[*]}\"", "${L[*]}"])
            .to_string(),
        // An array without its index is beyond.
        11 if choices.below(8) == 0 => choices
            .of(&["$L", "\"$L\"", "x$L", "${L}", "${L-e}", "${L:-d}"])
            .to_string(),
        11 => choices.of(&["\"p${L[@]}q\"", "p${L[*]}q"]).to_string(),
        12 if choices.below(8) == 0 => choices
            .of(&["$1", "\"$2\"", "\"$@\"", "$*", "\"$*\"", "${1:-f}"])
            .to_string(),
        _ => choices
            .of(&["\"a \\\nb\"", "\"a\nb\"", "'a\n b'", "{}", "a#b"])
            .to_string(),
    }
}

fn words(choices: &mut Choices, most: usize, between: &[&str]) -> String {
    let mut text = String::new();
    for index in 0..choices.below(most + 1) {
        let blank = if index > 0 { choices.of(between) } else { "" };
        write!(text, "{blank}{}", word(choices)).expect("a text takes it");
    }
    text
}

fn line(choices: &mut Choices) -> String {
    let (name, other) = (choices.of(&NAMES[..3]), choices.of(&NAMES));
    let (first, second) = (word(choices), word(choices));
    match choices.below(20) {
        18 => choices
            .of(&[
                "set +e",
                "set +ux",
                ":",
                "true",
                ": $A \"$B\"",
                "export NCCL_ALGO",
            ])
            .to_string(),
        19 => format!(
            "NCCL_ALGO={first}\n{}",
            choices.of(&[
                "export NCCL_ALGO",
                "export A NCCL_ALGO",
                ":; export NCCL_ALGO"
            ])
        ),
        14 => format!(
            "N={}",
            choices.of(&["8", "3", "12", "08", "8x", "$A", "$N"])
        ),
        15 => format!(
            "{name}=$(({}{}{}))",
            choices.of(&["N", "$N", "${N}", "2", "A"]),
            choices.of(&["*", " + ", "-", " * "]),
            choices.of(&["N", "$N * 3", "4", "10-$N", "B"])
        ),
        16 => format!(
            "{name}={}",
            choices.of(&["$(pwd)", "\"$(dirname \"$0\")/x\"", "a$(basename /b/c)"])
        ),
        17 => choices
            .of(&["set +x", "ulimit -n", "WORLD_SIZE=$((N*2))", "WORLD_SIZE=8"])
            .to_string(),
        0..=3 => format!("{name}={first}"),
        4 => format!("{name}+={first}"),
        5 => format!(
            "L=({})",
            words(choices, 4, &[" ", "\n  ", " # c d\n", " \\\n"])
        ),
        6 => format!("L+=({})", words(choices, 3, &[" ", "\n"])),
        7 => format!("export {name}"),
        8 => format!("export {other}={first} {name}={second}"),
        9 => format!("export {other}={first}"),
        10 => format!(
            "echo {first} {second} {}",
            choices.of(&["", ">/dev/null", "# x", ">&2"])
        ),
        11 => choices
            .of(&["set -x", "set -xo pipefail", "cd .", "# c"])
            .to_string(),
        12 => format!("{name}={first}; export {name}"),
        _ => format!("{name}=  # {first}"),
    }
}

fn script(seed: u64) -> String {
    let mut choices = Choices(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut text = String::new();
    text += "A=a\nB='b c'\nC=\nN=5\nL=( 1 'x  y' )\n";
    for _ in 0..2 + choices.below(7) {
        writeln!(text, "{}", line(&mut choices)).expect("a text takes it");
    }
    let words = words(&mut choices, 4, &[" ", "  ", " \\\n  "]);
    let end = choices.of(&[
        "",
        " 2>&1",
        " > log",
        " 2>&1 | tee log",
        " # e",
        ";",
        " &> log",
        " > \\\n  log",
        " 2>> \\\n \\\n--log >> \\\n log",
        " --x > \\\n  log --y",
        " 2>&1 | tee \\\n  log",
        "\nwait\nexit 1",
    ]);
    let before = match choices.below(6) {
        0 => format!("{}={} ", choices.of(&NAMES), word(&mut choices)),
        1 => format!("A={} B={} ", word(&mut choices), word(&mut choices)),
        _ => String::new(),
    };
    let array = choices.of(&["\"${L[@]}\"", "${L[@]}", "$A", "$B $C"]);
    writeln!(
        text,
        "{before}torchrun --nproc-per-node 8 a.py {words} {array} $N{end}"
    )
    .expect("a text");
    text
}

/// A script with something put in, or taken out.
fn changed(script: &str, choices: &mut Choices) -> String {
    const ODD: [&str; 42] = [
        "'", "\"", "\\", "\n", " ", "$", "`", "(", ")", "#", ";", "&", "|", ">", "<", "*", "~",
        "=", "+", "[", "{", "}", "-", "!", "${A", "A=", "\t", "export ", "--", "$1", "${L[@]}",
        "\\\n", " > \\\n ", " 2>\\\n", "A+=", "L=(", "5>", "2>&1", " #", "$'", "}\"", "^",
    ];
    let mut text: Vec<char> = script.chars().collect();
    for _ in 0..1 + choices.below(2) {
        let at = choices.below(text.len());
        match choices.below(3) {
            0 => drop(text.remove(at)),
            1 => drop(text.splice(at..at, choices.of(&ODD).chars())),
            _ => {
                let (from, length) = (choices.below(text.len()), 1 + choices.below(8));
                let part: Vec<char> = text.iter().skip(from).take(length).copied().collect();
                drop(text.splice(at..at, part));
            }
        }
    }
    text.into_iter().collect()
}

/// Holds one plain script against what bash printed. Whether all of it was known.
fn agrees(script: &str, printed: &Printed) -> bool {
    let text = Text::of_file(script);
    let Ok(read) = Script::read(&text, &[]) else {
        return false;
    };
    let [launch] = read.launches.as_slice() else {
        return false;
    };
    let program = launch.program.as_ref().expect("it has one");
    let is_plain = launcher::is_plain(&launch.before, program);
    let mut all = launch.arguments.iter().chain(&launch.before);
    let is_open = all.any(Text::is_open);
    if !is_plain || is_open || launch.remarks.iter().any(Remark::is_doubt) {
        return false;
    }
    assert!(
        launch.condition.is_none() && launch.reads.is_none(),
        "{script}"
    );
    let all = launch.before[1..]
        .iter()
        .chain([program])
        .chain(&launch.arguments);
    let all: Vec<String> = all.map(Text::string).collect();
    assert_eq!(all, printed.words, "\n{script}");
    for name in NAMES {
        let told = launch.environment.iter().find(|one| one.name == name);
        let told = told.map(|one| &one.value);
        if told.is_none_or(|value| !value.contains(['$', '`'])) {
            assert_eq!(told, printed.exported.get(name), "{name}\n{script}");
        }
    }
    true
}

#[test]
fn a_plain_script_is_read_as_bash_reads_it() {
    let asked = std::env::var("BITPROOF_SCRIPTS").ok();
    let count = asked
        .and_then(|count| count.parse().ok())
        .unwrap_or(SCRIPTS);
    let mut choices = Choices(7);
    let mut scripts: Vec<String> = (1..=u64::from(count)).map(script).collect();
    let written = scripts.len();
    for index in 0..written * CHANGED as usize {
        let other = changed(&scripts[index % written], &mut choices);
        scripts.push(other);
    }
    let is_plain = |script: &String| first_beyond(script).is_none();
    let (own, others) = scripts.split_at(written);
    let own: Vec<String> = own
        .iter()
        .filter(|script| is_plain(script))
        .cloned()
        .collect();
    assert!(
        own.len() * 2 > written,
        "{} of {written} are plain",
        own.len()
    );
    let others: Vec<String> = others
        .iter()
        .filter(|script| is_plain(script))
        .cloned()
        .collect();
    assert!(
        others.len() > written,
        "{} changed ones are plain",
        others.len()
    );
    let all: Vec<String> = own.iter().chain(&others).cloned().collect();
    let Some(printed) = printed(&all) else {
        eprintln!("skipped: there is no bash here");
        return;
    };
    let mut known = 0;
    for (script, printed) in all.iter().zip(&printed) {
        match printed.as_deref() {
            Some([one]) => known += usize::from(agrees(script, one)),
            // A redirection to what is no file's name.
            Some([]) | None => {}
            Some(several) => panic!("{} launches\n{script}", several.len()),
        }
    }
    assert!(
        known * 3 > all.len(),
        "{known} of {} are known: the test says little",
        all.len()
    );
}

#[test]
#[should_panic(expected = "left == right")]
fn a_plain_script_that_is_read_otherwise_is_found() {
    let printed = Printed {
        words: ["a.py", "--id"].map(str::to_string).to_vec(),
        exported: std::collections::BTreeMap::new(),
    };
    agrees("torchrun a.py --it\n", &printed);
}
