//! Reduction plans: trees with rounding points, one builder a file, the selector, hashes.
//!
//! Two placements whose plans have equal hashes give equal bits, whatever is summed:
//! ```
//! use bitproof::numerics::Dtype;
//! use bitproof::plan::{Backend, Collective, Environment, Reduction, Request, Selector};
//! use bitproof::topology::Allocation;
//!
//! let plan = |hosts: &str| {
//!     let file = format!("name = \"example\"\nhosts = {hosts}");
//!     let allocation = Allocation::from_toml(&file).unwrap();
//!     let environment = Environment::parse([("NCCL_ALGO", "Ring")]).unwrap();
//!     let request = Request {
//!         backend: Backend::Nccl,
//!         members: &[0, 1, 2, 3],
//!         collective: Collective::ReduceScatter,
//!         dtype: Dtype::Bf16,
//!         elements: 4,
//!         reduction: Reduction::Sum,
//!     };
//!     Selector::new(allocation, environment).plan(&request).unwrap()
//! };
//! let (here, there) = (plan("[[0, 1], [2, 3]]"), plan("[[0, 2], [1, 3]]"));
//! assert!(!here.same_bits(&there));
//! let name = |rank: u32| format!("x{rank}");
//! assert_eq!(here.expression_at(0, &name), "bf16(bf16(bf16(x1 + x2) + x3) + x0)");
//! assert_eq!(there.expression_at(0, &name), "bf16(bf16(bf16(x2 + x1) + x3) + x0)");
//! ```

pub mod all_to_all_sum;
mod arranged;
mod build;
mod canonical;
mod channels;
mod diff;
pub mod gloo;
pub mod identify;
pub mod local;
pub mod nccl_tree;
pub mod open_mpi;
pub mod partition;
pub mod pat;
mod request;
pub mod ring;
mod scale;
mod selector;
mod shape;
mod tree;
mod walk;

pub use arranged::{Carrier, arranged};
pub use build::CarriedOut;
pub use canonical::Digest;
pub use channels::{Channel, Communicator};
pub use request::{Backend, Collective, OPEN_MPI_BASIS, PLAN_BASIS, PlanError, Reduction, Request};
pub use scale::{ScaleError, scaled_together};
pub use selector::Selector;
pub use tree::{Arithmetic, Combine, Init, Op, Piece, Plan, Tree};
pub use walk::InvalidPlan;

pub use crate::recipe::nccl::{Algorithm, Environment, EnvironmentError, Function, Protocol};
