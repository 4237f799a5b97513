//! The progress bar on standard error, which is only drawn on a terminal.

use std::sync::atomic::{AtomicU32, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use teatime::{Progress, Run};

use crate::text;

/// A progress bar that is erased when it is dropped.
#[derive(Debug)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// Creates a bar for `total` items, named by `noun`.
    pub(crate) fn new(what: &str, total: u64, noun: &str) -> Self {
        let bar = ProgressBar::new(total).with_message(what.to_owned());
        let template = format!("{{msg}} [{{bar:40}}] {{percent:>3}} % of {{human_len}} {noun}, {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// Creates a bar, and returns it with a run that updates it.
    pub(crate) fn over(run: &Run, what: &'static str, total: u64, noun: &str) -> (Self, Run) {
        let bar = Self::new(what, total, noun);
        let run = run.clone().progress(bar.progress(what));
        (bar, run)
    }

    /// Advances the bar by a number of variants, from any thread.
    pub(crate) fn advance(&self, variants: u64) {
        self.0.inc(variants);
    }

    /// Returns the progress callback for a long call of the library, with one bar for each pass.
    pub(crate) fn progress(&self, what: &'static str) -> Progress {
        let bar = self.0.clone();
        let shown = AtomicU32::new(u32::MAX);
        Progress::new(move |status| {
            if shown.swap(status.pass, Ordering::Relaxed) != status.pass {
                bar.reset_eta();
                let residual = status.residual.map(|r| format!(", residual {}", text::general(r, 2)));
                let pass = format!(" pass {} of at most {}", status.pass, status.passes);
                let pass = if status.passes > 1 { pass } else { String::new() };
                bar.set_message(format!("{what}{pass}{}", residual.unwrap_or_default()));
            }
            bar.set_length(status.total);
            bar.set_position(status.rows);
            if status.passes == 1 && status.rows == status.total {
                bar.set_message(format!("{what}, finishing"));
            }
        })
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
