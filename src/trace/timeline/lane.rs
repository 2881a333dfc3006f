//! One rank's records in their order, and where its streams have come to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::event::Event;
use super::{Extent, TimelineError};
use crate::trace::certify::RankStream;
use crate::trace::damage::Damage;

/// A rank on its way.
pub(super) struct Lane {
    pub rank: u32,
    /// Nothing once it has ended.
    stream: Option<RankStream>,
    /// The last place on any of its streams.
    clock: u64,
    /// The last place on each.
    places: BTreeMap<u32, u64>,
    /// Messages between two ranks at one time, for they have no number of their own.
    messages: BTreeMap<String, u64>,
    time: Option<u64>,
}

impl Lane {
    /// # Errors
    /// What cannot be opened.
    pub fn open(rank: u32, files: &[PathBuf], own: Option<u32>) -> Result<Lane, Damage> {
        Ok(Lane {
            rank,
            stream: Some(RankStream::open(files, own)?),
            clock: 0,
            places: BTreeMap::new(),
            messages: BTreeMap::new(),
            time: None,
        })
    }

    /// The next record within `extent`; nothing at the end.
    ///
    /// # Errors
    /// What is no record, or does not go on from the last one.
    pub fn next(&mut self, extent: &Extent) -> Result<Option<Event>, Damage> {
        while let Some(stream) = &mut self.stream {
            if !stream.ready()? {
                self.stream.take().map(RankStream::finish).transpose()?;
                return Ok(None);
            }
            let event = stream.certified(Event::of)?;
            stream.advance();
            if extent.takes(event.iteration) {
                return Ok(Some(self.numbered(event)));
            }
        }
        Ok(None)
    }

    /// Tells messages of one moment apart.
    fn numbered(&mut self, mut event: Event) -> Event {
        if event.time != self.time {
            self.time = event.time;
            self.messages.clear();
        }
        if let (Some(call), "message") = (&mut event.call, &*event.kind) {
            let count = self.messages.entry(call.key.clone()).or_default();
            call.key += &format!(" {count}");
            *count += 1;
        }
        event
    }

    /// The earliest place for an event on the stream `track`: behind the last one there, and at its
    /// time if ranks share a clock, else behind all that its rank has done.
    pub fn earliest(&self, track: u32, time: Option<u64>) -> u64 {
        let behind = self.places.get(&track).map_or(0, |last| last + 1);
        behind.max(time.unwrap_or(self.clock + 1))
    }

    /// # Errors
    /// A clock beyond any run's.
    pub fn put(&mut self, track: u32, place: u64) -> Result<(), TimelineError> {
        if place > super::PLACE_MAX {
            return Err(TimelineError::Late { rank: self.rank });
        }
        self.places.insert(track, place);
        self.clock = self.clock.max(place);
        Ok(())
    }
}
