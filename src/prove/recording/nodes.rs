//! What each kind of node reads and writes.

use std::sync::Arc;

use super::Recorder;
use crate::engine::{Engine, EngineError, Span};
use crate::numerics::{Digest, Dtype};
use crate::prove::token::hexadecimal;
use crate::trace::native::{Fingerprint, Kind, Level};
use crate::world::fold::{FoldJob, FoldNode, SegmentsJob};
use crate::world::{
    CopyNode, ExchangeNode, GroupId, LaunchNode, Phase, Site, StreamId, UploadNode, Way,
};

/// A tensor in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub span: Span,
    pub dtype: Dtype,
}

/// A node that is about to run.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pub rank: u32,
    pub site: Arc<Site>,
    pub stream: StreamId,
    pub kind: Kind,
    pub inputs: Vec<Fingerprint>,
    pub outputs: Vec<Operand>,
    pub extra: String,
}

impl Begun {
    fn of(rank: u32, (site, stream): (&Arc<Site>, StreamId), kind: Kind) -> Begun {
        Begun {
            rank,
            site: site.clone(),
            stream,
            kind,
            inputs: Vec::new(),
            outputs: Vec::new(),
            extra: String::new(),
        }
    }
}

/// At the semantic level ops of forward and backward are left out, and nothing else.
fn is_semantic(site: &Site) -> bool {
    !matches!(site.phase, Phase::Forward | Phase::Backward)
}

impl Recorder {
    fn takes_op(&self, rank: u32, site: &Site) -> bool {
        let is_deep = self.level >= Level::Op || is_semantic(site);
        is_deep && self.takes(rank, site.step)
    }

    pub(super) fn launch(
        &mut self,
        node: &LaunchNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        if !self.takes_op(node.rank, node.site) {
            return Ok(());
        }
        let mut begun = Begun::of(node.rank, (node.site, node.stream), Kind::Op);
        let mut inputs = Vec::new();
        let operands = node.operands.iter().zip(node.tensors);
        for (operand, (span, tensor)) in node.kernel.operands.iter().zip(operands) {
            let dtype = tensor.dtype;
            let given = Operand { span: *span, dtype };
            inputs.extend(operand.reads.then_some(given));
            begun.outputs.extend(operand.writes.then_some(given));
        }
        begun.extra = format!(",\"kernel\":\"{}\"", node.kernel.name);
        if self.level == Level::Kernel {
            let names: Vec<&str> = node.kernel.operands.iter().map(|one| &*one.name).collect();
            let names = serde_json::to_string(&names).expect("strings have a JSON form");
            let params = serde_json::to_string(node.params).expect("numbers");
            begun.extra += &format!(",\"params\":{params},\"operands\":{names}");
        }
        self.begin_node(begun, &inputs, engine)
    }

    pub(super) fn local_fold(
        &mut self,
        node: &FoldNode,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        let rank = node.ranks[0];
        if !self.takes_op(rank, &node.site) {
            return Ok(());
        }
        let mut begun = Begun::of(rank, (&node.site, node.stream), Kind::Op);
        let arithmetic = node.arithmetic();
        let mut inputs = Vec::new();
        match &node.job {
            FoldJob::Slots(job) => {
                let dtype = arithmetic.addend;
                let parts = joined(&job.addends).into_iter();
                inputs.extend(parts.map(|span| Operand { span, dtype }));
                inputs.extend(job.accumulator.map(|span| Operand {
                    span,
                    dtype: arithmetic.out,
                }));
                let outs = job.outs.iter().map(|(_, span)| Operand {
                    span: *span,
                    dtype: arithmetic.out,
                });
                begun.outputs.extend(outs);
            }
            FoldJob::Segments(job) => {
                inputs.push(Operand {
                    span: job.rows,
                    dtype: arithmetic.addend,
                });
                begun.inputs.push(tables(job));
                begun.outputs.push(Operand {
                    span: job.out,
                    dtype: job.out_dtype,
                });
            }
        }
        begun.extra = self.of_fold(node);
        self.begin_node(begun, &inputs, engine)
    }

    /// What a record says of a sum. Whether its order was free is told, and is no difference.
    fn of_fold(&self, node: &FoldNode) -> String {
        let mut extra = format!(
            ",\"kernel\":\"{}\",\"note\":\"order: {}\"",
            match &node.job {
                FoldJob::Slots(_) => "fold",
                FoldJob::Segments(_) => "fold_segments",
            },
            node.choice.name()
        );
        if let (Level::Kernel, FoldJob::Slots(job)) = (self.level, &node.job) {
            extra += &format!(",\"plan\":\"{}\"", hexadecimal(&job.plan.hash()[..16]));
        }
        extra
    }

