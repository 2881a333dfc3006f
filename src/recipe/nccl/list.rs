//! The lists of `NCCL_ALGO` and `NCCL_PROTO`: `[function:][^]token,token;function:...`.

use std::collections::{BTreeMap, BTreeSet};

use super::{EnvironmentError, Function, error::joined};

/// What one function may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice<T> {
    pub allowed: BTreeSet<T>,
    /// By `^`: what is allowed was not asked for.
    pub by_exclusion: bool,
}

/// The functions that a list speaks of.
pub(super) type Lists<T> = BTreeMap<Function, Choice<T>>;

/// Reads a list as NCCL's `parseList` does (`src/graph/tuning.cc`, since 2.30
/// `src/tuning/cost_model.cc`): names in any case, but no spaces; only the first part may lack a
/// function, and sets all of them; later parts overrule earlier ones; `^` stands once, before a
/// part's tokens, and takes them all away from the full set.
pub(super) fn parse<T: Copy + Ord>(
    variable: &'static str,
    value: &str,
    known: &[(&'static str, T)],
) -> Result<Lists<T>, EnvironmentError> {
    let mut lists = Lists::new();
    let mut at = 0;
    for part in value.split(';') {
        let is_first = at == 0;
        at += part.len() + 1;
        if part.is_empty() {
            continue;
        }
        // As strtok cuts: empty pieces are passed over, and a third piece is never asked for.
        let mut pieces = part.split(':').filter(|piece| !piece.is_empty());
        let head = pieces.next().unwrap_or(part);
        let (functions, tokens) = match pieces.next() {
            Some(tokens) => (vec![function(variable, head)?], tokens),
            None if is_first => (Function::ALL.to_vec(), head),
            None => {
                let part = part.to_owned();
                return Err(EnvironmentError::NoFunction { variable, part });
            }
        };
        let choice = choice(variable, tokens, known)?;
        for function in functions {
            lists.insert(function, choice.clone());
        }
    }
    Ok(lists)
}

fn choice<T: Copy + Ord>(
    variable: &'static str,
    tokens: &str,
    known: &[(&'static str, T)],
) -> Result<Choice<T>, EnvironmentError> {
    let (by_exclusion, tokens) = match tokens.strip_prefix('^') {
        Some(tokens) => (true, tokens),
        None => (false, tokens),
    };
    let mut named = BTreeSet::new();
    for token in tokens.split(',').filter(|token| !token.is_empty()) {
        let found = known
            .iter()
            .find(|(name, _)| token.eq_ignore_ascii_case(name));
        let (_, value) = found.ok_or_else(|| EnvironmentError::UnknownToken {
            variable,
            token: token.to_owned(),
            expected: joined(known.iter().map(|(name, _)| *name)),
        })?;
        named.insert(*value);
    }
    let all = known.iter().map(|(_, value)| *value);
    let allowed = all.filter(|value| named.contains(value) != by_exclusion);
    Ok(Choice {
        allowed: allowed.collect(),
        by_exclusion,
    })
}

fn function(variable: &'static str, name: &str) -> Result<Function, EnvironmentError> {
    let mut all = Function::ALL.into_iter();
    all.find(|function| name.eq_ignore_ascii_case(function.name()))
        .ok_or_else(|| EnvironmentError::UnknownFunction {
            variable,
            token: name.to_owned(),
            expected: joined(Function::ALL.iter().map(|function| function.name())),
        })
}
