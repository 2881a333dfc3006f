use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::trace::diff::{Comparison, compare};

/// A call of the op, as a recorder would write it.
#[derive(Clone, Debug)]
struct Called {
    is_bf16: bool,
    is_out_bf16: bool,
    accumulate: bool,
    is_strided: bool,
    /// Whether the two runs gave it other inputs, or did not look.
    inputs: Inputs,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Inputs {
    Same,
    Other,
    Unknown,
}

/// What breaks: calls for which all of these hold.
#[derive(Clone, Copy, Debug)]
struct Fault {
    is_bf16: Option<bool>,
    is_out_bf16: Option<bool>,
    accumulate: Option<bool>,
    is_strided: Option<bool>,
}

impl Fault {
    fn breaks(&self, call: &Called) -> bool {
        let fits = |wanted: Option<bool>, is: bool| wanted.is_none_or(|wanted| wanted == is);
        fits(self.is_bf16, call.is_bf16)
            && fits(self.is_out_bf16, call.is_out_bf16)
            && fits(self.accumulate, call.accumulate)
            && fits(self.is_strided, call.is_strided)
    }
}

fn operand(is_bf16: bool, digest: Option<u64>, is_strided: bool) -> String {
    let dtype = if is_bf16 { "bfloat16" } else { "float32" };
    let digest = digest.map_or("null".to_string(), |digest| format!("\"{digest:032x}\""));
    let stride = if is_strided { "[1,2]" } else { "[3,1]" };
    format!(
        "{{\"shape\":[2,3],\"dtype\":\"{dtype}\",\"numel\":6,\"digest\":{digest},\
         \"stride\":{stride}}}"
    )
}

/// One run's stream of one rank: the calls, and between them an op of another name that differs.
fn stream(calls: &[Called], run: u64, fault: &Fault) -> String {
    let mut text = String::new();
    for (at, call) in calls.iter().enumerate() {
        let given = match call.inputs {
            Inputs::Same => Some(at as u64),
            Inputs::Other => Some(1000 * (run + 1) + at as u64),
            Inputs::Unknown => None,
        };
        let breaks = fault.breaks(call) || call.inputs == Inputs::Other;
        let got = Some(7 + if breaks { run } else { 0 });
        writeln!(
            text,
            "{{\"schema_version\":1,\"seq\":{at},\"rank\":0,\"iteration\":{},\"kind\":\"op\",\
             \"name\":\"te.gemm\",\"payload\":{{\"id\":\"te.gemm:{at}\",\"in\":[{}],\"out\":[{}],\
             \"accumulate\":{}}}}}",
            1 + at / 5,
            operand(call.is_bf16, given, call.is_strided),
            operand(call.is_out_bf16, got, false),
            u8::from(call.accumulate)
        )
        .unwrap();
    }
    text
}

fn compared(texts: [&[String]; 2], world: Option<usize>) -> Comparison {
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, ranks: &[String]| {
        let folder = root.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        for (rank, text) in ranks.iter().enumerate() {
            std::fs::write(folder.join(format!("rank_{rank}.jsonl")), text).unwrap();
        }
        if let Some(world) = world {
            let run = format!("{{\"world_size\":{world}}}");
            std::fs::write(folder.join("run.json"), run).unwrap();
        }
        open(&folder)
    };
    let (a, b) = (write("a", texts[0]), write("b", texts[1]));
    let comparison = compare(&a, &b, false);
    assert!(comparison.reasons.is_empty(), "{:?}", comparison.reasons);
    comparison
}

fn open(path: &Path) -> Folder {
    Folder::open(path).unwrap()
}

fn called() -> impl Strategy<Value = Called> {
    let inputs = prop_oneof![
        6 => Just(Inputs::Same),
        1 => Just(Inputs::Other),
        1 => Just(Inputs::Unknown),
    ];
    let flags = any::<[bool; 4]>();
    (flags, inputs).prop_map(
        |([is_bf16, is_out_bf16, accumulate, is_strided], inputs)| Called {
            is_bf16,
            is_out_bf16,
            accumulate,
            is_strided,
            inputs,
        },
    )
}

fn fault() -> impl Strategy<Value = Fault> {
    let axis = || prop_oneof![Just(None), any::<bool>().prop_map(Some)];
    let all = (axis(), axis(), axis(), axis());
    all.prop_map(|(is_bf16, is_out_bf16, accumulate, is_strided)| Fault {
        is_bf16,
        is_out_bf16,
        accumulate,
        is_strided,
    })
}

/// The value of a call on an axis, from the call itself.
fn value(call: &Called, axis: Axis) -> String {
    let dtype = |is_bf16: bool| if is_bf16 { "bfloat16" } else { "float32" };
    match axis {
        Axis::OperandDtype => dtype(call.is_bf16).to_string(),
        Axis::OutputDtype => dtype(call.is_out_bf16).to_string(),
        Axis::Accumulate => call.accumulate.to_string(),
        Axis::Layout => match call.is_strided {
            true => "strided, contiguous".to_string(),
            false => "contiguous, contiguous".to_string(),
        },
        Axis::Fused => unreachable!("no record says"),
    }
}

/// Whether no two tested calls, one broken and one not, are alike on all of `axes`.
fn tells_apart(tested: &[(&Called, bool)], axes: &[Axis]) -> bool {
    let is_alike =
        |x: &Called, y: &Called| axes.iter().all(|axis| value(x, *axis) == value(y, *axis));
    let mut pairs = tested
        .iter()
        .flat_map(|x| tested.iter().map(move |y| (x, y)));
    pairs.all(|(x, y)| x.1 == y.1 || !is_alike(x.0, y.0))
}

const TOLD: [Axis; 4] = [
    Axis::OperandDtype,
    Axis::OutputDtype,
    Axis::Accumulate,
    Axis::Layout,
];

/// The smallest sets of axes that tell broken calls apart, by looking at all pairs of calls.
fn smallest(tested: &[(&Called, bool)]) -> BTreeSet<Vec<Axis>> {
    let sets = (0u32..16).map(|bits| {
        let members = TOLD.iter().enumerate();
        let members = members.filter(|(at, _)| bits & (1 << at) != 0);
        members.map(|(_, axis)| *axis).collect::<Vec<Axis>>()
    });
    let found: Vec<Vec<Axis>> = sets.filter(|set| tells_apart(tested, set)).collect();
    let least = found.iter().map(Vec::len).min().unwrap_or(0);
    found.into_iter().filter(|set| set.len() == least).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// The counts are those of the records that were tried on the same inputs, and the axes that
    /// are named are those that tell them apart, call by call.
    #[test]
    fn the_table_is_what_the_records_say(
        calls in prop::collection::vec(called(), 1..40),
        fault in fault(),
    ) {
        let texts = [0, 1].map(|run| vec![stream(&calls, run, &fault)]);
        let comparison = compared([&texts[0], &texts[1]], None);
        let breaks = |call: &Called| fault.breaks(call) || call.inputs == Inputs::Other;
        let first = calls.iter().find(|call| breaks(call));
        if first.is_none_or(|first| first.inputs != Inputs::Same) {
            prop_assert_eq!(comparison.discriminator, None);
            return Ok(());
        }
        let found = comparison.discriminator.expect("an origin is there");
        let tested: Vec<(&Called, bool)> = calls
            .iter()
            .filter(|call| call.inputs == Inputs::Same)
            .map(|call| (call, breaks(call)))
            .collect();
        let differ = tested.iter().filter(|(_, broke)| *broke).count() as u64;
        let totals = (differ, tested.len() as u64 - differ);
        prop_assert_eq!(found.totals(), totals);
        prop_assert_eq!(found.untested, (calls.len() - tested.len()) as u64);
        for cell in &found.cells {
            let is_in = |call: &Called| {
                let axes = found.axes.iter().zip(&cell.values);
                axes.into_iter().all(|(axis, said)| said.as_deref() == Some(&*value(call, *axis)))
            };
            let of = |wanted: bool| {
                let cell = tested.iter().filter(|(call, broke)| *broke == wanted && is_in(call));
                cell.count() as u64
            };
            prop_assert_eq!((cell.differ, cell.agree), (of(true), of(false)));
        }
        let named: BTreeSet<Vec<Axis>> = found.separating.iter().cloned().collect();
        let expected = match totals.1 {
            0 => BTreeSet::new(),
            _ => smallest(&tested),
        };
        prop_assert_eq!(&named, &expected);
        let says = found.in_words();
        prop_assert_eq!(says.contains("tells"), !named.is_empty() || says.contains("no axis"));
    }
}

/// A rank's calls of an all-reduce over both ranks: its own input, and what came out, by call.
fn collective(rank: usize, calls: &[(u64, u64, &str)]) -> String {
    let line = |(at, (given, got, dtype)): (usize, &(u64, u64, &str))| {
        let tensor = |digest: u64| {
            format!(
                "{{\"shape\":[1],\"dtype\":\"{dtype}\",\"numel\":1,\"digest\":\"{digest:032x}\"}}"
            )
        };
        format!(
            "{{\"schema_version\":1,\"seq\":{at},\"rank\":{rank},\"iteration\":1,\
             \"kind\":\"collective\",\"name\":\"all_reduce\",\"payload\":{{\"id\":\"r:{at}\",\
             \"in\":[{}],\"out\":[{}],\"group\":\"dp\",\"group_seq\":{at},\
             \"group_ranks\":[0,1]}}}}\n",
            tensor(*given),
            tensor(*got)
        )
    };
    calls.iter().enumerate().map(line).collect()
}

/// A collective is tested only where its whole group gave the same.
#[test]
fn a_member_that_gave_something_else_tests_nothing() {
    // Call 0 parts; call 1 agrees; call 2 parts because rank 1 gave something else.
    let a = [
        collective(
            0,
            &[(1, 5, "float32"), (2, 6, "bfloat16"), (3, 7, "bfloat16")],
        ),
        collective(
            1,
            &[(1, 5, "float32"), (2, 6, "bfloat16"), (3, 7, "bfloat16")],
        ),
    ];
    let b = [
        collective(
            0,
            &[(1, 9, "float32"), (2, 6, "bfloat16"), (3, 8, "bfloat16")],
        ),
        collective(
            1,
            &[(1, 9, "float32"), (2, 6, "bfloat16"), (4, 8, "bfloat16")],
        ),
    ];
    let comparison = compared([&a, &b], Some(2));
    let found = comparison.discriminator.expect("both ranks are origins");
    assert_eq!((found.totals(), found.untested), ((2, 2), 2), "{found:?}");
    let both = [vec![Axis::OperandDtype], vec![Axis::OutputDtype]];
    assert_eq!(found.separating, both);
    assert!(found.in_words().contains("which of them counts is open"));
}

/// More ways of calling than a table has room for: the counts stay, and no axis is named.
#[test]
fn a_table_that_is_cut_names_no_axis() {
    let mut cells = Cells::default();
    for way in 0..CELLS_MAX as u64 + 1 {
        let values = [Some(way.to_string()), None, None, None, None];
        let outcome = if way == 0 {
            Outcome::Differ(Strength::Full)
        } else {
            Outcome::Agree(Strength::Full)
        };
        cells.add(values, outcome);
    }
    let site = Site {
        kind: "op".to_string(),
        name: "gemm".to_string(),
    };
    let found = Discriminator::of(site, cells, false).unwrap();
    assert_eq!(found.totals(), (1, CELLS_MAX as u64 - 1));
    assert!(found.separating.is_empty() && found.partial.is_some());
    assert!(found.in_words().contains("no axis is named"));
}

/// Inputs that a digest blind to order finds equal may differ, and that is said.
#[test]
fn weak_evidence_is_said() {
    let calls: Vec<Called> = (0..4)
        .map(|at| Called {
            is_bf16: at % 2 == 0,
            is_out_bf16: false,
            accumulate: false,
            is_strided: false,
            inputs: Inputs::Same,
        })
        .collect();
    let fault = Fault {
        is_bf16: Some(true),
        is_out_bf16: None,
        accumulate: None,
        is_strided: None,
    };
    let texts = [0, 1].map(|run| vec![stream(&calls, run, &fault)]);
    let full = compared([&texts[0], &texts[1]], None)
        .discriminator
        .unwrap();
    assert_eq!(full.evidence, Strength::Full);
    assert!(!full.in_words().contains("evidence"));
    // The same digests, of 64 bits.
    let start = format!("\"{}", "0".repeat(16));
    let xor = texts.map(|texts| vec![texts[0].replace(&start, "\"")]);
    let xor = compared([&xor[0], &xor[1]], None).discriminator.unwrap();
    assert_eq!((xor.totals(), xor.evidence), (full.totals(), Strength::Xor));
    assert!(xor.in_words().contains("by evidence xor"));
}
