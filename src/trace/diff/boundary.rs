//! Boundary streams side by side, as pull request 6610's comparator walks them: each rank in its
//! own order; numbers of the sequence alone never differ. Metrics are compared as bytes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::divergence::{Difference, Divergence, Role, Side};
use crate::trace::boundary::{Boundary, BoundaryCoverage, BoundaryStream, Mode};
use crate::trace::damage::Damage;
use crate::trace::point::Point;

/// What came of one rank's boundary streams.
#[derive(Clone, Debug, Default)]
pub struct BoundaryResult {
    pub coverage: [BoundaryCoverage; 2],
    pub compared: u64,
    pub first: Option<Divergence>,
    /// Weakest mode of the tensors that were compared.
    pub weakest: Option<Mode>,
    /// Values that were compared outside of tensors.
    pub values: u64,
    pub metrics: BTreeMap<Metric, MetricResult>,
}

/// The five numbers of a step that engineers watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    Loss,
    LmLoss,
    LoadBalancingLoss,
    MtpLoss,
    GradNorm,
}

impl Metric {
    pub const ALL: [Metric; 5] = [
        Metric::Loss,
        Metric::LmLoss,
        Metric::LoadBalancingLoss,
        Metric::MtpLoss,
        Metric::GradNorm,
    ];

    pub fn words(self) -> &'static str {
        match self {
            Metric::Loss => "loss",
            Metric::LmLoss => "LM loss",
            Metric::LoadBalancingLoss => "load-balancing loss",
            Metric::MtpLoss => "MTP loss",
            Metric::GradNorm => "gradient norm",
        }
    }

    /// Which metric a record's name means, as Megatron-LM names them.
    pub fn of(name: &str) -> Option<Metric> {
        let name = name.strip_prefix("loss.").unwrap_or(name);
        let plain = name.to_ascii_lowercase().replace([' ', '-'], "_");
        match &*plain {
            "loss" | "total_loss" => Some(Metric::Loss),
            "lm_loss" => Some(Metric::LmLoss),
            "grad_norm" | "gradient_norm" => Some(Metric::GradNorm),
            _ if plain.contains("load_balancing_loss") => Some(Metric::LoadBalancingLoss),
            _ if plain.starts_with("mtp") && plain.contains("loss") => Some(Metric::MtpLoss),
            _ => None,
        }
    }
}

/// How often a metric was compared, and where it first differed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricResult {
    pub compared: u64,
    /// How often it differed.
    pub differing: u64,
    /// The iteration of the first difference; nothing if no record that differs has one.
    pub first_difference: Option<u64>,
}

/// A record without its number.
struct Owned {
    identity: u64,
    point: Point,
    /// Whatever must agree, each part by its name.
    parts: Vec<(&'static str, String)>,
    mode: Option<Mode>,
}

impl Owned {
    fn of(record: &Boundary<'_>) -> Owned {
        let text = |value: Option<&serde_json::value::RawValue>| {
            value.map_or(String::new(), |value| value.get().to_string())
        };
        let mut parts = vec![
            ("fields", text(record.fields)),
            ("metadata", text(record.metadata)),
        ];
        if let Some(tensor) = &record.tensor {
            let mut bare = tensor.clone();
            let digest = bare
                .sha256
                .take()
                .map_or(String::new(), |digest| digest.to_string());
            parts.push(("tensor.sha256", digest));
            let summary = format!("{:?} {:?}", bare.summary.take(), bare.all_finite.take());
            parts.push(("tensor.summary", summary));
            parts.push(("tensor", format!("{bare:?}")));
        }
        Owned {
            identity: record.identity(),
            point: Point {
                iteration: record.iteration,
                kind: record.event.to_string(),
                name: record.name.to_string(),
                id: format!("{}:{}", record.name, record.occurrence),
                seq: record.sequence,
                microbatch: record.microbatch,
                phase: record.phase.to_string(),
                scope: String::new(),
            },
            parts,
            mode: record.tensor.as_ref().map(|tensor| tensor.mode),
        }
    }

