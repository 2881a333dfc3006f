//! What hosts do themselves, once nothing else can run: they touch their own memory, and get
//! answers.

use crate::world::command::{Command, Issued};
use crate::world::error::WorldError;
use crate::world::rank::{HOST, Park};

use super::QueryPoint;
use super::coordinator::{Coordinator, Written, at};

impl Coordinator<'_> {
    /// Runs what hosts wait to do and can; false when there was none.
    pub(super) fn run_hosts(&mut self, written: &mut Vec<Written>) -> Result<bool, WorldError> {
        let mut any = false;
        for rank in 0..self.world.ranks {
            if self.host_is_ready(rank) {
                let issued = self.pop(rank, HOST);
                self.run_host(rank, &issued, written)?;
                self.heads.stir(rank);
                any = true;
            }
        }
        Ok(any)
    }

    fn host_is_ready(&mut self, rank: u32) -> bool {
        let denied = self
            .asked(rank)
            .is_some_and(|issued| self.is_denied(&issued));
        let state = &self.ranks[rank as usize];
        if !matches!(state.park, Some(Park::Host)) {
            return false;
        }
        match state.head(HOST).map(|issued| &issued.command) {
            Some(Command::HostRead { .. } | Command::HostWrite { .. } | Command::Clock { .. }) => {
                true
            }
            Some(Command::Query { ticket, .. }) => denied || state.is_complete(ticket.number),
            _ => false,
        }
    }

    /// The query that the rank's host waits to have answered.
    fn asked(&self, rank: u32) -> Option<Issued> {
        let state = &self.ranks[rank as usize];
        let asks = matches!(state.park, Some(Park::Host));
        let head = state.head(HOST).filter(|_| asks)?;
        matches!(head.command, Command::Query { .. }).then(|| head.clone())
    }

    fn run_host(
        &mut self,
        rank: u32,
        issued: &Issued,
        written: &mut Vec<Written>,
    ) -> Result<(), WorldError> {
        let failed = |source| at(&rank.to_string(), &issued.site.to_string(), source);
        match &issued.command {
            Command::HostRead { from } => {
                let span = self.ranks[rank as usize].memory.span(*from);
                let words = self.engine.read(span).map_err(failed)?;
                self.on_read(rank, *from);
                self.ranks[rank as usize].read_words = Some(words);
            }
            Command::HostWrite { to, words } => {
                self.upload(rank, issued, *to, words).map_err(failed)?;
                self.on_write(rank, *to);
                written.push(self.written(rank, issued, *to));
            }
            Command::Query { .. } => {
                let denied = self.is_denied(issued);
                self.answer(rank, issued, !denied, denied);
            }
            Command::Clock { .. } => self.tell_time(rank, issued),
            other => unreachable!("{other:?} is not the host's"),
        }
        Ok(())
    }

    fn is_denied(&mut self, issued: &Issued) -> bool {
        let Command::Query { id, ticket } = &issued.command else {
            return false;
        };
        if self.options.schedule.not_ready.contains(id) {
            return true;
        }
        // A host that has waited for the work knows that it is over.
        let knows = self.host_has(id.rank, ticket.number);
        let race = self.race.as_mut().filter(|_| !knows);
        race.is_some_and(|race| race.denies(*id, &ticket.edge))
    }

    /// A rank's clock says that time is left, unless the schedule says that none is.
    fn tell_time(&mut self, rank: u32, issued: &Issued) {
        let Command::Clock { name, id, open } = &issued.command else {
            unreachable!("a clock is asked");
        };
        let is_set = self.options.schedule.not_ready.contains(id);
        let race = self.race.as_mut().filter(|_| *open && !is_set);
        let is_over = is_set || race.is_some_and(|race| race.denies(*id, name));
        self.ranks[rank as usize].read_words = Some(vec![u32::from(!is_over)]);
        self.record.queries.push(QueryPoint {
            id: *id,
            site: issued.site.clone(),
            edge: name.clone(),
            ready: !is_over,
            open: *open && !is_over,
            denied: is_over,
            is_clock: true,
        });
    }

    /// Nothing can go on, so what is asked for is not ready, and cannot be before the host has its
    /// answer. False when nobody asks.
    pub(super) fn deny_queries(&mut self) -> bool {
        let mut any = false;
        for rank in 0..self.world.ranks {
            if self.asked(rank).is_some() {
                let issued = self.pop(rank, HOST);
                self.answer(rank, &issued, false, false);
                any = true;
            }
        }
        any
    }

    fn answer(&mut self, rank: u32, issued: &Issued, is_ready: bool, denied: bool) {
        let Command::Query { ticket, id } = &issued.command else {
            unreachable!("a query is answered");
        };
        // Where accesses are not followed, the host is not known to know.
        let open = is_ready && !self.host_has(rank, ticket.number);
        self.ranks[rank as usize].read_words = Some(vec![u32::from(is_ready)]);
        self.record.queries.push(QueryPoint {
            id: *id,
            site: issued.site.clone(),
            edge: ticket.edge.clone(),
            ready: is_ready,
            open,
            denied,
            is_clock: false,
        });
    }
}
