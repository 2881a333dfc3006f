//! The threads of an engine. Each has its own: rayon's global ones panic where none can be had.

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::EngineError;

/// Threads for `workers` at once; `None` for one, which is the calling thread.
///
/// # Errors
/// Threads that the system does not give.
pub(super) fn pool(workers: usize, name: &'static str) -> Result<Option<ThreadPool>, EngineError> {
    if workers <= 1 {
        return Ok(None);
    }
    let builder = ThreadPoolBuilder::new()
        .num_threads(workers)
        .thread_name(move |number| format!("bitproof-{name}-{number}"));
    had(builder.build()).map(Some)
}

fn had(built: Result<ThreadPool, ThreadPoolBuildError>) -> Result<ThreadPool, EngineError> {
    built.map_err(|error| EngineError::Threads {
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineChoice;

    #[test]
    fn threads_that_cannot_be_had_are_an_error_with_a_way_out() {
        let builder = ThreadPoolBuilder::new().num_threads(2);
        let refused = builder.spawn_handler(|_| Err(std::io::Error::other("no more")));
        let error = had(refused.build()).expect_err("no thread");
        assert_eq!(error.to_string(), "worker threads cannot be had: no more");
        assert!(error.help(&EngineChoice::Cpu).contains("ulimit -u"));
        assert!(pool(1, "test").expect("none is needed").is_none());
        let two = pool(2, "test").expect("two threads").expect("a pool");
        assert_eq!(two.current_num_threads(), 2);
    }
}