    fn difference(&self, other: &Owned) -> Option<Difference> {
        let pairs = self.parts.iter().zip(&other.parts);
        let differing = pairs.filter(|(x, y)| x != y).map(|(x, _)| x.0.to_string());
        let fields: Vec<String> = differing.collect();
        let is_value = |field: &String| {
            ["fields", "tensor.sha256", "tensor.summary"].contains(&field.as_str())
        };
        match (fields.is_empty(), fields.iter().all(is_value)) {
            (true, _) => None,
            (false, true) => Some(Difference::Content { operands: fields }),
            (false, false) => Some(Difference::Metadata { fields }),
        }
    }
}

/// Compares and certifies one rank's boundary streams.
///
/// # Errors
/// What cannot be trusted in either.
pub fn compare_boundary(
    files: [&[PathBuf]; 2],
    own: [Option<u32>; 2],
) -> Result<BoundaryResult, Damage> {
    let mut a = BoundaryStream::open(files[0], own[0])?;
    let mut b = BoundaryStream::open(files[1], own[1])?;
    let mut result = BoundaryResult::default();
    loop {
        let (x, y) = (a.next(Owned::of)?, b.next(Owned::of)?);
        let (x, y) = match (x, y) {
            (None, None) => break,
            (Some(x), Some(y)) if x.identity == y.identity => (x, y),
            (x, y) => {
                result.part((a, b), (x, y))?;
                return Ok(result);
            }
        };
        result.hold(&x, &y);
    }
    result.coverage = [a.finish()?, b.finish()?];
    Ok(result)
}

impl BoundaryResult {
    fn hold(&mut self, x: &Owned, y: &Owned) {
        let difference = x.difference(y);
        if let Some(metric) = Metric::of(&x.point.name) {
            let metric = self.metrics.entry(metric).or_default();
            metric.compared += 1;
            if difference.is_some() {
                metric.differing += 1;
                metric.first_difference = metric.first_difference.or(x.point.iteration);
            }
        }
        if let (Some(difference), None) = (&difference, &self.first) {
            self.first = Some(divergence(
                x.point.clone(),
                difference.clone(),
                self.compared,
            ));
        }
        if self.first.is_none() {
            self.compared += 1;
            self.weakest = [self.weakest, x.mode].into_iter().flatten().min();
            self.values += u64::from(x.mode.is_none());
        }
    }

    /// One stream has another record, or none: the rest is certified.
    fn part(
        &mut self,
        (mut a, mut b): (BoundaryStream, BoundaryStream),
        (x, y): (Option<Owned>, Option<Owned>),
    ) -> Result<(), Damage> {
        let look = |stream: &mut BoundaryStream, wanted: &Option<Owned>| {
            let mut is_there = false;
            let wanted = wanted.as_ref().map(|owned| owned.identity);
            while let Some(identity) = stream.next(|record| record.identity())? {
                is_there |= Some(identity) == wanted;
            }
            Ok::<bool, Damage>(is_there)
        };
        let (y_in_a, x_in_b) = (look(&mut a, &y)?, look(&mut b, &x)?);
        self.coverage = [a.finish()?, b.finish()?];
        let (point, difference) = match (x, y) {
            (Some(x), Some(y)) if x_in_b && y_in_a => {
                (x.point, Difference::Order { in_b: y.point.id })
            }
            (Some(x), _) if !x_in_b => (x.point, Difference::Missing { from: Side::B }),
            (_, Some(y)) => (y.point, Difference::Missing { from: Side::A }),
            (_, None) => unreachable!("what has ended has no record left"),
        };
        if self.first.is_none() {
            self.first = Some(divergence(point, difference, self.compared));
        }
        Ok(())
    }
}

fn divergence(point: Point, difference: Difference, matched_before: u64) -> Divergence {
    Divergence {
        point,
        difference,
        own_inputs_match: None,
        group_inputs_match: None,
        unknown_inputs: 0,
        matched_before,
        matched_by_kind: BTreeMap::new(),
        role: Role::Undecided,
        kernel: None,
        collective: None,
        may_be_artefact: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_known_by_megatrons_names() {
        for (name, metric) in [
            ("loss", Some(Metric::Loss)),
            ("loss.lm loss", Some(Metric::LmLoss)),
            ("lm loss", Some(Metric::LmLoss)),
            ("loss.load_balancing_loss", Some(Metric::LoadBalancingLoss)),
            (
                "loss.seq_load_balancing_loss",
                Some(Metric::LoadBalancingLoss),
            ),
            ("mtp_1 loss", Some(Metric::MtpLoss)),
            ("grad_norm", Some(Metric::GradNorm)),
            ("decoder.layer0.input", None),
            ("num_zeros_in_grad", None),
        ] {
            assert_eq!(Metric::of(name), metric, "{name}");
        }
    }
}
