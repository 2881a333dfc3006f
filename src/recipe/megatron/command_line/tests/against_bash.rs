//! Small scripts from a grammar, run by the real bash and followed here: what is taken as known is
//! what bash passes. The seed is fixed; `BITPROOF_SCRIPTS` asks for more of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::super::program::Launch;
use super::super::script::Script;
use super::super::shell::Remark;
use super::super::text::Text;

/// Scripts of one run of the test.
const SCRIPTS: u32 = 400;

/// What a shell prints of one launch: its words, and which of the variables are exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Printed {
    pub words: Vec<String>,
    pub exported: BTreeMap<String, String>,
}

/// Variables of the scripts.
pub(super) const NAMES: [&str; 4] = ["A", "B", "C", "NCCL_ALGO"];

/// Stands in for the launcher, and runs each script in a shell of its own. It tells what it was
/// given beside the script's own redirections, which would hide it.
const DRIVER: &str = r#"
exec 9>&1
torchrun() { told "$@" >&9; }
told() {
  local _name
  printf 'launch'
  printf '\037%s' "$@"
  printf '\036'
  for _name in A B C NCCL_ALGO; do
    if [[ ${!_name@a} == *x* && -n ${!_name+set} ]]; then
      printf '%s=%s\037' "$_name" "${!_name}"
    fi
  done
  printf '\035'
}
for script in $(seq 0 $(($1 - 1))); do
  printf 'script\035'
  ( set --; ulimit -t 5; . "./$script.sh" ) >/dev/null 2>errors </dev/null
  [[ $(<errors) == *@(error|unexpected)* ]] && printf 'failed\035'
  printf '\034'
done
"#;

/// A grammar's choices, in a fixed order for a seed.
pub(super) struct Choices(pub u64);

impl Choices {
    pub fn below(&mut self, count: usize) -> usize {
        // xorshift64* (Vigna, 2016).
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D);
        ((mixed >> 33) as usize) % count
    }

    pub fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn name(&mut self) -> &'static str {
        self.of(&NAMES)
    }

    fn word(&mut self) -> String {
        let name = self.name();
        match self.below(16) {
            0..=4 => self
                .of(&["a", "b", "1", "2", "A", "B", "'a b'"])
                .to_string(),
            5 => format!("${name}"),
            6 | 7 => format!("\"${name}\""),
            8 => format!("x${{{name}}}"),
            9 => format!("${{{name}:-d}}"),
            10 => format!("\"${{{name}:=e}}\""),
            11 => self
                .of(&["$1", "\"$2\"", "\"$@\"", "$E1", "\"$E2\""])
                .to_string(),
            12 => "\"${L[@]}\"".to_string(),
            13 => self
                .of(&["${L[1]}", "$(echo z)", "$((W1 + 1))"])
                .to_string(),
            14 => self
                .of(&["$((C++))", "{a,b}", "${HOME:-h}", "\"${L[*]}\""])
                .to_string(),
            _ => format!("y\"${name}\"z"),
        }
    }

    fn words(&mut self, most: usize) -> String {
        let words: Vec<String> = (0..self.below(most + 1)).map(|_| self.word()).collect();
        words.join(" ")
    }

    fn condition(&mut self) -> String {
        let (name, word) = (self.name(), self.word());
        match self.below(7) {
            0 => "true".to_string(),
            1 => "false".to_string(),
            2 => format!("[ \"${name}\" = {word} ]"),
            3 => format!("[[ ${name} == {word} ]]"),
            4 => format!("[ -n \"${name}\" ]"),
            5 => "[ \"$E1\" = x ]".to_string(),
            _ => format!("[ -z \"${name}\" ]"),
        }
    }
}

/// One script as it grows.
struct Writer {
    choices: Choices,
    text: String,
    launches: u32,
    loops: u32,
    in_function: bool,
    in_loop: bool,
    functions: u32,
}

