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
//! `cli::check` reads a [`scenario::Scenario`] and gives it to [`prove::check::check`], which makes
//! a `Session` and runs the training program of [`train::program`] on every virtual rank
//! ([`world::World::run`]). Before a fold is executed, the world shows it to its observer:
//! `on_fold` of [`prove::sweep::Sweep`] tests it in every order it may take. Oracles and planted
//! faults run next, and `prove::certificate` makes one [`prove::outcome::Outcome`] of it all, which
//! [`report`] prints.

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
pub mod train;
pub mod world;
