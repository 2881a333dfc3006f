//! The shaders' own elementary functions, run by the cpu engine, against references in f64.
//!
//! A sample of 2^20 values takes every sign and exponent; with `BITPROOF_EXHAUSTIVE=1` all 2^32
//! values are tried.

mod bench;
mod elementary;
mod philox;
mod rounding;
