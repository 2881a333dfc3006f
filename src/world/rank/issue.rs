//! How a command gets its site and its place in the host's order.

use std::sync::Arc;

use crate::world::command::{Command, Issued, Ticket};
use crate::world::site::{Name, Site};

use super::handle::NO_TICKET;
use super::{Handle, Rank, StreamId};

impl Rank {
    /// `stream` goes on only after what the current stream holds now: the edge `EDGE.start`.
    pub(super) fn behind_current(&mut self, stream: StreamId, op: &str, edge: &Name) {
        let edge = self.names.of(&format!("{edge}.start"));
        let ticket = self.ticket(edge);
        let record = Command::Record {
            ticket: ticket.clone(),
        };
        self.issue(op, record);
        self.issue_on(stream, op, Command::Wait { ticket });
    }

    /// `stream` waits for what `handle` stands for.
    pub(super) fn wait_on(&mut self, stream: StreamId, op: &str, handle: Handle) {
        if let Some(ticket) = self.ticket_of(handle) {
            self.issue_on(stream, op, Command::Wait { ticket });
        }
    }

    /// `None` for a handle that a misuse has given, which `fail` has kept.
    pub(super) fn ticket_of(&self, handle: Handle) -> Option<Ticket> {
        let edge = self.edges.get(handle.edge as usize);
        let number = (handle.ticket != NO_TICKET).then_some(handle.ticket)?;
        edge.cloned().map(|edge| Ticket { number, edge })
    }

    /// What waits for `op` are called, issued here: as [`Rank::edge`] says, else by the module.
    pub(super) fn edge_of(&mut self, op: &str) -> Name {
        match (&self.edge, self.module.as_str()) {
            (Some(edge), _) => edge.clone(),
            (None, "") => self.names.of(op),
            (None, module) => self.names.of(&format!("{module}.{op}")),
        }
    }

    pub(super) fn issue(&mut self, op: &str, command: Command) {
        self.issue_on(self.stream, op, command);
    }

    pub(super) fn issue_on(&mut self, stream: StreamId, op: &str, command: Command) {
        let op = self.names.of(op);
        self.issue_as(stream, op, command);
    }

    pub(super) fn issue_as(&mut self, stream: StreamId, op: Name, command: Command) {
        self.streams.insert(stream);
        let site = self.site(op);
        let ordinal = self.ordinal;
        self.ordinal += 1;
        let issued = Issued {
            site,
            stream,
            ordinal,
            command,
        };
        self.issued.push((stream, issued));
    }

    /// Where the next command stands, as the last one's site where that is the same.
    fn site(&mut self, op: Name) -> Arc<Site> {
        let module = match &self.module_name {
            Some(name) => name.clone(),
            None => self.names.of(&self.module),
        };
        self.module_name = Some(module.clone());
        let shared = self.site.as_ref().filter(|site| {
            site.op.is_same(&op)
                && site.module.is_same(&module)
                && (site.step, site.microbatch, site.phase)
                    == (self.step, self.microbatch, self.phase)
        });
        if let Some(site) = shared {
            return site.clone();
        }
        let site = Arc::new(Site {
            step: self.step,
            microbatch: self.microbatch,
            phase: self.phase,
            module,
            op,
        });
        self.site = Some(site.clone());
        site
    }
}
