//! Which plan a collective had, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::Exit;
use super::names::{counted, grouped};
use super::plans::hex;
use crate::numerics::Dtype;
use crate::plan::identify::{Candidate, Explained, Identification, Operation, Why};
use crate::plan::{Arithmetic, Plan, Tree};

/// Ranges, candidates and letters of an expression that people are shown.
const SHOWN: usize = 8;
const LETTERS_SHOWN: usize = 300;

/// Values show which of given trees fit. Inputs of a probe show the tree, whatever it is.
const NO_TREE: &str = "no tree of a known plan gives the first of them (other trees were not \
    tried: `bitproof plan probe` finds any)";

/// What was identified of one collective.
pub struct Identified {
    pub operation: Operation,
    pub dtype: Dtype,
    pub ranks: u32,
    pub elements: u64,
    /// By probe inputs, not by values that happened to be there.
    pub is_probed: bool,
    pub found: Identification,
}

impl Identified {
    /// 0 where one plan is left, 6 where several are or a probe could not be read, 1 where values
    /// have none.
    pub fn exit(&self) -> Exit {
        match (self.found.plan(), self.found.left().next()) {
            (Some(_), _) => Exit::Proved,
            (None, None) if !self.is_probed => Exit::Divergent,
            (None, _) => Exit::BelowRequired,
        }
    }

    pub fn to_human(&self) -> String {
        let mut text = format!(
            "{} of {} elements of {} over {}, by {}\n\n",
            self.operation.name(),
            grouped(self.elements),
            self.dtype,
            counted(u64::from(self.ranks), "rank"),
            match self.is_probed {
                true => "probe inputs",
                false => "its values",
            },
        );
        let left: Vec<&Candidate> = self.found.left().collect();
        match (&left[..], self.is_probed) {
            ([], true) if self.found.probed.is_some() => {
                text.push_str("no known plan, but a tree for every element:\n");
            }
            ([], true) => text.push_str("no plan: not every element has a tree of known sums\n"),
            ([], false) => text.push_str("no known plan gives these bits\n"),
            ([_], _) => text.push_str("one plan gives these bits:\n"),
            (several, _) => {
                let several = several.len();
                let _ = writeln!(
                    text,
                    "{several} plans give these bits, and are not told apart:"
                );
            }
        }
        for candidate in &left {
            let _ = writeln!(text, "  {}", candidate.names.join("; or "));
        }
        self.explained(&mut text);
        self.excluded(&mut text);
        text
    }

    fn explained(&self, text: &mut String) {
        let all = &self.found.explained;
        for one in all.iter().take(SHOWN) {
            let _ = write!(text, "  {}..{}: ", one.range.start, one.range.end);
            let said = match (&one.why_not, &one.trees[..]) {
                (Some(why), _) => why.clone(),
                (None, []) => NO_TREE.to_string(),
                (None, [(tree, arithmetic), others @ ..]) => {
                    let more = match others.len() {
                        0 => String::new(),
                        more => format!(", or {more} other trees"),
                    };
                    let unknown = match arithmetic {
                        Some(_) => "",
                        None => ", rounded in a way that is not known",
                    };
                    let said = cut(&self.expression(tree, *arithmetic));
                    format!("{said}{more}{unknown}")
                }
            };
            let _ = writeln!(text, "{said}");
        }
        if let more @ 1.. = all.len().saturating_sub(SHOWN) {
            let _ = writeln!(text, "  and {more} more ranges: `--format json` has them");
        }
        if let Some(looked_at) = self.found.looked_at {
            let _ = writeln!(
                text,
                "  elements from {} on were not looked at: too much work",
                grouped(looked_at)
            );
        }
    }

    fn excluded(&self, text: &mut String) {
        let all = self.found.candidates.iter().zip(&self.found.excluded);
        let excluded: Vec<_> = all
            .filter_map(|(candidate, why)| Some((candidate, (*why)?)))
            .collect();
        if !excluded.is_empty() {
            let _ = writeln!(
                text,
                "\nexcluded: {}",
                counted(excluded.len() as u64, "plan")
            );
        }
        for (candidate, why) in excluded.iter().take(SHOWN) {
            let _ = writeln!(
                text,
                "  {}: {}",
                candidate.names.join("; or "),
                in_words(*why)
            );
        }
        if let more @ 1.. = excluded.len().saturating_sub(SHOWN) {
            let _ = writeln!(text, "  and {more} more: `--format json` has them");
        }
    }

