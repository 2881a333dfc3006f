//! Tests that need an adapter.

use crate::engine::EngineError;

/// What was opened; without an adapter nothing, a skip with its reason, or a failure where
/// `BITPROOF_REQUIRE_ADAPTER=1` asks for one.
pub(crate) fn unless_missing<T>(opened: Result<T, EngineError>) -> Option<T> {
    let reason = match opened {
        Ok(opened) => return Some(opened),
        Err(reason) => reason,
    };
    assert!(
        matches!(reason, EngineError::NoAdapter { .. }),
        "an adapter that fails is no missing one: {reason}"
    );
    assert!(!is_required(), "BITPROOF_REQUIRE_ADAPTER=1, but {reason}");
    eprintln!("SKIPPED, nothing was checked: {reason}");
    None
}

pub(crate) fn is_required() -> bool {
    std::env::var("BITPROOF_REQUIRE_ADAPTER").is_ok_and(|value| value == "1")
}
