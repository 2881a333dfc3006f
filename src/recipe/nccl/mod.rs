//! NCCL's variables as NCCL reads them: the one place that knows what `NCCL_ALGO`, `NCCL_PROTO` and
//! the sizes beside them mean.

mod environment;
mod error;
pub mod judge;
mod list;
#[cfg(test)]
mod tests;

pub use environment::{Environment, SIMULATED};
pub use error::EnvironmentError;

/// NCCL's functions that `NCCL_ALGO` and `NCCL_PROTO` can name (`ncclFuncStr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Function {
    Broadcast,
    Reduce,
    AllGather,
    ReduceScatter,
    AllReduce,
}

impl Function {
    pub const ALL: [Function; 5] = [
        Function::Broadcast,
        Function::Reduce,
        Function::AllGather,
        Function::ReduceScatter,
        Function::AllReduce,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Function::Broadcast => "Broadcast",
            Function::Reduce => "Reduce",
            Function::AllGather => "AllGather",
            Function::ReduceScatter => "ReduceScatter",
            Function::AllReduce => "AllReduce",
        }
    }
}

/// The algorithms of NCCL 2.30 (`ncclAlgoStr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    Tree,
    Ring,
    CollNetDirect,
    CollNetChain,
    Nvls,
    NvlsTree,
    Pat,
}

impl Algorithm {
    pub const ALL: [Algorithm; 7] = [
        Algorithm::Tree,
        Algorithm::Ring,
        Algorithm::CollNetDirect,
        Algorithm::CollNetChain,
        Algorithm::Nvls,
        Algorithm::NvlsTree,
        Algorithm::Pat,
    ];

    /// As `NCCL_ALGO` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Tree => "Tree",
            Algorithm::Ring => "Ring",
            Algorithm::CollNetDirect => "CollNetDirect",
            Algorithm::CollNetChain => "CollNetChain",
            Algorithm::Nvls => "NVLS",
            Algorithm::NvlsTree => "NVLSTree",
            Algorithm::Pat => "PAT",
        }
    }

    /// Its order of additions is modelled (`plan`), wherever ranks run.
    pub const fn modelled(self) -> bool {
        matches!(self, Algorithm::Tree | Algorithm::Ring)
    }

    /// Plans can be made with it, of PAT where each node has one rank.
    pub const fn planned(self) -> bool {
        self.modelled() || matches!(self, Algorithm::Pat)
    }

    /// NCCL has it for `function`.
    pub const fn serves(self, function: Function) -> bool {
        match self {
            Algorithm::Ring => true,
            Algorithm::Tree | Algorithm::CollNetChain | Algorithm::NvlsTree => {
                matches!(function, Function::AllReduce)
            }
            Algorithm::CollNetDirect | Algorithm::Nvls => {
                !matches!(function, Function::Broadcast | Function::Reduce)
            }
            Algorithm::Pat => matches!(function, Function::AllGather | Function::ReduceScatter),
        }
    }
}

/// How NCCL moves data. It decides chunk sizes and channel counts, and with them the rank at which
/// an element's sum starts; from there on, never the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Simple,
    Ll,
    Ll128,
}

impl Protocol {
    pub const ALL: [Protocol; 3] = [Protocol::Simple, Protocol::Ll, Protocol::Ll128];

    /// As `NCCL_PROTO` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Simple => "Simple",
            Protocol::Ll => "LL",
            Protocol::Ll128 => "LL128",
        }
    }
}