    /// A tree by ranks of the group.
    fn expression(&self, tree: &Tree, arithmetic: Option<Arithmetic>) -> String {
        let name = |rank: u32| format!("x{rank}");
        match arithmetic {
            Some(arithmetic) => arithmetic.expression(tree, &name),
            None => tree.expression(&name),
        }
    }

    pub fn to_json(&self) -> Value {
        let excluded = self.found.candidates.iter().zip(&self.found.excluded);
        let excluded = excluded.filter_map(|(candidate, why)| {
            let mut object = why_object((*why)?);
            object["plans"] = json!(candidate.names);
            Some(object)
        });
        let left = self.found.left().map(
            |candidate| json!({ "plans": candidate.names, "hash": hex(&candidate.plan.hash()) }),
        );
        let explained = self.found.explained.iter();
        json!({
            "operation": self.operation.name(),
            "dtype": self.dtype.name(),
            "ranks": self.ranks,
            "elements": self.elements,
            "is_probed": self.is_probed,
            "hash": self.found.plan().map(|plan| hex(&plan.hash())),
            "left": left.collect::<Vec<_>>(),
            "ranges": explained.map(|one| self.explained_object(one)).collect::<Vec<_>>(),
            "looked_at": self.found.looked_at,
            "excluded": excluded.collect::<Vec<_>>(),
        })
    }

    fn explained_object(&self, one: &Explained) -> Value {
        let trees = one.trees.iter();
        let trees = trees.map(|(tree, arithmetic)| self.expression(tree, *arithmetic));
        json!({
            "start": one.range.start,
            "end": one.range.end,
            "trees": trees.collect::<Vec<_>>(),
            "unknown": one.why_not,
        })
    }

    /// The plan that was identified, as a file; `None` where it is not one plan.
    pub fn basis(&self) -> Option<String> {
        let plan: &Plan = self.found.plan()?;
        let names = self.found.left().flat_map(|one| &one.names);
        let pieces = plan.classes().into_iter().map(|(range, _)| {
            let name = |rank: u32| format!("x{rank}");
            let expression = plan.expression_at(range.start, &name);
            json!({ "start": range.start, "end": range.end, "expression": expression })
        });
        let object = json!({
            "plan_basis": match self.is_probed {
                true => "identified on a real run by probe inputs",
                false => "identified on a real run by its values",
            },
            "operation": self.operation.name(),
            "dtype": self.dtype.name(),
            "ranks": self.ranks,
            "elements": self.elements,
            "hash": hex(&plan.hash()),
            "plans": names.collect::<Vec<_>>(),
            "ranges": pieces.collect::<Vec<_>>(),
        });
        let text = serde_json::to_string_pretty(&object).expect("a JSON value has a JSON form");
        Some(format!("{text}\n"))
    }
}

fn why_object(why: Why) -> Value {
    match why {
        Why::Value(excluded) => json!({
            "element": excluded.element,
            "expected": value(excluded.expected),
            "found": value(excluded.found),
        }),
        Why::Order { element } => json!({ "element": element, "because": "other-order" }),
        Why::Arithmetic => json!({ "because": "other-rounding" }),
        Why::Unread => json!({ "because": "not-every-element-was-read" }),
    }
}

fn in_words(why: Why) -> String {
    match why {
        Why::Value(excluded) => format!(
            "element {} would be {}, and is {}",
            excluded.element,
            value(excluded.expected),
            value(excluded.found)
        ),
        Why::Order { element } => format!("element {element} has another tree"),
        Why::Arithmetic => "it rounds otherwise".to_string(),
        Why::Unread => "not every element was read".to_string(),
    }
}

/// A number and its bits: neighbours look alike in decimal.
fn value(bits: u32) -> String {
    format!("{:?} (0x{bits:08x})", f32::from_bits(bits))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LETTERS_SHOWN) {
        Some((at, _)) => format!("{} ...", &text[..at]),
        None => text.to_string(),
    }
}
