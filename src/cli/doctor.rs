//! `bitproof doctor`

use std::collections::BTreeSet;

use clap::Args;

use super::engine::adapter_name;
use super::output::{self, ObjectFormat};
use super::prover;
use crate::diagnostic::escaped;
use crate::engine::self_test::SelfTest;
use crate::engine::{EngineChoice, EngineError};
use crate::kernel::Registry;
use crate::prove::room;
use crate::report::Exit;
use crate::report::doctor::{
    AdapterLine, Asked, Doctor, Examined, Failure, install_command, unset_command,
};

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// How what was found is written to standard output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ObjectFormat,
    /// Only adapters with this in their name, backend or driver; exit code 5 where none has
    #[arg(long, value_name = "NAME", value_parser = adapter_name)]
    adapter: Option<String>,
    /// Exit code 5 where no adapter can be used
    #[arg(long)]
    require_adapter: bool,
}

pub(super) fn run(args: &DoctorArgs) -> Exit {
    // Where it gets too little memory, a driver may end the process.
    let limited = room::too_tight_for_a_driver();
    let listed = guarded(|| match limited {
        Some(_) => Ok(Vec::new()),
        None => Ok(found()),
    });
    let adapters = listed.unwrap_or_else(|failure| {
        let reason = escaped(&failure.reason).into_owned();
        output::talk(&format!("adapters cannot be listed: {reason}"));
        Vec::new()
    });
    let has_adapter = !adapters.is_empty();
    let is_asked = |adapter: &AdapterLine| match &args.adapter {
        Some(part) => adapter.is_called(part),
        None => true,
    };
    let (adapters, others): (Vec<_>, Vec<_>) = adapters.into_iter().partition(is_asked);
    let mut engines = vec![examined("cpu", &EngineChoice::Cpu)];
    engines.extend(on_each(&adapters));
    let asked = Asked {
        any: args.require_adapter,
        name: args.adapter.clone(),
    };
    let mut doctor = Doctor::new(engines, adapters, asked);
    doctor.others = others.iter().map(AdapterLine::label).collect();
    doctor.variables = prover::driver_variables();
    if has_adapter {
        doctor.variables.retain(|set| !set.is_of_folders());
    }
    if !has_adapter && doctor.adapters_built {
        doctor.unset = unset_command(&doctor.variables);
        doctor.limited = limited;
        let os_release = std::fs::read_to_string("/etc/os-release").ok();
        doctor.install = Some(install_command(std::env::consts::OS, os_release.as_deref()));
    }
    let is_written = match args.format {
        ObjectFormat::Human => output::write(&doctor.to_human()),
        ObjectFormat::Json => {
            let value = serde_json::to_value(&doctor).expect("plain data has a JSON form");
            output::write_json(&value)
        }
    };
    match is_written {
        true => doctor.exit(),
        false => Exit::Internal,
    }
}

/// The wgpu engine on each adapter that it can use, once where several have one name.
fn on_each(adapters: &[AdapterLine]) -> Vec<Examined> {
    let mut seen = BTreeSet::new();
    let usable = adapters.iter().filter(|adapter| adapter.refused.is_none());
    let distinct = usable.filter(|adapter| seen.insert(adapter.label()));
    let on = |adapter: &AdapterLine| {
        let adapter = Some(adapter.label());
        examined("wgpu", &EngineChoice::Wgpu { adapter })
    };
    distinct.map(on).collect()
}

/// Opens an engine and tests it.
fn examined(name: &'static str, choice: &EngineChoice) -> Examined {
    let failed = |error: EngineError| Failure {
        reason: error.to_string(),
        // Its help is this very command.
        help: match error {
            EngineError::NoAdapter { .. } => None,
            error => Some(error.help(choice)),
        },
    };
    let mut engine = match guarded(|| choice.open(1).map_err(failed)) {
        Ok(engine) => engine,
        Err(failure) => return Examined::unopened(name, failure),
    };
    let identity = engine.identity();
    let tested = guarded(|| {
        let kernels = Registry::new().map_err(|error| Failure::from(error.to_string()))?;
        SelfTest::run(engine.as_mut(), &kernels).map_err(failed)
    });
    Examined::new(name, identity, tested)
}

#[cfg(not(feature = "wgpu"))]
fn found() -> Vec<AdapterLine> {
    Vec::new()
}

/// Every adapter that a driver shows, best first.
#[cfg(feature = "wgpu")]
fn found() -> Vec<AdapterLine> {
    let adapters = crate::engine::wgpu::adapters().into_iter();
    let line = |adapter: crate::engine::wgpu::AdapterInfo| {
        let features = [
            (adapter.passthrough, "PASSTHROUGH_SHADERS"),
            (adapter.strict, "strict float controls"),
            (adapter.mappable, "MAPPABLE_PRIMARY_BUFFERS"),
        ];
        let features = features.into_iter().filter(|(has, _)| *has);
        AdapterLine {
            name: adapter.name,
            backend: adapter.backend,
            kind: adapter.kind,
            driver: adapter.driver,
            features: features.map(|(_, name)| name).collect(),
            limits: vec![
                (
                    "bytes of a storage binding",
                    adapter.storage_binding_bytes_max,
                ),
                (
                    "storage buffers of a kernel",
                    adapter.storage_buffers_max.into(),
                ),
                ("invocations of a workgroup", adapter.invocations_max.into()),
                ("workgroups along an axis", adapter.workgroups_max.into()),
            ],
            refused: adapter.refused,
        }
    };
    adapters.map(line).collect()
}

/// wgpu panics where a driver breaks its word; here that is a finding, too.
fn guarded<T>(run: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no reason given");
        Err(format!("the driver failed: {text}").into())
    })
}
