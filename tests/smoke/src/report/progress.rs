// SPDX-License-Identifier: Apache-2.0
//! Live progress: bars on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Interval of the output of a step without a terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// A step with a known duration.
#[derive(Debug)]
pub struct Step {
    name: String,
    bar: Option<ProgressBar>,
    start: Instant,
    said: Instant,
    length: Duration,
}

impl Step {
    #[must_use]
    pub fn begin(name: &str, length: Duration) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(length.as_millis() as u64);
            let template = "{msg:64!} {wide_bar:.cyan/blue} {elapsed}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(name.to_owned());
            bar
        });
        if bar.is_none() {
            println!("{name} …");
        }
        let now = Instant::now();
        Self { name: name.to_owned(), bar, start: now, said: now, length }
    }

    pub fn tick(&mut self, now: &str) {
        let elapsed = self.start.elapsed().min(self.length);
        match &self.bar {
            Some(bar) => {
                bar.set_position(elapsed.as_millis() as u64);
                bar.set_message(format!("{}: {now}", self.name));
            }
            None if self.said.elapsed() >= PLAIN_INTERVAL => {
                self.said = Instant::now();
                println!("  {:>3.0} s  {now}", elapsed.as_secs_f64());
            }
            None => {}
        }
    }

    pub fn end(self, result: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            println!("{}: {result}", self.name);
        } else {
            println!("  {result}");
        }
    }
}
