//! What two plans make of captured values, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::Exit;
use super::names::{counted, grouped};
use super::plans::{ASSUMED, hex};
use crate::numerics::Dtype;
use crate::numerics::ladder::Rung;
use crate::plan::identify::{Compared, Differing};
use crate::plan::{Digest, PLAN_BASIS};

/// Two sides of one sum, tried on values.
pub struct Tested {
    pub dtype: Dtype,
    pub ranks: u32,
    pub sides: [String; 2],
    pub hashes: [Digest; 2],
    /// Values that come out the same are enough.
    pub accepts_input: bool,
    /// What had to be assumed of the sides.
    pub assumed: Vec<String>,
    pub compared: Compared,
}

impl Tested {
    /// As of a check: 0 where all inputs give the same bits, or these do and that is accepted; 6
    /// where these do; 1 where they do not.
    pub fn exit(&self) -> Exit {
        match self.compared.differing {
            0 if self.accepts_input || self.compared.is_for_all_inputs() => Exit::Proved,
            0 => Exit::BelowRequired,
            _ => Exit::Divergent,
        }
    }

    pub fn to_human(&self) -> String {
        let Compared {
            elements,
            differing,
            equal,
            first,
            largest,
        } = &self.compared;
        let [a, b] = &self.sides;
        let mut text = format!(
            "{a} against {b}: {} of {} over {}\n",
            counted(*elements, "element"),
            self.dtype,
            counted(u64::from(self.ranks), "rank")
        );
        let _ = writeln!(
            text,
            "{} ({}) differ",
            grouped(*differing),
            share(*differing, *elements)
        );
        for (what, one) in [("first", first), ("farthest apart", largest)] {
            if let Some(one) = one {
                let _ = writeln!(text, "  {what}: {}", difference(one));
            }
        }
        for (rung, count) in equal {
            let _ = writeln!(
                text,
                "{} ({}) equal by {rung}: {}",
                grouped(*count),
                share(*count, *elements),
                meaning(*rung)
            );
        }
        let _ = writeln!(text, "basis: {PLAN_BASIS}");
        if !self.assumed.is_empty() {
            text.push_str(ASSUMED);
        }
        for one in &self.assumed {
            let _ = writeln!(text, "  - {one}");
        }
        text
    }

    pub fn to_json(&self) -> Value {
        let equal = self.compared.equal.iter();
        let equal = equal.map(|(rung, count)| json!({ "rung": rung, "elements": count }));
        json!({
            "dtype": self.dtype.name(),
            "ranks": self.ranks,
            "topologies": self.sides,
            "hashes": self.hashes.map(|hash| hex(&hash)),
            "basis": PLAN_BASIS,
            "assumed": self.assumed,
            "elements": self.compared.elements,
            "differing": self.compared.differing,
            "equal": equal.collect::<Vec<_>>(),
            "first": self.compared.first.as_ref().map(object),
            "largest": self.compared.largest.as_ref().map(object),
        })
    }
}

fn object(one: &Differing) -> Value {
    json!({
        "element": one.element,
        "values": [f32::from_bits(one.a).to_string(), f32::from_bits(one.b).to_string()],
        "bits": [format!("{:08x}", one.a), format!("{:08x}", one.b)],
        "ulps": one.ulps,
    })
}

fn difference(one: &Differing) -> String {
    let value = |bits: u32| format!("{:?} (0x{bits:08x})", f32::from_bits(bits));
    let apart = match one.ulps {
        Some(ulps) => format!("{} apart", counted(ulps, "ulp")),
        None => "one is no number".to_string(),
    };
    format!(
        "element {}: {} against {}, {apart}",
        one.element,
        value(one.a),
        value(one.b)
    )
}

/// Hundredths of a percent, rounded up: what is there is not shown as none.
fn share(part: u64, of: u64) -> String {
    let hundredths = (u128::from(part) * 10_000).div_ceil(u128::from(of.max(1)));
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

const fn meaning(rung: Rung) -> &'static str {
    match rung {
        Rung::Plan => "one tree on both sides, whatever the values",
        Rung::L0 => "too few addends for an order, whatever the values",
        Rung::L1 => "sums of these values are exact in any order",
        Rung::L2 => "what orders differ by is lost in the last rounding, for these values",
        Rung::L3 => "every order gives these bits, for these values",
        Rung::L4 => "both orders were carried out on these values",
        Rung::L5 => "orders were drawn",
    }
}