    /// A collective that adds: a record of each member, with what it gave and what it got.
    pub(super) fn reduction(
        &mut self,
        node: &FoldNode,
        group: GroupId,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        let call = self.groups[group.0 as usize].call() + &self.of_fold(node);
        let FoldJob::Slots(job) = &node.job else {
            unreachable!("collectives fold slots");
        };
        let arithmetic = node.arithmetic();
        let kind = node.shape.map_or("reduce", |shape| shape.kind.name());
        for (place, rank) in node.ranks.iter().enumerate() {
            if !self.takes(*rank, node.site.step) {
                continue;
            }
            let mut begun = Begun::of(*rank, (&node.site, node.stream), Kind::Collective);
            begun.extra = format!(",\"collective\":\"{kind}\"{call}");
            let given = Operand {
                span: job.addends[place],
                dtype: arithmetic.addend,
            };
            begun.outputs.push(Operand {
                span: job.outs[place].1,
                dtype: arithmetic.out,
            });
            self.begin_node(begun, &[given], engine)?;
        }
        Ok(())
    }

    /// A collective that only moves words. Who gives nothing to a broadcast is shown its root's.
    pub(super) fn exchange(
        &mut self,
        node: &ExchangeNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        let call = self.groups[node.group.0 as usize].call();
        let dtype = node.dtype;
        let places = 0..node.members.len() as u32;
        let source = |place: u32| match node.kind.sends(place) {
            true => Some(place),
            false => places.clone().find(|other| node.kind.sends(*other)),
        };
        for (place, member) in places.clone().zip(node.members) {
            if !self.takes(member.rank, node.site.step) {
                continue;
            }
            let mut begun = Begun::of(member.rank, (node.site, node.stream), Kind::Collective);
            begun.extra = format!(",\"collective\":\"{}\"{call}", node.kind.name());
            let given = source(place).map(|place| Operand {
                span: node.members[place as usize].input,
                dtype,
            });
            let got = node.kind.receives(place).then_some(Operand {
                span: member.output,
                dtype,
            });
            begun.outputs.extend(got);
            self.begin_node(begun, given.as_slice(), engine)?;
        }
        Ok(())
    }

    pub(super) fn copy(
        &mut self,
        node: &CopyNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        let dtype = node.dtype;
        let [from, to] = [node.copy.from, node.copy.to].map(|span| Operand { span, dtype });
        match node.way {
            // Shown as a whole before.
            Way::Exchange => Ok(()),
            Way::Local => {
                if !self.takes_op(node.to, node.site) {
                    return Ok(());
                }
                let mut begun = Begun::of(node.to, (node.site, node.stream), Kind::Op);
                begun.outputs.push(to);
                begun.extra = ",\"kernel\":\"copy\"".to_string();
                self.begin_node(begun, &[from], engine)
            }
            Way::Message { sent, outlet } => {
                let ends = format!(",\"group\":\"{} to {}\"", node.from, node.to);
                if self.takes(node.from, sent.step) {
                    let mut begun = Begun::of(node.from, (sent, outlet), Kind::Message);
                    begun.extra = ends.clone();
                    self.begin_node(begun, &[from], engine)?;
                }
                if self.takes(node.to, node.site.step) {
                    let mut begun = Begun::of(node.to, (node.site, node.stream), Kind::Message);
                    begun.outputs.push(to);
                    begun.extra = ends;
                    self.begin_node(begun, &[from], engine)?;
                }
                Ok(())
            }
        }
    }

    pub(super) fn upload(
        &mut self,
        node: &UploadNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        if !self.takes_op(node.rank, node.site) {
            return Ok(());
        }
        let mut begun = Begun::of(node.rank, (node.site, node.stream), Kind::Op);
        begun.outputs.push(Operand {
            span: node.span,
            dtype: node.dtype,
        });
        begun.extra = ",\"kernel\":\"upload\"".to_string();
        self.begin_node(begun, &[], engine)
    }
}

/// Spans that follow each other, as one.
fn joined(spans: &[Span]) -> Vec<Span> {
    let mut found: Vec<Span> = Vec::new();
    for span in spans {
        match found.last_mut() {
            Some(last)
                if last.arena == span.arena
                    && last.offset_words + last.words == span.offset_words =>
            {
                last.words += span.words;
            }
            _ => found.push(*span),
        }
    }
    found
}

/// Which rows go where: an input like the rows themselves.
fn tables(job: &SegmentsJob) -> Fingerprint {
    let (pointers, indices) = (&job.segments.pointers, &job.segments.indices);
    Fingerprint {
        elements: (pointers.len() + indices.len()) as u64,
        dtype: Dtype::U32,
        digest: Digest::of_words(pointers).then(Digest::of_words(indices)),
    }
}
