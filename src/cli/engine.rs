//! `--engine` and `--adapter`.

use clap::Args;

use super::output::talk;
use crate::engine::{EngineChoice, POOL_VARIABLE};

#[derive(Debug, Args)]
pub(super) struct EngineArgs {
    /// What runs the kernels [default: cpu, or wgpu with --adapter]
    #[arg(long, value_enum, value_name = "ENGINE")]
    engine: Option<EngineKind>,
    /// The adapter of the wgpu engine: part of its name, backend or driver [default: the best]
    #[arg(long, value_name = "NAME", value_parser = adapter_name)]
    adapter: Option<String>,
    /// Threads that run kernels; results do not depend on it [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EngineKind {
    /// Cranelift-compiled kernels on this machine's cores, strict IEEE arithmetic
    Cpu,
    /// A Vulkan, Metal or DX12 adapter; `bitproof doctor` shows which there are
    Wgpu,
    /// A hardware adapter that can be kept from rewriting, if there is one, else cpu; says which
    Auto,
}

impl EngineArgs {
    pub fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        self.workers.map_or_else(cores, usize::from)
    }

    /// The engine that is meant.
    ///
    /// # Errors
    /// An adapter for an engine that has none.
    pub fn choice(&self) -> Result<EngineChoice, String> {
        let adapter = self.adapter.clone();
        match (self.engine, adapter) {
            (None | Some(EngineKind::Cpu), None) => Ok(EngineChoice::Cpu),
            (Some(EngineKind::Cpu), Some(_)) => {
                Err("--adapter is for --engine wgpu: the cpu engine has no adapter".to_owned())
            }
            (None | Some(EngineKind::Wgpu), adapter) => Ok(EngineChoice::Wgpu { adapter }),
            (Some(EngineKind::Auto), Some(_)) => {
                Err("--adapter names an adapter, and --engine auto looks for one".to_owned())
            }
            (Some(EngineKind::Auto), None) => {
                let (choice, why) = EngineChoice::best();
                talk(&format!("engine: {why}"));
                Ok(choice)
            }
        }
    }

    /// Begins this process again with the variable that keeps Mesa's software driver from starting
    /// threads of its own (`LP_NUM_THREADS=0`), which it reads once: bitproof then opens it once a
    /// core, and a dispatch costs a microsecond instead of tens. Only where the user has not set
    /// the variable, and only for the wgpu engine. Where it cannot be done nothing but speed is
    /// lost.
    pub fn prepare_process(&self) {
        let uses_adapter = !matches!(
            (self.engine, &self.adapter),
            (Some(EngineKind::Cpu), _) | (None, None)
        );
        if uses_adapter && std::env::var_os(POOL_VARIABLE).is_none() {
            begin_again();
        }
    }
}

#[cfg(unix)]
fn begin_again() {
    use std::os::unix::process::CommandExt;
    if let Ok(program) = std::env::current_exe() {
        let mut again = std::process::Command::new(program);
        again
            .args(std::env::args_os().skip(1))
            .env(POOL_VARIABLE, "0");
        // Returns only when it failed.
        let _ = again.exec();
    }
}

#[cfg(not(unix))]
fn begin_again() {}

/// A part of an adapter's name. An empty one is a part of all names: as a variable that is not set
/// would choose another adapter in silence, it is refused.
pub(super) fn adapter_name(text: &str) -> Result<String, &'static str> {
    match text.trim().is_empty() {
        true => Err("a part of a name, backend or driver is expected; leave it out for the best"),
        false => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(engine: Option<EngineKind>, adapter: Option<&str>) -> Result<EngineChoice, String> {
        let adapter = adapter.map(str::to_owned);
        let workers = None;
        EngineArgs {
            engine,
            adapter,
            workers,
        }
        .choice()
    }

    #[test]
    fn an_empty_name_is_no_adapter() {
        assert!(adapter_name("").is_err() && adapter_name(" \t").is_err());
        assert_eq!(adapter_name("llvm"), Ok("llvm".to_owned()));
    }

    #[test]
    fn an_adapter_means_its_engine() {
        let wgpu = |adapter: Option<&str>| {
            let adapter = adapter.map(str::to_owned);
            Ok(EngineChoice::Wgpu { adapter })
        };
        assert_eq!(choice(None, None), Ok(EngineChoice::Cpu));
        assert_eq!(choice(None, Some("llvm")), wgpu(Some("llvm")));
        assert_eq!(choice(Some(EngineKind::Wgpu), None), wgpu(None));
        assert!(choice(Some(EngineKind::Cpu), Some("llvm")).is_err());
        assert!(choice(Some(EngineKind::Auto), Some("llvm")).is_err());
    }
}