impl Writer {
    fn script(seed: u64) -> String {
        let mut writer = Writer {
            choices: Choices(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            text: String::new(),
            launches: 0,
            loops: 0,
            in_function: false,
            in_loop: false,
            functions: 0,
        };
        for _ in 0..writer.choices.below(3) {
            let name = format!("f{}", writer.functions);
            writer.line(&format!("{name}() {{"));
            writer.in_function = true;
            writer.statements(2, 1);
            writer.in_function = false;
            writer.line("}");
            writer.functions += 1;
        }
        writer.statements(6, 2);
        writer.launch();
        writer.text
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("a text takes it");
    }

    fn statements(&mut self, most: usize, depth: u32) {
        for _ in 0..1 + self.choices.below(most) {
            match depth {
                0 => self.simple(),
                _ if self.choices.below(3) == 0 => self.compound(depth - 1),
                _ => self.simple(),
            }
        }
    }

    fn launch(&mut self) {
        self.launches += 1;
        let before = match self.choices.below(5) {
            0 => format!("{}={} ", self.choices.name(), self.choices.word()),
            _ => String::new(),
        };
        let (id, words) = (self.launches, self.choices.words(3));
        let array = self.choices.of(&["", "\"${L[@]}\"", "$A"]);
        self.line(&format!("{before}torchrun a.py --id {id} {words} {array}"));
    }

    fn simple(&mut self) {
        let (name, word) = (self.choices.name(), self.choices.word());
        let (other, words) = (self.choices.name(), self.choices.words(3));
        let line = match self.choices.below(60) {
            0..=5 => format!("{name}={word}"),
            6 => format!("{name}+={word}"),
            7 => format!("L=({words})"),
            8 => match self.choices.below(3) {
                0 => format!("L={word}"),
                1 => format!("L+={word}"),
                _ => format!("L+=({words})"),
            },
            9 => format!("export {name}={word}"),
            10 => format!("export {name}"),
            11 => format!("export \"{name}={word}\"")
                .replace("=\"", "=")
                .replace("\"\"", "\""),
            12 => format!("export {name}={word} {other}=${name}"),
            13 => format!("declare \"${name}=q\""),
            14 => "source ./extra".to_string(),
            15 => ". ./extra".to_string(),
            16 => format!("eval \"{name}=q\""),
            17 => format!("eval '{name}=${other}'"),
            18 => "eval \"$E1\"".to_string(),
            19 => format!("read {name} <<< q"),
            20 => format!("printf -v {name} %s q"),
            21 => format!("unset {name}"),
            22 => format!("unset \"${name}\""),
            23 => format!("set -- {words}"),
            24 => "shift".to_string(),
            25 => format!(": \"${{{name}:={word}}}\"")
                .replace("=\"", "=")
                .replace("\"\"", "\""),
            26 => format!("(({name} = 3))"),
            27 => format!("{name}=q eval '{other}=${name}'"),
            28 => format!("({name}={word})"),
            29 => format!("{} && {name}={word}", self.choices.condition()),
            30 if self.in_function => format!("local {name}={word} {other}"),
            31 if self.in_function => "return".to_string(),
            31 if self.in_loop => self.choices.of(&["break", "continue"]).to_string(),
            32 if !self.in_function && self.functions > 0 => {
                let called = self.choices.below(self.functions as usize);
                format!("f{called} {words}")
            }
            33 => return self.launch(),
            34..=54 => self.subtle(name, other, &word, &words),
            _ => format!("{name}={word}"),
        };
        self.line(&line);
    }

    /// Constructs in which bash is not what it seems.
    fn subtle(&mut self, name: &str, other: &str, word: &str, words: &str) -> String {
        match self.choices.below(25) {
            0 => format!("X='export {name}=t'; $X"),
            1 => format!("X=unset; $X {name}"),
            2 => format!("set -- export {name}=u; \"$@\""),
            3 => format!("cd /none && {name}={word}"),
            4 => format!("cd / && {name}={word} && {other}=v"),
            5 => format!("true && {name}={word}"),
            6 => format!("{name}=$(false) && {other}={word}"),
            7 => format!("! true && {name}={word}"),
            8 => format!("N=2; (( N > 1 )) && {name}={word}"),
            9 => format!("N=2; [ $N -lt 1 ] || {name}={word}"),
            10 => format!("for ((N = 0; N < 2; N++)); do {name}=$N; done"),
            11 => format!("N=1; {name}=$((++N)); {other}=$N"),
            12 => format!("N=N++; : $((N)); {name}=w"),
            13 => format!("{name}=$'a\\x41'; {other}=$'a\\'b'"),
            14 => format!("{name}=\"${{Z:-'q'}}\"; {other}=\"${{Z:-\"q\"}}\""),
            15 => format!("X=$(echo p q); L=($X {word})"),
            16 => format!("{name}=~; {other}=x:~/y"),
            17 => format!("set -- x 12>/dev/null; {name}={word} 2>/dev/null"),
            18 => format!("{name}=${{Z:-p q}}; set -- ${{Z:-p q}} {words}"),
            19 => format!(
                "parse() {{ while [[ $# -gt 0 ]]; do {name}=$1; shift; done; }}; parse {words}"
            ),
            20 => format!("for N in 1 2; do [ $N = 1 ] && continue; {name}=$N; done"),
            21 => format!("{name}=${{{other}:?}}"),
            22 => format!("{name}=r command eval '{other}=${name}'"),
            23 => format!("RANDOM=3; {name}=$RANDOM; L[1]={word}"),
            _ => format!("{name}={word} export {other}; trap 'A=1' USR1"),
        }
    }

    fn compound(&mut self, depth: u32) {
        match self.choices.below(5) {
            0 => self.branches(depth),
            1 => self.case(depth),
            2 => {
                let (name, words) = (self.choices.name(), self.choices.words(3));
                self.line(&format!("for {name} in {words}; do"));
                self.body(depth);
                self.line("done");
            }
            3 => {
                self.loops += 1;
                let count = format!("W{}", self.loops);
                self.line(&format!("{count}=0; while [ ${count} -lt 2 ]; do"));
                self.line(&format!("{count}=$(({count} + 1))"));
                self.body(depth);
                self.line("done");
            }
            _ => {
                self.line("(");
                let in_loop = std::mem::replace(&mut self.in_loop, false);
                self.statements(2, depth);
                self.in_loop = in_loop;
                self.line(")");
            }
        }
    }

    fn body(&mut self, depth: u32) {
        let in_loop = std::mem::replace(&mut self.in_loop, true);
        self.statements(3, depth);
        self.in_loop = in_loop;
    }

    fn branches(&mut self, depth: u32) {
        let condition = self.choices.condition();
        self.line(&format!("if {condition}; then"));
        self.statements(2, depth);
        if self.choices.below(2) == 0 {
            let condition = self.choices.condition();
            self.line(&format!("elif {condition}; then"));
            self.statements(2, depth);
        }
        if self.choices.below(2) == 0 {
            self.line("else");
            self.statements(2, depth);
        }
        self.line("fi");
    }

    fn case(&mut self, depth: u32) {
        let word = self.choices.word();
        self.line(&format!("case {word} in"));
        for _ in 0..1 + self.choices.below(4) {
            let pattern = self
                .choices
                .of(&["a", "b|1", "A", "'a b'", "*", "[ab]", "\"$A\"", "x?"]);
            self.line(&format!("{pattern})"));
            self.statements(2, depth);
            let end = self.choices.of(&[";;", ";;", ";&", ";;&"]);
            self.line(end);
        }
        self.line("esac");
    }
}

/// What bash prints of each script, nothing where it failed on the way; `None` where there is no
/// bash.
pub(super) fn printed(scripts: &[String]) -> Option<Vec<Option<Vec<Printed>>>> {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("a file");
    };
    for (index, script) in scripts.iter().enumerate() {
        write(&format!("{index}.sh"), script);
    }
    write("extra", "A=s; export B=s; NCCL_ALGO=s; D=s; set -- s t\n");
    write("driver", DRIVER);
    let output = Command::new("bash")
        .args(["driver", &scripts.len().to_string()])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", Path::new("/"))
        .env("E1", "A=x B=y")
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .output();
    let output = String::from_utf8_lossy(&output.ok()?.stdout).into_owned();
    let runs = output.split('\u{1c}').filter(|run| !run.is_empty());
    let of_run = |run: &str| {
        let records: Vec<&str> = run.split('\u{1d}').collect();
        // A sum of what is no number ends a script that is read by another.
        let has_failed = records.contains(&"failed");
        (!has_failed).then(|| records.into_iter().filter_map(launch).collect())
    };
    let all: Vec<_> = runs.map(of_run).collect();
    assert_eq!(all.len(), scripts.len(), "bash ran every script");
    Some(all)
}

