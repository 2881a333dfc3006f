//! What `bitproof doctor` found: engines with their self-tests, adapters, and what hides them.

mod advice;
mod human;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use advice::{DRIVER_VARIABLES, Variable, install_command, unset_command};

use super::{Exit, SCHEMA_VERSION};
use crate::engine::EngineIdentity;
use crate::engine::self_test::SelfTest;

/// One adapter. Its texts are the driver's: they may hold anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AdapterLine {
    pub name: String,
    /// The interface it is reached by, as in `Vulkan`.
    pub backend: String,
    /// As in `DiscreteGpu`, or `Cpu` for one in software.
    pub kind: String,
    pub driver: String,
    /// Those that the engine has a use for, by wgpu's names.
    pub features: Vec<&'static str>,
    pub limits: Vec<(&'static str, u64)>,
    /// Why the engine cannot use it.
    pub refused: Option<String>,
}

impl AdapterLine {
    /// The name that an engine on this adapter has in its identity.
    pub fn label(&self) -> String {
        format!("{} ({})", self.name, self.backend)
    }

    /// Whether it is meant by a part of its name, backend or driver, in letters of either size.
    pub fn is_called(&self, part: &str) -> bool {
        let part = part.to_lowercase();
        let texts = [&self.name, &self.backend, &self.driver];
        texts.iter().any(|text| text.to_lowercase().contains(&part))
    }
}

/// The state of this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Doctor {
    pub schema_version: u32,
    pub version: &'static str,
    pub engines: Vec<Examined>,
    pub adapters: Vec<AdapterLine>,
    /// Whether this build can use adapters at all.
    pub adapters_built: bool,
    /// Variables that are set and decide which drivers are seen.
    pub variables: Vec<Variable>,
    /// Names of adapters that are there and that were not asked for.
    pub others: Vec<String>,
    /// What shows drivers that variables may hide, where no adapter was found.
    pub unset: Option<String>,
    /// A limit of the process that a driver may not fit in, where no adapter was found.
    pub limited: Option<String>,
    /// What installs a software adapter here, where no adapter was found.
    pub install: Option<String>,
    /// The adapter that was asked for.
    pub asked: Asked,
}

/// What the command line asks of adapters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// There must be one that can be used.
    pub any: bool,
    /// A part of its name, backend or driver.
    pub name: Option<String>,
}

/// One engine, and what its self-test gave.
#[derive(Clone, Debug, Serialize)]
pub struct Examined {
    pub engine: &'static str,
    /// `None` where the engine could not be opened.
    pub identity: Option<EngineIdentity>,
    pub self_test: Option<SelfTest>,
    /// Why there is no self-test.
    pub failure: Option<Failure>,
    pub arithmetic: Arithmetic,
}

/// Why an engine was not tested, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub reason: String,
    pub help: Option<&'static str>,
}

impl From<String> for Failure {
    fn from(reason: String) -> Failure {
        Failure { reason, help: None }
    }
}

/// What a self-test means for a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arithmetic {
    /// Every expression is exact, and the engine forbids its compiler to rewrite any other.
    Strict,
    /// Every expression is exact, but nothing forbids the compiler to rewrite others.
    Unguarded,
    /// Some expression has other bits.
    Differs,
    /// Nothing was tested.
    Unknown,
}

impl Examined {
    /// An engine that was opened, and the outcome of its self-test.
    pub fn new(
        engine: &'static str,
        identity: EngineIdentity,
        tested: Result<SelfTest, Failure>,
    ) -> Examined {
        let arithmetic = match &tested {
            Err(_) => Arithmetic::Unknown,
            Ok(test) if !test.strict() => Arithmetic::Differs,
            Ok(_) if identity.strict => Arithmetic::Strict,
            Ok(_) => Arithmetic::Unguarded,
        };
        let failure = tested.as_ref().err().cloned();
        Examined {
            engine,
            identity: Some(identity),
            self_test: tested.ok(),
            failure,
            arithmetic,
        }
    }

    /// An engine that could not be opened.
    pub fn unopened(engine: &'static str, failure: Failure) -> Examined {
        Examined {
            engine,
            identity: None,
            self_test: None,
            failure: Some(failure),
            arithmetic: Arithmetic::Unknown,
        }
    }
}

impl Doctor {
    pub fn new(engines: Vec<Examined>, adapters: Vec<AdapterLine>, asked: Asked) -> Doctor {
        Doctor {
            schema_version: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            engines,
            adapters,
            adapters_built: cfg!(feature = "wgpu"),
            variables: Vec::new(),
            others: Vec::new(),
            unset: None,
            limited: None,
            install: None,
            asked,
        }
    }

    /// How `bitproof doctor` ends: the default engine must be strict, and an adapter that was
    /// asked for must have run its self-test.
    pub fn exit(&self) -> Exit {
        let cpu = self.engines.iter().find(|engine| engine.engine == "cpu");
        if cpu.is_none_or(|cpu| cpu.arithmetic != Arithmetic::Strict) {
            return Exit::Internal;
        }
        match self.missing() {
            Some(_) => Exit::NothingChecked,
            None => Exit::Proved,
        }
    }

    /// What was asked for and is not there.
    fn missing(&self) -> Option<String> {
        let asked = &self.asked;
        let named = |adapter: &&AdapterLine| match &asked.name {
            Some(part) => adapter.is_called(part),
            None => true,
        };
        let name = asked.name.as_ref();
        if !asked.any && name.is_none() {
            return None;
        }
        if !self.adapters.iter().any(|adapter| named(&adapter)) {
            return Some(match name {
                Some(name) => format!("no adapter is called `{name}`"),
                None => "no adapter was found".to_owned(),
            });
        }
        let is_tested = |adapter: &AdapterLine| self.tested(adapter).is_some();
        match self.adapters.iter().filter(named).any(is_tested) {
            true => None,
            false => Some("the adapter that was asked for could not be tested".to_owned()),
        }
    }

    /// The engine that ran its self-test on the adapter.
    fn tested(&self, adapter: &AdapterLine) -> Option<&Examined> {
        let label = adapter.label();
        self.engines.iter().find(|engine| {
            let identity = engine.identity.as_ref();
            engine.self_test.is_some() && identity.is_some_and(|known| known.adapter == label)
        })
    }
}
