//! Collectives and messages: one joint node each, once every member has called.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::{CopyWords, EngineError, Span};
use crate::plan::Plan;
use crate::world::command::{Collective, CollectiveKind, Command, Issued};
use crate::world::error::{Side, WorldError};
use crate::world::fold::{FoldJob, FoldNode, SlotsJob, part};
use crate::world::observer::{CopyNode, ExchangeNode, Member, Way};
use crate::world::order::{Choice, CollectiveShape, Owner, combine_of};
use crate::world::rank::{GroupId, Lane, StreamId, Tensor, recv_stream};
use crate::world::site::{Family, Site};

use super::coordinator::{Coordinator, Written, at};
use super::shuffle::Shuffle;

/// One member's call, at the head of its stream.
struct Call {
    rank: u32,
    issued: Issued,
    collective: Collective,
}

impl Coordinator<'_> {
    /// Executes every collective that all members have called; false when there was none.
    pub fn run_collectives(&mut self, written: &mut Vec<Written>) -> Result<bool, WorldError> {
        let ready = self.heads.take_complete(&mut self.shuffle);
        let any = !ready.is_empty();
        let mut folds = Vec::new();
        let mut tickets = Vec::new();
        for (group, stream) in ready {
            let calls = self.take_calls(group, stream);
            self.record.groups_met.insert(group);
            self.check_agreement(group, &calls)?;
            for (place, call) in calls.iter().enumerate() {
                tickets.push((call.rank, stream, call.collective.ticket.number));
                let sends = call.collective.kind.sends(place as u32);
                if sends {
                    self.on_read(call.rank, call.collective.input);
                }
            }
            for (place, call) in calls.iter().enumerate() {
                if call.collective.kind.receives(place as u32) {
                    self.on_write(call.rank, call.collective.output);
                }
            }
            match calls[0].collective.kind {
                CollectiveKind::AllReduce { family, .. } => {
                    folds.push(self.reduction(group, family, &calls)?);
                }
                CollectiveKind::ReduceScatter { family } => {
                    folds.push(self.reduction(group, family, &calls)?);
                }
                _ => self.move_data(group, &calls, written)?,
            }
        }
        self.run_folds(folds, written)?;
        for (rank, stream, ticket) in tickets {
            self.finish_on(rank, stream, ticket);
        }
        Ok(any)
    }

    fn take_calls(&mut self, group: GroupId, stream: StreamId) -> Vec<Call> {
        let members = self.world.communicators[group.0 as usize].ranks.clone();
        members
            .iter()
            .map(|rank| {
                let issued = self.pop(*rank, stream);
                let Command::Collective(collective) = issued.command.clone() else {
                    unreachable!("head was a collective");
                };
                Call {
                    rank: *rank,
                    issued,
                    collective,
                }
            })
            .collect()
    }

    /// All members must have called the same thing, from the same place of the program: NCCL pairs
    /// the calls of a communicator by their order alone, and would mix two of equal shape.
    fn check_agreement(&self, group: GroupId, calls: &[Call]) -> Result<(), WorldError> {
        let shape = |call: &Call| {
            let Collective {
                kind,
                input,
                output,
                ..
            } = call.collective;
            (kind, input.len, input.dtype, output.len)
        };
        // Words are for those that differ: most calls agree.
        let agrees = |call: &Call| {
            let first = &calls[0];
            shape(call) == shape(first) && call.issued.site == first.issued.site
        };
        if calls.iter().all(agrees) {
            return Ok(());
        }
        let mut by_call: BTreeMap<(String, Arc<Site>), Vec<u32>> = BTreeMap::new();
        for call in calls {
            let key = (call.collective.signature(), call.issued.site.clone());
            by_call.entry(key).or_default().push(call.rank);
        }
        let side = |((what, site), ranks): ((String, Arc<Site>), Vec<u32>)| Side {
            ranks,
            site: Some(site),
            what,
        };
        let sides: Vec<Side> = by_call.into_iter().map(side).collect();
        // The same call in another name of the dtype or kind.
        if sides.len() == 1 {
            return Ok(());
        }
        let group = self.world.communicators[group.0 as usize].name.clone();
        Err(mismatch(group, sides))
    }

    fn reduction(
        &mut self,
        group: GroupId,
        family: Family,
        calls: &[Call],
    ) -> Result<FoldNode, WorldError> {
        let first = &calls[0].collective;
        let shape = CollectiveShape {
            group,
            kind: first.kind,
            dtype: first.input.dtype,
            elements: u64::from(first.input.len),
        };
        assert!(
            combine_of(first.kind).is_some(),
            "{} reduces",
            first.kind.name()
        );
        let plans = self
            .world
            .plans
            .plans(shape)
            .map_err(|reason| WorldError::NoPlan {
                what: format!("{} at {}", first.signature(), calls[0].issued.site),
                reason,
            })?;
        let misfit = |plan: &Arc<Plan>| {
            plan.addend_count as usize != calls.len() || plan.element_count != shape.elements
        };
        if plans.is_empty() || plans.iter().any(misfit) {
            return Err(WorldError::NoPlan {
                what: format!("{} at {}", first.signature(), calls[0].issued.site),
                reason: "a plan for another number of addends or elements".to_string(),
            });
        }
        let id = self.next_fold(Owner::Group(group.0), calls[0].issued.site.step);
        let job = FoldJob::Slots(SlotsJob {
            addends: calls
                .iter()
                .map(|call| self.span(call.rank, call.collective.input))
                .collect(),
            accumulator: None,
            plan: plans[0].clone(),
            outs: calls
                .iter()
                .enumerate()
                .map(|(place, call)| self.out(place, call))
                .collect(),
        });
        let choice = match plans.len() {
            1 => Choice::Pinned,
            _ => Choice::Placement(plans),
        };
        let ranks: Arc<[u32]> = calls.iter().map(|call| call.rank).collect();
        let (wave, site) = (self.wave, calls[0].issued.site.clone());
        Ok(FoldNode {
            id,
            wave,
            site,
            stream: calls[0].issued.stream,
            family,
            group: Some(group),
            ranks,
            choice,
            shape: Some(shape),
            job,
        })
    }

    /// Which elements of the result a member receives, and where.
    fn out(&self, place: usize, call: &Call) -> (std::ops::Range<u64>, Span) {
        let span = self.span(call.rank, call.collective.output);
        let len = u64::from(call.collective.output.len);
        match call.collective.kind {
            CollectiveKind::ReduceScatter { .. } => {
                (place as u64 * len..(place as u64 + 1) * len, span)
            }
            _ => (0..len, span),
        }
    }

    fn span(&self, rank: u32, tensor: Tensor) -> Span {
        self.ranks[rank as usize].memory.span(tensor)
    }

    /// Collectives without arithmetic.
    fn move_data(
        &mut self,
        group: GroupId,
        calls: &[Call],
        written: &mut Vec<Written>,
    ) -> Result<(), WorldError> {
        let site = calls[0].issued.site.to_string();
        let failed = |source| at(&calls[0].rank.to_string(), &site, source);
        self.show_exchange(group, calls).map_err(failed)?;
        let mut copies = Vec::new();
        for (to, receiver) in calls.iter().enumerate() {
            let output = self.span(receiver.rank, receiver.collective.output);
            for (from, sender) in calls.iter().enumerate() {
                let input = self.span(sender.rank, sender.collective.input);
                let places = (from, to, calls.len());
                let copy = moved(receiver.collective.kind, places, input, output);
                copies.extend(copy.map(|copy| (sender.rank, receiver, copy)));
            }
            let (rank, site) = (receiver.rank, receiver.issued.site.clone());
            written.push(Written {
                rank,
                site,
                fold: None,
                dtype: receiver.collective.output.dtype,
                span: output,
            });
        }
        copies.retain(|(.., copy)| copy.from != copy.to);
        let nodes = copies.iter().map(|&(from, receiver, copy)| CopyNode {
            site: &receiver.issued.site,
            stream: receiver.issued.stream,
            from,
            to: receiver.rank,
            copy,
            dtype: receiver.collective.output.dtype,
            way: Way::Exchange,
        });
        let nodes: Vec<CopyNode<'_>> = nodes.collect();
        let copies: Vec<CopyWords> = copies.iter().map(|(.., copy)| *copy).collect();
        let seen = self.observer.on_copies(&nodes, self.engine);
        seen.and_then(|()| self.engine.copy(&copies))
            .map_err(failed)
    }

    fn show_exchange(&mut self, group: GroupId, calls: &[Call]) -> Result<(), EngineError> {
        let member = |call: &Call| Member {
            rank: call.rank,
            input: self.span(call.rank, call.collective.input),
            output: self.span(call.rank, call.collective.output),
        };
        let members: Vec<Member> = calls.iter().map(member).collect();
        let node = ExchangeNode {
            site: &calls[0].issued.site,
            stream: calls[0].issued.stream,
            group,
            kind: calls[0].collective.kind,
            dtype: calls[0].collective.input.dtype,
            members: &members,
        };
        self.observer.on_exchange(&node, self.engine)
    }

    /// Executes every send that meets its receive; false when there was none.
    pub fn run_messages(&mut self, written: &mut Vec<Written>) -> Result<bool, WorldError> {
        let mut pairs = Vec::new();
        let mut shuffle = std::mem::replace(&mut self.shuffle, Shuffle::new(None));
        for (from, outlet) in self.heads.sends() {
            let head = self.ranks[from as usize].streams[&outlet].front();
            let Some(Command::Send { to, .. }) = head.map(|issued| &issued.command) else {
                unreachable!("a send is at the head");
            };
            let inlet = self.receiving(*to, from, outlet.lane());
            if let Some(inlet) = inlet.filter(|_| !shuffle.delays()) {
                pairs.push((from, outlet, *to, inlet));
            }
        }
        self.shuffle = shuffle;
        let any = !pairs.is_empty();
        for (from, outlet, to, inlet) in pairs {
            self.run_message((from, outlet), (to, inlet), written)?;
        }
        Ok(any)
    }

    /// The stream of `rank` on which it receives from `peer`, if that is at its head.
    fn receiving(&self, rank: u32, peer: u32, lane: Lane) -> Option<StreamId> {
        let inlet = recv_stream(lane, peer);
        let state = self.ranks.get(rank as usize)?;
        let head = state.head(inlet);
        let head = head.filter(|head| !state.hold.holds(head.ordinal));
        let head = head.map(|issued| &issued.command);
        matches!(head, Some(Command::Recv { .. })).then_some(inlet)
    }

    fn run_message(
        &mut self,
        (from, outlet): (u32, StreamId),
        (to, inlet): (u32, StreamId),
        written: &mut Vec<Written>,
    ) -> Result<(), WorldError> {
        self.heads.sent(from, outlet);
        self.record.messages_met.insert((from, to));
        let sent = self.pop(from, outlet);
        let received = self.pop(to, inlet);
        let (
            Command::Send {
                tensor: source,
                ticket: sent_ticket,
                ..
            },
            Command::Recv {
                tensor: target,
                ticket: received_ticket,
                ..
            },
        ) = (&sent.command, &received.command)
        else {
            unreachable!("heads were seen");
        };
        if source.len != target.len || source.dtype != target.dtype {
            return Err(unequal_ends((from, source, &sent), (to, target, &received)));
        }
        self.on_read(from, *source);
        self.on_write(to, *target);
        let copy = CopyWords {
            from: self.span(from, *source),
            to: self.span(to, *target),
        };
        let site = received.site.to_string();
        let node = CopyNode {
            site: &received.site,
            stream: inlet,
            from,
            to,
            copy,
            dtype: target.dtype,
            way: Way::Message {
                sent: &sent.site,
                outlet,
            },
        };
        let seen = self.observer.on_copies(&[node], self.engine);
        seen.and_then(|()| self.engine.copy(&[copy]))
            .map_err(|source| at(&to.to_string(), &site, source))?;
        self.finish_on(from, outlet, sent_ticket.number);
        self.finish_on(to, inlet, received_ticket.number);
        written.push(self.written(to, &received, *target));
        Ok(())
    }

    pub(super) fn pop(&mut self, rank: u32, stream: StreamId) -> Issued {
        let state = &mut self.ranks[rank as usize];
        let issued = state.take_head(rank, stream, &mut self.heads);
        issued.expect("head was seen")
    }

    /// The collective or message of `rank` on `stream` is over.
    fn finish_on(&mut self, rank: u32, stream: StreamId, ticket: u32) {
        self.ranks[rank as usize].finish_on(stream, ticket);
        self.heads.stir(rank);
    }
}