fn launch(printed: &str) -> Option<Printed> {
    let (words, exported) = printed.strip_prefix("launch\u{1f}")?.split_once('\u{1e}')?;
    let pairs = exported
        .split('\u{1f}')
        .filter_map(|pair| pair.split_once('='));
    Some(Printed {
        words: words.split('\u{1f}').map(str::to_string).collect(),
        exported: pairs
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
    })
}

/// Whether everything about a launch is taken as known.
fn is_resolved(launch: &Launch) -> bool {
    let is_sure = launch.condition.is_none() && !launch.remarks.iter().any(Remark::is_doubt);
    is_sure && !launch.arguments.iter().any(Text::is_open)
}

fn words_of(launch: &Launch) -> Vec<String> {
    launch.arguments.iter().map(Text::string).collect()
}

/// Compares one script, and says whether its last launch was known.
fn compare(script: &str, printed: Option<&[Printed]>) -> bool {
    let Some(printed) = printed else {
        return false;
    };
    let text = Text::of_file(script);
    let Ok(read) = Script::read(&text, &[]) else {
        return false;
    };
    let id = |words: &[String]| words.get(1).cloned().unwrap_or_default();
    for one in printed {
        let is_known = read
            .launches
            .iter()
            .any(|launch| id(&words_of(launch)) == id(&one.words[1..]));
        assert!(is_known, "a launch is not seen: {one:?}\n{script}");
    }
    let mut seen = std::collections::BTreeSet::new();
    for launch in &read.launches {
        let words = words_of(launch);
        if !seen.insert(id(&words)) || !is_resolved(launch) {
            continue;
        }
        let of_bash = printed.iter().find(|one| id(&one.words[1..]) == id(&words));
        let Some(of_bash) = of_bash else {
            panic!("bash does not launch {words:?}\n{script}");
        };
        assert_eq!(words, of_bash.words[1..], "\n{script}");
        if launch.reads.is_some() {
            continue;
        }
        for name in NAMES {
            let told = launch.environment.iter().find(|one| one.name == name);
            match (told, of_bash.exported.get(name)) {
                (Some(told), _) if told.value.contains(['$', '`']) => {}
                (told, real) => {
                    assert_eq!(told.map(|one| &one.value), real, "{name}\n{script}");
                }
            }
        }
    }
    read.launches.last().is_some_and(is_resolved)
}

#[test]
fn what_is_taken_as_known_is_what_bash_passes() {
    let asked = std::env::var("BITPROOF_SCRIPTS")
        .ok()
        .and_then(|count| count.parse().ok());
    let count: u32 = asked.unwrap_or(SCRIPTS);
    let scripts: Vec<String> = (0..count)
        .map(|index| Writer::script(u64::from(index) + 1))
        .collect();
    let Some(printed) = printed(&scripts) else {
        eprintln!("skipped: there is no bash here");
        return;
    };
    let known = scripts
        .iter()
        .zip(&printed)
        .filter(|(script, printed)| compare(script, printed.as_deref()));
    let known = known.count();
    assert!(
        known * 10 > scripts.len(),
        "{known} of {count} are known: the test says little"
    );
}

#[test]
#[should_panic(expected = "left == right")]
fn a_script_that_is_read_otherwise_is_found() {
    let printed = Printed {
        words: ["a.py", "--id", "1", "b"].map(str::to_string).to_vec(),
        exported: BTreeMap::new(),
    };
    compare("A=a\ntorchrun a.py --id 1 $A", Some(&[printed]));
}
