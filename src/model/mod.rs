//! A byte-level GPT, in the shape of Llama (RMSNorm, SwiGLU, rotary positions) or of GPT-3
//! (LayerNorm, biases, GELU, learned positions, a tied output layer), sharded as Megatron-LM does:
//! vocab-parallel embedding and head, column- and row-parallel linears, sequence parallelism. One
//! layer a file, each with its forward, its backward and its shapes.
//!
//! Activations are tokens-major `[seq, batch, hidden]`: token `t` stands at position `t / batch`
//! of sample `t % batch`. Sequence parallelism splits the tokens into contiguous blocks, which is
//! Megatron's split of the first dimension.

mod attention;
mod cross_entropy;
mod cuda_graph;
mod dropout;
mod embedding;
mod gpt;
mod head;
mod linear;
mod mlp;
mod norm;
mod offload;
mod parameter;
mod pass;
mod recompute;
mod rope;
mod shape;
mod stage;
mod tensor_parallel;
mod transformer_layer;

pub use cross_entropy::LossFactor;
pub use dropout::{Generators, RESTORE_RNG, RNG_WORDS};
pub use gpt::{Ends, Gpt, Saved};
pub use parameter::{Parameter, ParameterId, ParameterStore, Partition, Role, stage_parameters};
pub use pass::{ParameterHooks, Pass};
pub use recompute::{Recompute, Selective};
pub use rope::rope_tables;
pub use shape::{HEAD_DIM_MAX, ModelShape, ModuleOrder, Orders, ShapeError};
pub use stage::{Scratch, Stage};