/// A message whose two ends are not one tensor.
fn unequal_ends(
    (from, source, sent): (u32, &Tensor, &Issued),
    (to, target, received): (u32, &Tensor, &Issued),
) -> WorldError {
    let side = |rank: u32, verb: &str, tensor: &Tensor, issued: &Issued| Side {
        ranks: vec![rank],
        site: Some(issued.site.clone()),
        what: format!("{verb} {} {}", tensor.len, tensor.dtype),
    };
    WorldError::CollectiveMismatch {
        group: format!("messages {from} -> {to}"),
        detail: format!(
            "rank {from} sends {} {} at {}; rank {to} receives {} {} at {}",
            source.len, source.dtype, sent.site, target.len, target.dtype, received.site
        ),
        sides: vec![
            side(from, "sends", source, sent),
            side(to, "receives", target, received),
        ],
        hazards: Vec::new(),
    }
}

/// Several sides of one call. Where only the places differ, that is said.
fn mismatch(group: String, sides: Vec<Side>) -> WorldError {
    let told = sides.iter().map(|side| {
        let Side { ranks, site, what } = side;
        let site = site.as_ref().map_or(String::new(), ToString::to_string);
        format!("ranks {ranks:?} call {what} at {site}")
    });
    let mut told = told.collect::<Vec<_>>().join("; ");
    if sides.iter().all(|side| side.what == sides[0].what) {
        told += "; the calls fit, so that they are paired by their order and mix silently";
    }
    WorldError::CollectiveMismatch {
        group,
        detail: told,
        sides,
        hazards: Vec::new(),
    }
}

/// What of place `from`'s input goes where in place `to`'s output, in a group of `size`.
fn moved(
    kind: CollectiveKind,
    (from, to, size): (usize, usize, usize),
    input: Span,
    output: Span,
) -> Option<CopyWords> {
    let block = |span: Span, place: usize, words: u32| part(span, place as u32 * words, words);
    match kind {
        CollectiveKind::AllGather => Some(CopyWords {
            from: input,
            to: block(output, from, input.words),
        }),
        CollectiveKind::AllToAll => {
            let words = input.words / size as u32;
            Some(CopyWords {
                from: block(input, to, words),
                to: block(output, from, words),
            })
        }
        CollectiveKind::Broadcast { root_place } if from == root_place as usize => {
            Some(CopyWords {
                from: input,
                to: output,
            })
        }
        _ => None,
    }
}
