// SPDX-License-Identifier: Apache-2.0
//! Live progress on standard error: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Progress over a number of steps.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    start: Instant,
}

impl Progress {
    /// Over `steps` steps.
    #[must_use]
    pub fn over(steps: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(steps as u64);
            let template = "{msg:48!} {wide_bar:.cyan/blue} {pos}/{len} {elapsed}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { bar, start: Instant::now() }
    }

    pub fn begin(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None => eprintln!("{:>4} s  {what}", self.start.elapsed().as_secs()),
        }
    }

    /// A step has ended.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Something that the reader has to know.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("NOTE: {text}")),
            None => eprintln!("NOTE: {text}"),
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
