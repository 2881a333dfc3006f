//! One suite for every engine: the same kernels, arenas and faults, and the same bits as the cpu
//! engine with one thread. Without an adapter its part is a skip with its reason; with
//! BITPROOF_REQUIRE_ADAPTER=1 it is a failure.
#![cfg(feature = "wgpu")]

#[path = "../harness/mod.rs"]
mod harness;

mod failures;
mod kernels;
mod recorded;
mod runs;

use bitproof::engine::cpu::CpuEngine;
use bitproof::engine::wgpu::{Devices, WgpuEngine, WgpuOptions};
use bitproof::engine::{Engine, EngineError};

/// The adapter opened as told, or nothing with the reason on standard error.
fn opened(options: &WgpuOptions) -> Option<WgpuEngine> {
    match WgpuEngine::open(options) {
        Ok(engine) => {
            eprintln!("compared with {:?}", engine.identity());
            Some(engine)
        }
        Err(reason) => {
            assert!(
                matches!(reason, EngineError::NoAdapter { .. }),
                "an adapter that fails is no missing one: {reason}"
            );
            let required = std::env::var("BITPROOF_REQUIRE_ADAPTER").is_ok_and(|v| v == "1");
            assert!(!required, "BITPROOF_REQUIRE_ADAPTER=1, but {reason}");
            eprintln!("SKIPPED, nothing was compared: {reason}");
            None
        }
    }
}

/// Whether the engine's bits must be the cpu's. One that is not strict says so itself: what differs
/// is named, and is no failure, but for an adapter in software where one is required.
fn promises_bits(engine: &dyn Engine) -> bool {
    let identity = engine.identity();
    let required = std::env::var("BITPROOF_REQUIRE_ADAPTER").is_ok_and(|v| v == "1");
    let in_software = ["llvmpipe", "swiftshader", "lavapipe"]
        .iter()
        .any(|name| identity.adapter.to_lowercase().contains(name));
    assert!(
        identity.strict || !(required && in_software),
        "BITPROOF_REQUIRE_ADAPTER=1, but {} is not strict",
        identity.adapter
    );
    identity.strict
}

fn adapter() -> Option<WgpuEngine> {
    opened(&WgpuOptions::default())
}

/// The engines that the suite is run on: each part of it takes one of these.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The cpu engine with this many threads.
    Cpu(usize),
    /// The adapter as it is opened by default.
    Adapter,
    /// Arenas copied, as with a graphics card, whatever the adapter is.
    Copied,
    /// Arenas spread over two devices.
    TwoDevices,
}

impl Kind {
    fn open(self) -> Option<Box<dyn Engine>> {
        let options = WgpuOptions::default();
        let options = match self {
            Kind::Cpu(workers) => {
                let engine = CpuEngine::new(workers).expect("this machine has an engine");
                return Some(Box::new(engine));
            }
            Kind::Adapter => options,
            Kind::Copied => WgpuOptions {
                mapped: false,
                ..options
            },
            Kind::TwoDevices => WgpuOptions {
                workers: 2,
                devices: Devices::Fixed(2),
                ..options
            },
        };
        Some(Box::new(opened(&options)?))
    }
}

/// Each part of the suite on one engine.
macro_rules! suite {
    ($($engine:ident: $kind:expr),*) => {
        $(mod $engine {
            crate::suite!(@ $kind,
                recorded::every_shader_gives_the_same_bits,
                runs::memory_operations_agree,
                runs::digests_by_kernels_are_the_hosts,
                runs::training_gives_the_same_bits,
                failures::an_index_outside_is_told_with_its_launch,
                failures::an_index_outside_a_vector_or_a_local_array_is_told,
                failures::what_does_not_fit_is_refused
            );
        })*
    };
    (@ $kind:expr, $($module:ident :: $part:ident),*) => {
        $(#[test]
        fn $part() {
            if let Some(mut engine) = $kind.open() {
                crate::$module::$part(engine.as_mut());
            }
        })*
    };
}
use suite;

suite!(
    cpu: crate::Kind::Cpu(3),
    wgpu: crate::Kind::Adapter,
    wgpu_copied: crate::Kind::Copied,
    wgpu_two_devices: crate::Kind::TwoDevices
);
