//! Receiver of a plugin's output for unit tests.
use std::io;

use schemas::{
    manifest::AcceptedState,
    runner::{Artifact, Check},
};
use serde_json::{Map, Value};

use super::contract::{PlanRecord, Sink, Stream};
use crate::{journal::Stop, state::StateMark};

/// Records lines, redacts the given secrets, and ignores all reports.
#[derive(Default)]
pub(crate) struct TestSink {
    pub lines: Vec<String>,
    pub secrets: &'static [&'static str],
    /// True if the shim withholds output.
    pub withheld: bool,
}

impl Sink for TestSink {
    fn phase(&mut self, _: &str) {}
    fn line(&mut self, _: Stream, bytes: &[u8]) {
        self.lines.push(String::from_utf8_lossy(bytes).into_owned());
    }
    fn child(&mut self, _: u32, _: Stop) -> io::Result<()> {
        Ok(())
    }
    fn redacted(&mut self, text: &str) -> Option<String> {
        let redact = |text: String, secret: &&str| text.replace(secret, "***");
        let redacts = !self.withheld && !self.secrets.is_empty();
        redacts.then(|| self.secrets.iter().fold(text.to_owned(), redact))
    }
    fn plan(&mut self, _: PlanRecord) -> io::Result<()> {
        Ok(())
    }
    fn outputs(&mut self, _: Map<String, Value>, _: Map<String, Value>) -> io::Result<()> {
        Ok(())
    }
    fn state(&mut self, _: &str, _: &StateMark, _: Option<String>) -> io::Result<()> {
        Ok(())
    }
    fn state_accepted(&mut self, _: &str, _: &AcceptedState) -> io::Result<()> {
        Ok(())
    }
    fn checks(&mut self, _: Vec<Check>) -> io::Result<()> {
        Ok(())
    }
    fn artifact(&mut self, _: Artifact) -> io::Result<()> {
        Ok(())
    }
}
