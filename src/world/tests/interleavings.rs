//! Every order in which a program's commands can run, by a machine of its own that knows neither
//! clocks nor tickets.

use std::collections::{BTreeMap, BTreeSet};

use super::program::{CELLS, EVENTS, PINNED, Place, Program, STREAMS, Verb};

/// What a verb became when the host issued it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    /// To a memory word.
    Set(usize, u32),
    Copy(usize, usize),
    /// Nothing, once all of these have run.
    After(Vec<usize>),
}

/// A command on a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Queued {
    stream: u32,
    verb: usize,
    act: Act,
}

/// The machine between two commands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    host: usize,
    skips: bool,
    queued: Vec<Queued>,
    done: BTreeSet<usize>,
    words: Vec<u32>,
    seen: Vec<u32>,
    events: [Option<usize>; EVENTS],
    /// The live block: its word, stream, users.
    block: Option<(usize, u32, BTreeSet<u32>)>,
    /// Free words by stream, each with what its next owner waits for.
    free: BTreeMap<u32, Vec<(usize, Vec<usize>)>>,
}

/// All orders of a program.
#[derive(Debug, Default)]
pub struct Orders {
    pub results: BTreeSet<Vec<u32>>,
    /// (a, b): a can run while b has not.
    before: BTreeSet<(usize, usize)>,
    pub has_several: bool,
}

impl Orders {
    pub fn of(program: &Program) -> Orders {
        let mut orders = Orders::default();
        let mut known = BTreeSet::new();
        let mut open = vec![State::new()];
        while let Some(state) = open.pop() {
            let next = state.next(program, &mut orders);
            orders.has_several |= next.len() > 1;
            if next.is_empty() {
                orders.results.insert(state.result());
            }
            for state in next {
                if known.insert(state.clone()) {
                    open.push(state);
                }
            }
        }
        orders
    }

    /// Whether `a` can run before `b`.
    pub fn happens(&self, a: usize, b: usize) -> bool {
        self.before.contains(&(a, b))
    }
}

impl State {
    fn new() -> State {
        State {
            host: 0,
            skips: false,
            queued: Vec::new(),
            done: BTreeSet::new(),
            words: vec![0; CELLS],
            seen: Vec::new(),
            events: [None; EVENTS],
            block: None,
            free: BTreeMap::new(),
        }
    }

    fn result(&self) -> Vec<u32> {
        let cells = self.words[..CELLS].iter();
        cells.chain(&self.seen).copied().collect()
    }

    /// Every state that one command leads to: the host's next, or a stream's.
    fn next(&self, program: &Program, orders: &mut Orders) -> Vec<State> {
        let mut next = Vec::new();
        if let Some(verb) = program.verbs.get(self.host) {
            let mut state = self.clone();
            if state.issue(verb) {
                self.note(self.host, program, orders);
                state.host += 1;
                next.push(state);
            }
        }
        for stream in 0..STREAMS {
            let place = self
                .queued
                .iter()
                .position(|queued| queued.stream == stream);
            let Some(place) = place.filter(|place| self.can_run(*place)) else {
                continue;
            };
            let mut state = self.clone();
            let queued = state.queued.remove(place);
            self.note(queued.verb, program, orders);
            match queued.act {
                Act::Set(to, value) => state.words[to] = value,
                Act::Copy(from, to) => state.words[to] = state.words[from],
                Act::After(_) => {}
            }
            state.done.insert(queued.verb);
            next.push(state);
        }
        next
    }

    fn can_run(&self, place: usize) -> bool {
        match &self.queued[place].act {
            Act::After(all) => all.iter().all(|one| self.done.contains(one)),
            _ => true,
        }
    }

    /// `verb` runs now: whatever is queued, or not issued yet, comes after it.
    fn note(&self, verb: usize, program: &Program, orders: &mut Orders) {
        let queued = self.queued.iter().map(|queued| queued.verb);
        let later = self.host..program.verbs.len();
        for other in queued.chain(later).filter(|other| *other != verb) {
            orders.before.insert((verb, other));
        }
    }

    /// The host comes by `verb`; false when it has to wait.
    fn issue(&mut self, verb: &Verb) -> bool {
        if std::mem::take(&mut self.skips) {
            return true;
        }
        match *verb {
            Verb::Set { stream, to, value } => self.queue(stream, Act::Set(self.at(to), value)),
            Verb::Copy { stream, from, to } => {
                let (from, to) = (self.at(from), self.at(to));
                if from != to {
                    self.queue(stream, Act::Copy(from, to));
                }
            }
            Verb::Record { stream, event } => {
                self.queue(stream, Act::After(Vec::new()));
                self.events[event] = Some(self.host);
            }
            Verb::Wait { stream, event } => {
                let all = self.events[event].into_iter().collect();
                self.queue(stream, Act::After(all));
            }
            Verb::Sync { stream } => return self.is_idle(stream),
            Verb::HostSet { value } => self.words[PINNED] = value,
            Verb::HostGet => self.seen.push(self.words[PINNED]),
            Verb::Query { event } => {
                let asked = self.events[event];
                self.skips = asked.is_some_and(|record| !self.done.contains(&record));
            }
            Verb::Alloc { stream } => self.alloc(stream),
            Verb::User { stream } => {
                if let Some((_, own, users)) = &mut self.block
                    && *own != stream
                {
                    users.insert(stream);
                }
            }
            Verb::Free => self.free(),
            Verb::EndStep => return self.is_idle(0),
        }
        true
    }

    fn alloc(&mut self, stream: u32) {
        if self.block.is_some() {
            return;
        }
        let reused = self.free.get_mut(&stream).and_then(Vec::pop);
        let (word, users) = reused.unwrap_or((self.words.len(), Vec::new()));
        if word == self.words.len() {
            self.words.push(0);
        }
        self.queue(stream, Act::After(users));
        self.block = Some((word, stream, BTreeSet::new()));
    }

    fn free(&mut self) {
        let Some((word, stream, users)) = self.block.take() else {
            return;
        };
        let queued = self.queued.iter();
        let by_users = queued.filter(|queued| users.contains(&queued.stream));
        let wait = by_users.map(|queued| queued.verb).collect();
        self.queue(stream, Act::After(Vec::new()));
        self.free.entry(stream).or_default().push((word, wait));
    }

    fn is_idle(&self, stream: u32) -> bool {
        !self.queued.iter().any(|queued| queued.stream == stream)
    }

    fn queue(&mut self, stream: u32, act: Act) {
        let verb = self.host;
        self.queued.push(Queued { stream, verb, act });
    }

    fn at(&self, place: Place) -> usize {
        match (place, &self.block) {
            (Place::Cell(cell), _) => cell,
            (Place::Block, Some((word, ..))) => *word,
            (Place::Block, None) => PINNED - 1,
        }
    }
}
