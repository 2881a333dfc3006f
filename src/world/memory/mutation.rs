//! Ways in which the world itself could be wrong: each is tried by a test, and must be noticed. A
//! missing edge in our own engine would make every proof a lie.

/// One mistake of the world's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A stream does not stop at a wait.
    StreamsRunThrough,
    /// A wait teaches the stream nothing.
    WaitsForNothing,
    /// A wait for an event teaches all that the event's stream has done since, too.
    WaitsForTooMuch,
    /// What the host waited for is not known to what it issues then.
    HostForgets,
    /// A question counts as an edge.
    QueriesOrder,
    /// Everything that has run counts as known.
    AllIsOrdered,
    /// A step's end counts as a barrier.
    StepsSynchronise,
    /// Reads are not remembered.
    ReadsAreForgotten,
    /// Only one stream's reads are remembered.
    OneReaderIsKept,
    /// Writes do not conflict with writes.
    WritesCommute,
    /// Allocations and frees are no accesses.
    FreesAreNothing,
    /// What a freed buffer held counts as written.
    NothingIsUnwritten,
}

#[cfg(test)]
impl Mutation {
    pub const ALL: [Mutation; 12] = [
        Mutation::StreamsRunThrough,
        Mutation::WaitsForNothing,
        Mutation::WaitsForTooMuch,
        Mutation::HostForgets,
        Mutation::QueriesOrder,
        Mutation::AllIsOrdered,
        Mutation::StepsSynchronise,
        Mutation::ReadsAreForgotten,
        Mutation::OneReaderIsKept,
        Mutation::WritesCommute,
        Mutation::FreesAreNothing,
        Mutation::NothingIsUnwritten,
    ];
}

/// Which mistake is made; outside of tests, none ever is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mutant {
    #[cfg(test)]
    of: Option<Mutation>,
}

impl Mutant {
    #[cfg(test)]
    pub fn of(mutation: Option<Mutation>) -> Mutant {
        Mutant { of: mutation }
    }

    #[cfg(test)]
    pub fn is(self, mutation: Mutation) -> bool {
        self.of == Some(mutation)
    }

    #[cfg(not(test))]
    pub const fn is(self, _: Mutation) -> bool {
        false
    }
}
