//! What is to be recorded.

use std::path::PathBuf;

use crate::trace::native::Level;

/// A recording that a check is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// Is not there yet, or empty.
    pub folder: PathBuf,
    pub level: Level,
    /// The ranks; nothing means all.
    pub ranks: Option<RankSet>,
    /// The first and the last iteration; nothing means all. Set-up goes with the first.
    pub iterations: Option<(u32, u32)>,
    /// The most bytes that records may take.
    pub budget: u64,
    pub hashed: Hashed,
}

/// Where digests are computed: they are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hashed {
    /// On the host, which reads every tensor back.
    #[default]
    OnHost,
    /// By kernels, where the tensors lie.
    OnEngine,
}

impl TraceRequest {
    /// Whether the rank is recorded.
    pub fn takes_rank(&self, rank: u32) -> bool {
        self.ranks.as_ref().is_none_or(|ranks| ranks.has(rank))
    }

    /// What the scenario has not, in words.
    ///
    /// # Errors
    /// Ranks beyond its world, iterations beyond its steps.
    pub fn fits(&self, world: u32, steps: u32) -> Result<(), String> {
        if let Some(beyond) = self
            .ranks
            .as_ref()
            .map(RankSet::last)
            .filter(|rank| *rank >= world)
        {
            return Err(format!(
                "rank {beyond} is to be recorded, and the scenario has ranks 0 to {}",
                world - 1
            ));
        }
        match self.iterations {
            Some((_, last)) if last > steps => Err(format!(
                "iteration {last} is to be recorded, and the scenario has {steps}"
            )),
            _ => Ok(()),
        }
    }
}

/// Ranks as `0,3,8-15` names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankSet(Vec<(u32, u32)>);

impl RankSet {
    /// Whether the rank is among them.
    pub fn has(&self, rank: u32) -> bool {
        let within = |(first, last): &(u32, u32)| (*first..=*last).contains(&rank);
        self.0.iter().any(within)
    }

    fn last(&self) -> u32 {
        self.0.iter().map(|(_, last)| *last).max().unwrap_or(0)
    }
}

/// The first and the last iteration, as `1-2` or `3` names them.
///
/// # Errors
/// What they are not, in words.
pub fn iterations(text: &str) -> Result<(u32, u32), String> {
    match range(text)? {
        (0, _) => Err("iterations are counted from 1".to_string()),
        range => Ok(range),
    }
}

/// `3` or `8-15`.
fn range(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| {
        text.parse::<u32>()
            .map_err(|_| format!("`{text}` is no number"))
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    match first <= last {
        true => Ok((first, last)),
        false => Err(format!("`{text}` ends before it begins")),
    }
}

impl std::str::FromStr for RankSet {
    type Err = String;

    fn from_str(text: &str) -> Result<RankSet, String> {
        let parts = text.split(',').map(|part| range(part.trim()));
        Ok(RankSet(parts.collect::<Result<_, String>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_numbers_and_ranges() {
        let ranks: RankSet = "0,3,8-15".parse().unwrap();
        let found: Vec<u32> = (0..20).filter(|rank| ranks.has(*rank)).collect();
        assert_eq!(found, [0, 3, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(ranks.last(), 15);
        for wrong in ["", "a", "3-1", "1,,2", "-1", "4294967296"] {
            assert!(wrong.parse::<RankSet>().is_err(), "{wrong}");
        }
        assert_eq!(iterations("2-3"), Ok((2, 3)));
        assert!(iterations("0-3").is_err());
    }
}
