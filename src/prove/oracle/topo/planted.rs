//! Faults of a variation: another training must not be taken for the same one.

use std::path::PathBuf;

use super::{Topo, Varied};
use crate::prove::oracle::parting::FORWARD;
use crate::prove::session::CheckError;
use crate::scenario::{Data, Variation};
use crate::train::BUILT_IN_TEXT;

/// How one planted fault fared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planted {
    /// The fault's name in reports.
    pub kind: &'static str,
    /// The variation has no place for it.
    pub is_hidden: bool,
    /// Why it does not count as caught.
    pub missed: Option<String>,
}

/// Plants another seed, whose first parameters must be found to differ, and other data, whose
/// forward must be, where no difference of the plans excuses one.
///
/// # Errors
/// Whatever stops a run.
pub fn plant(varied: &Varied<'_>, variation: &Variation) -> Result<[Planted; 2], CheckError> {
    Ok([seed(varied, variation)?, data(varied, variation)?])
}

fn seed(varied: &Varied<'_>, variation: &Variation) -> Result<Planted, CheckError> {
    let mut scenario = varied.straight.scenario.varied(variation);
    scenario.recipe.seed ^= 1;
    let found = varied.run(variation, scenario, 1..1)?;
    Ok(Planted {
        kind: "other-seed (topo)",
        is_hidden: false,
        missed: match found.run.differences.is_empty() {
            false => None,
            true => Some(told(&found)),
        },
    })
}

fn data(varied: &Varied<'_>, variation: &Variation) -> Result<Planted, CheckError> {
    let mut scenario = varied.straight.scenario.varied(variation);
    let bytes = match &scenario.data {
        Data::BuiltIn => BUILT_IN_TEXT.as_bytes(),
        Data::File { bytes, .. } => bytes,
    };
    let other: Vec<u8> = bytes.iter().map(|byte| byte.wrapping_add(1)).collect();
    scenario.data = Data::File {
        path: PathBuf::from("other data"),
        bytes: other.into(),
    };
    let found = varied.run(variation, scenario, 1..2)?;
    let excused = found.run.plans.iter().any(|plan| plan.acts.reach_forward());
    let named = found.run.unexcused();
    let is_named = named.is_some_and(|parting| parting.what.starts_with(FORWARD));
    Ok(Planted {
        kind: "other-data (topo)",
        is_hidden: excused,
        missed: (!is_named && !excused).then(|| told(&found)),
    })
}

fn told(found: &Topo) -> String {
    format!("what was reported is: {found}")
}
