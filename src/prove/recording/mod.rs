//! Records a run as it goes: an observer that reads what nodes read and write, and changes nothing.
//!
//! Of a check, the straight reference run is recorded, with the scenario's faults, and no other.

mod nodes;
mod ranks;
mod request;

pub(super) use ranks::place_of;
pub use request::{Hashed, RankSet, TraceRequest, iterations};

use std::collections::BTreeMap;

use crate::engine::{DigestPrograms, Engine, EngineError, Span};
use crate::numerics::Digest;
use crate::prove::session::Session;
use crate::prove::token::hexadecimal;
use crate::trace::native::{
    DIGEST_RULE, Fingerprint, Level, OpLine, Recording, RecordingError, RunDescription, Stream,
    metric_line, step_line,
};
use crate::world::fold::{FoldLab, FoldNode};
use crate::world::{
    CopyNode, ExchangeNode, GroupId, LaunchNode, Observer, ShownMetric, UploadNode,
};

use nodes::{Begun, Operand};
use ranks::RankCourse;

/// Groups with more members are known by their name and size alone: a list in each record would be
/// most of it.
const MEMBERS_LISTED_MAX: usize = 64;

/// Writes what it is shown into a folder.
pub struct Recorder {
    recording: Recording,
    level: Level,
    iterations: Option<(u32, u32)>,
    ranks: BTreeMap<u32, RankCourse>,
    groups: Vec<Group>,
    /// Shown, and not run yet.
    begun: Vec<Begun>,
    /// Waves so far.
    turn: u64,
    hashed: Hashed,
    /// The kernels that digest, once they were needed.
    programs: Option<DigestPrograms>,
}

/// What records say of a communicator.
struct Group {
    name: String,
    /// Its members as a JSON list, or how many they are where that is too long.
    members: String,
    /// Collectives so far.
    calls: u64,
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub records: u64,
    /// Of the packed files.
    pub bytes: u64,
}

impl Recorder {
    /// Makes the folder that `asked` names.
    ///
    /// # Errors
    /// A folder that holds something, or cannot be written; ranks that the scenario has not.
    pub fn begin(session: &Session, asked: &TraceRequest) -> Result<Recorder, RecordingError> {
        let world = session.ranks();
        let ranks: Vec<u32> = (0..world).filter(|rank| asked.takes_rank(*rank)).collect();
        let description = describe(session, asked, &ranks);
        let folder = &asked.folder;
        let recording = Recording::begin(folder, &description, &ranks, asked.budget)?;
        Ok(Recorder {
            recording,
            level: asked.level,
            iterations: asked.iterations,
            ranks: ranks
                .iter()
                .map(|rank| (*rank, RankCourse::default()))
                .collect(),
            groups: (0..session.group_count() as u32)
                .map(|group| Group::of(session, group))
                .collect(),
            begun: Vec::new(),
            turn: 0,
            hashed: asked.hashed,
            programs: None,
        })
    }

    /// Ends every file: only then is the recording whole.
    ///
    /// # Errors
    /// Why it is not.
    pub fn end(self) -> Result<Recorded, RecordingError> {
        let (records, bytes) = self.recording.end()?;
        Ok(Recorded { records, bytes })
    }

    /// Whether a record of `rank` in `step` is wanted.
    fn takes(&self, rank: u32, step: u32) -> bool {
        let within = |(first, last): (u32, u32)| step.max(1) >= first && step <= last;
        self.iterations.is_none_or(within) && self.recording.takes(rank, Stream::Ops)
    }

    fn digests(
        &mut self,
        spans: &[Span],
        engine: &mut dyn Engine,
    ) -> Result<Vec<Digest>, EngineError> {
        if self.hashed == Hashed::OnHost {
            return engine.digests(spans);
        }
        let programs = match &mut self.programs {
            Some(programs) => programs,
            none => none.insert(DigestPrograms::new(engine)?),
        };
        programs.digests(engine, spans)
    }

    /// Digests what a node has been given, and keeps it until the node has run.
    fn begin_node(
        &mut self,
        mut begun: Begun,
        inputs: &[Operand],
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        let spans: Vec<Span> = inputs.iter().map(|operand| operand.span).collect();
        let digests = self.digests(&spans, engine)?;
        let known = inputs.iter().zip(digests);
        let known = known.map(|(operand, digest)| Fingerprint {
            elements: operand.span.words.into(),
            dtype: operand.dtype,
            digest,
        });
        // What is known without memory, such as tables, comes last.
        begun.inputs.splice(0..0, known);
        self.begun.push(begun);
        Ok(())
    }
}

