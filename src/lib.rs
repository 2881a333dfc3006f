//! bitproof: a single-node simulator of large-scale parallel training for determinism testing.
//!
//! A run is a graph of nodes. What may vary on a cluster, such as the order in which a collective
//! or an atomic adds, is an explicit choice at a node, and a *reference run* takes the first value
//! of each.
//!
//! **Theorem.** Suppose that all variation is a listed choice, that a node's bits follow from its
//! inputs and its choice, and that what it may choose follows from its inputs. If at every node of
//! the reference run, on that run's inputs, every admissible choice gives the reference's bits,
//! then every admissible run has these bits at every node, by induction in topological order. So
//! one run, with each node tested alone, stands for all runs: the cost is a sum over nodes, where
//! trying runs would cost a product.
//!
//! # In a program
//!
//! [`check`] takes a [`Scenario`]: a [`Recipe`] and what may vary around it.
//!
//! ```
//! use bitproof::{CheckOptions, Grade, LocalOrder, Recipe, Scenario};
//!
//! # fn main() -> Result<(), bitproof::Error> {
//! // Four data-parallel ranks, two microbatches each; every order fixed.
//! let recipe = Recipe {
//!     world_size: 4,
//!     global_batch_size: 8,
//!     ..Recipe::small()
//! };
//! let ordered = bitproof::check(&Scenario::of(recipe.clone())?, CheckOptions::default())?;
//! assert_eq!(ordered.grade(), Grade::Proved, "{ordered}");
//!
//! // Rows of the embedding gradient land as they come, as atomics do it.
//! let mut racy = recipe;
//! racy.determinism.embedding_backward = LocalOrder::Arrival;
//! let scenario = Scenario::of(racy)?;
//! let outcome = bitproof::check(&scenario, CheckOptions::default())?;
//! assert_eq!(outcome.grade(), Grade::Divergent, "{outcome}");
//! let first = outcome.first_divergence.as_ref().expect("a witness");
//! assert_eq!(first.variable.name, "embedding_backward");
//!
//! // The token that the report ends with gives the same witness again.
//! let token = outcome.replay.as_deref().expect("a difference can be replayed");
//! let again = bitproof::replay(&scenario, token, CheckOptions::default())?;
//! assert_eq!(again.witness, outcome.witness);
//! # Ok(())
//! # }
//! ```
//!
//! Property tests over recipes: the module `strategies`, behind the feature of that name (on by
//! default).
//!
//! # Where to read
//!
//! Each folder uses those above it in this list, and none below:
//!
//! 1. [`diagnostic`] (what is wrong in a file), [`numerics`] (types, exact sums, the ladder of
//!    proofs for one sum);
//! 2. what a job is: [`topology`], [`recipe`], [`job`], then [`plan`] (which order each collective
//!    adds in), [`fault`] and [`scenario`];
//! 3. how it runs: [`kernel`] (WGSL), [`engine`] (executes it), [`world`] (ranks, streams, memory,
//!    folds), [`model`] and [`train`];
//! 4. what comes of it: [`prove`], [`report`], [`cli`].
//!
//! # The path of one check
//!
//! `cli::check` reads a [`Scenario`] and gives it to [`prove::check::check`], which makes
//! a `Session` and runs the training program of [`train::program`] on every virtual rank
//! ([`world::World::run`]). Before a fold is executed, the world shows it to its observer:
//! `on_fold` of [`prove::sweep::Sweep`] tests it in every order it may take. Oracles and planted
//! faults run next, and `prove::certificate` makes one [`prove::outcome::Outcome`] of it all, which
//! [`report`] prints.

use prove::{Silent, Token, room};

pub mod cli;
pub mod diagnostic;
pub mod engine;
pub mod fault;
pub mod job;
pub mod kernel;
pub mod model;
pub mod numerics;
pub mod plan;
pub mod prove;
pub mod recipe;
pub mod report;
pub mod scenario;
pub mod topology;
pub mod trace;
pub mod train;
pub mod world;

pub use diagnostic::InvalidInput;
pub use prove::CheckOptions;
pub use prove::outcome::Outcome;
pub use prove::session::CheckError;
pub use recipe::{Determinism, LocalOrder, Recipe};
#[cfg(feature = "strategies")]
pub use scenario::strategies;
pub use scenario::{AllocationFile, Free, Grade, OracleKind, Scenario};

/// Why there is no outcome. What a check finds is never an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recipe, the scenario or the token breaks a rule, or the machine is too small for it.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The check began and could not be carried out.
    #[error(transparent)]
    Check(#[from] CheckError),
}

/// Checks a scenario, as `bitproof check` does: a reference run of which every choice point is
/// tested, a second run, restarts, and planted faults.
///
/// The outcome has a [`Grade`] for each verdict, the first node where bits part with its witness,
/// and the token that [`replay`] takes. Displayed, it is the report of the command line.
///
/// Nothing is read or written but the scenario's own data, and the time of a check grows with
/// `steps` and the recipe's sizes: milliseconds for [`Recipe::small`].
///
/// # Errors
/// A scenario whose fields do not go together (they may have been changed since it was made), that
/// compares nothing, or that needs more memory than this machine or its adapter has
/// ([`CheckError::TooLarge`]); and failures of the machine.
pub fn check(scenario: &Scenario, options: CheckOptions) -> Result<Outcome, Error> {
    runnable(scenario, &options)?;
    Ok(prove::check(scenario.clone(), options, &Silent)?)
}

/// Reproduces the one difference that a token of [`Outcome::replay`] names.
///
/// # Errors
/// A token that is damaged or of another scenario or build, and all that [`check`] refuses.
pub fn replay(scenario: &Scenario, token: &str, options: CheckOptions) -> Result<Outcome, Error> {
    runnable(scenario, &options)?;
    let token = Token::decode(token).map_err(|error| {
        let finding = diagnostic::Diagnostic::error("token", error.to_string());
        InvalidInput::from(finding.with_help("copy the whole line"))
    })?;
    Ok(prove::replay(scenario.clone(), &token, options, &Silent)?)
}

/// Whether a check of the scenario can begin, and could find something.
fn runnable(scenario: &Scenario, options: &CheckOptions) -> Result<(), InvalidInput> {
    scenario.validate()?;
    if scenario.compares_nothing() {
        let message = "no oracle compares anything: `oracles` is empty, or RES has no restart";
        return Err(diagnostic::Diagnostic::error("nothing-checked", message).into());
    }
    match room::refusal(scenario, options) {
        Some(finding) => Err(finding.into()),
        None => Ok(()),
    }
}
