//! Progress bars on standard error; none where it is no terminal.

use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::prove::Progress;

/// A bar for the stage at hand, with the time left.
pub(super) struct Bars {
    is_quiet: bool,
    bar: Mutex<ProgressBar>,
}

const TEMPLATE: &str = "{msg:24} {bar:30} {pos}/{len} {elapsed} (about {eta} left)";
const TICK: Duration = Duration::from_millis(250);

impl Bars {
    pub fn new(is_quiet: bool) -> Self {
        Bars {
            is_quiet,
            bar: Mutex::new(ProgressBar::hidden()),
        }
    }

    fn bar(&self) -> std::sync::MutexGuard<'_, ProgressBar> {
        // A bar holds nothing that a panic elsewhere could have left half done.
        self.bar
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Progress for Bars {
    fn begin(&self, stage: &str, total: u64) {
        if self.is_quiet {
            return;
        }
        // `stderr()` hides itself where standard error is no terminal.
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(TEMPLATE).expect("a fixed template");
        bar.set_style(style);
        bar.set_message(stage.to_string());
        bar.enable_steady_tick(TICK);
        *self.bar() = bar;
    }

    fn advance(&self, units: u64) {
        self.bar().inc(units);
    }

    fn end(&self) {
        self.bar().finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_well_formed_and_stages_may_repeat() {
        let bars = Bars::new(false);
        for _ in 0..2 {
            bars.begin("reference run", 4);
            bars.advance(4);
            bars.end();
        }
    }
}
