//! Reduction plans: trees with rounding points, one builder a file, the selector, hashes.

pub mod all_to_all_sum;
mod canonical;
mod channels;
mod environment;
pub mod gloo;
pub mod local;
pub mod nccl_tree;
pub mod partition;
pub mod ring;
mod scale;
mod selector;
mod shape;
mod tree;
mod walk;

pub use canonical::Digest;
pub use channels::{Channel, Communicator};
pub use environment::{Algorithm, Environment, EnvironmentError, Function};
pub use partition::Protocol;
pub use scale::ScaleError;
pub use selector::{Backend, Collective, PLAN_BASIS, PlanError, Reduction, Request, Selector};
pub use tree::{Arithmetic, Combine, Init, Op, Piece, Plan, Tree};
pub use walk::InvalidPlan;