fn describe(session: &Session, asked: &TraceRequest, ranks: &[u32]) -> RunDescription {
    let (format, format_version, bitproof) = RunDescription::format();
    let engine = session.engine_identity();
    let is_whole = ranks.len() as u32 == session.ranks();
    RunDescription {
        format,
        format_version,
        bitproof,
        run: "reference".to_string(),
        scenario: session.scenario.name.clone(),
        scenario_hash: hexadecimal(&session.scenario.content_hash()),
        build_hash: hexadecimal(&session.build_hash()),
        kernels_hash: hexadecimal(&session.registry.hash()),
        engine: engine.name,
        adapter: engine.adapter,
        strict: engine.strict,
        level: asked.level,
        iterations: asked.iterations,
        digest: DIGEST_RULE.to_string(),
        world_size: session.ranks(),
        ranks: (!is_whole).then(|| ranks.to_vec()),
    }
}

impl Group {
    fn of(session: &Session, group: u32) -> Group {
        let ranks = session.group_ranks(GroupId(group));
        let is_short = ranks.len() <= MEMBERS_LISTED_MAX;
        Group {
            name: session.group_name(group).to_string(),
            members: match is_short {
                true => {
                    let list = serde_json::to_string(ranks).expect("numbers");
                    format!("\"group_ranks\":{list}")
                }
                false => format!("\"group_size\":{}", ranks.len()),
            },
            calls: 0,
        }
    }

    /// The fields of its next call.
    fn call(&mut self) -> String {
        self.calls += 1;
        let name = serde_json::to_string(&self.name).expect("a string has a JSON form");
        let members = &self.members;
        let seq = self.calls - 1;
        format!(",\"group\":{name},\"group_seq\":{seq},{members}")
    }
}

impl Observer for Recorder {
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        match node.group {
            Some(group) => self.reduction(node, group, lab.engine),
            None => self.local_fold(node, lab.engine),
        }
    }

    fn on_launch(
        &mut self,
        node: &LaunchNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        self.launch(node, engine)
    }

    fn on_copies(
        &mut self,
        copies: &[CopyNode<'_>],
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        copies.iter().try_for_each(|copy| self.copy(copy, engine))
    }

    fn on_exchange(
        &mut self,
        node: &ExchangeNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        self.exchange(node, engine)
    }

    fn on_upload(
        &mut self,
        node: &UploadNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        self.upload(node, engine)
    }

    /// What has run is recorded, with what it left.
    fn on_ran(&mut self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        self.turn += 1;
        let begun = std::mem::take(&mut self.begun);
        let outputs = begun.iter().flat_map(|one| &one.outputs);
        let spans: Vec<Span> = outputs.map(|operand| operand.span).collect();
        let mut digests = self.digests(&spans, engine)?.into_iter();
        for one in begun {
            let outputs: Vec<Fingerprint> = one
                .outputs
                .iter()
                .zip(&mut digests)
                .map(|(operand, digest)| Fingerprint {
                    elements: operand.span.words.into(),
                    dtype: operand.dtype,
                    digest,
                })
                .collect();
            self.write(&one, &outputs);
        }
        Ok(())
    }

    fn on_boundary(&mut self, step: Option<u32>, ranks: &[u32], metrics: &[ShownMetric]) {
        if let Some(step) = step {
            let is_wanted = |(first, last): (u32, u32)| step >= first && step <= last;
            if !self.iterations.is_none_or(is_wanted) {
                return;
            }
            let recording = &mut self.recording;
            for rank in ranks {
                if recording.takes(*rank, Stream::Boundary) {
                    recording.boundary(*rank, |place| step_line(place, step));
                }
            }
            for metric in metrics {
                if recording.takes(metric.rank, Stream::Boundary) {
                    let line = |place| metric_line(place, step, &metric.name, metric.value);
                    recording.boundary(metric.rank, line);
                }
            }
        }
        self.recording.flush();
    }
}

impl Recorder {
    fn write(&mut self, one: &Begun, outputs: &[Fingerprint]) {
        let Some(course) = self.ranks.get_mut(&one.rank) else {
            return;
        };
        let site = &one.site;
        let iteration = course.go_to(site.step);
        let mut extra = one.extra.clone();
        if iteration != site.step {
            extra += &format!(",\"of_iteration\":{}", site.step);
        }
        let groups = &self.groups;
        let stream = one
            .stream
            .label(|group| groups[group.0 as usize].name.clone());
        let stream = serde_json::to_string(&stream).expect("a string has a JSON form");
        extra += &format!(",\"stream\":{stream},\"time\":{}", self.turn);
        let id = course.id(site);
        self.recording.op(&OpLine {
            rank: one.rank,
            iteration: (iteration > 0).then_some(iteration),
            microbatch: site.microbatch,
            phase: site.phase.name(),
            kind: one.kind,
            name: &site.op,
            id: &id,
            scope: &site.module,
            inputs: &one.inputs,
            outputs,
            extra: &extra,
        });
    }
}
