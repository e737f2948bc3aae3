//! The journal: what this runner was asked, did and refused, one JSON line each, on disk before it counts.
//!
//! ```text
//! claiming ─▶ claimed ─▶ spawning ─▶ spawned ─▶ exited ─▶ reported
//!     │           └─▶ refused ─▶ reported
//!     └─▶ not_claimed                        (abandoned: no longer ours)
//! ```
//!
//! The supervisor and each shim append to one file, each line with one write: the kernel keeps such lines whole.
//! It is the customer's record too: nothing in it is secret, and nothing of it is ever removed. When nothing is
//! open and the file has become long, it is put aside under the time of that moment and a new one is begun.
use std::{
    fs,
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use chrono::{DateTime, Utc};
use domain::{
    digest::Digest,
    ids::{ExecutionId, JobId, SessionId},
};
use schemas::{
    manifest::Fence,
    moment,
    runner::{Exit, JobClass, JobKind, RefusedBy},
};
use serde::{Deserialize, Serialize};

use crate::{
    data::{self, Data},
    host::{self, Process},
};

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When, by the host's clock.
    #[serde(with = "moment")]
    pub at: DateTime<Utc>,
    /// What.
    #[serde(flatten)]
    pub fact: Fact,
}

/// What can have happened on this runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Fact {
    /// The first line: a journal without it, or with another id, is another journal.
    Opened { journal_id: String },
    /// A session with the server began.
    SessionOpened { session: SessionId, generation: u64 },
    /// A claim is about to be sent.
    Claiming { job: JobId, claim_id: String },
    /// The claim was not granted.
    NotClaimed { job: JobId, claim_id: String, why: String },
    /// The claim was granted.
    Claimed { job: JobId, execution: ExecutionId, claim_id: String, attempt: u32 },
    /// What was claimed was verified, and what it is.
    Verified {
        execution: ExecutionId,
        manifest: Digest,
        kind: JobKind,
        class: JobClass,
        plugin: String,
        fence: Fence,
    },
    /// This runner does not do it.
    Refused { job: JobId, execution: ExecutionId, by: RefusedBy, rule: String, detail: String },
    /// A shim is about to be started.
    Spawning { job: JobId, execution: ExecutionId },
    /// The shim runs.
    Spawned { job: JobId, execution: ExecutionId, process: Process },
    /// The shim's plugin started a child, which leads a process group; and how it is stopped without losing what
    /// it has done.
    Child {
        execution: ExecutionId,
        process: Process,
        #[serde(default)]
        stop: Stop,
    },
    /// Somebody asked for an end.
    Cancelling { execution: ExecutionId, reason: String, force: bool },
    /// The work ended.
    Exited { job: JobId, execution: ExecutionId, exit: Exit },
    /// The server knows.
    Reported { job: JobId, execution: ExecutionId },
    /// The customer's rules want a person's word first.
    Asked { job: JobId, execution: ExecutionId },
    /// A person at the customer's has spoken.
    Answered { execution: ExecutionId, yes: bool, reason: String },
    /// It is no longer ours; its files are kept.
    Abandoned { job: JobId, claim_id: String, why: String },
    /// The log's signed head that this runner has seen and believes.
    Checkpoint { note: String },
    /// The customer accepts a log that an operator restored.
    EpochAccepted { epoch: u64 },
    /// This runner signs with another key from now on.
    Rekeyed { identity_key: String },
    /// The customer switched the runner off.
    Disabled { reason: String },
    /// The customer switched it on.
    Enabled {},
    /// A line of a later version.
    #[serde(other)]
    Unknown,
}

/// The polite way to end a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The signal's name: `SIGINT`.
    pub signal: String,
    /// Milliseconds until it is killed.
    pub grace_ms: u64,
}

impl Default for Stop {
    fn default() -> Self {
        Stop { signal: "SIGTERM".into(), grace_ms: 300_000 }
    }
}

/// A journal that is open for writing.
#[derive(Debug, Clone)]
pub struct Journal {
    path: PathBuf,
    /// The last line could not be written.
    broken: Arc<AtomicBool>,
}

/// Disk that is kept for the journal when everything else has filled it.
const RESERVE: u64 = 1024 * 1024;
/// A journal longer than this is put aside when nothing is open.
const LONG: u64 = 4 * 1024 * 1024;

impl Journal {
    /// The journal of this directory, begun if there is none.
    pub fn open(data: &Data) -> io::Result<Self> {
        let path = data.path("journal.ndjson");
        let length = data::append(&path)?.seek(SeekFrom::End(0))?;
        let journal = Journal { path, broken: Arc::default() };
        if length == 0 {
            journal.write(Fact::Opened { journal_id: ulid::Ulid::new().to_string() })?;
            data::sync_parent(&journal.path)?;
        }
        Ok(journal)
    }

    /// Put a long journal aside. Only when nothing is open: what a shim writes must not be looked for there.
    pub fn turn(&self) -> io::Result<()> {
        if fs::metadata(&self.path)?.len() < LONG {
            return Ok(());
        }
        let first = Entry { at: host::now(), fact: Fact::Opened { journal_id: self.id()? } };
        let mut line = serde_json::to_vec(&first)?;
        line.push(b'\n');
        // At every moment one of the two is there under its name, and no line is in neither.
        fs::hard_link(
            &self.path,
            self.path.with_file_name(format!("journal.{}.ndjson", ulid::Ulid::new())),
        )?;
        data::replace(&self.path, &line)
    }

    /// Write a fact; when this returns it survives any crash.
    pub fn write(&self, fact: Fact) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Entry { at: host::now(), fact })?;
        line.push(b'\n');
        self.write_line(&line)
    }

    fn write_line(&self, line: &[u8]) -> io::Result<()> {
        let written = match self.append(line.to_vec()) {
            // The reserve is for exactly this; it is made again when there is room.
            Err(error)
                if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
            {
                data::remove(&self.reserve()).and_then(|()| self.append(line.to_vec()))
            }
            written => written,
        };
        self.broken.store(written.is_err(), Ordering::Relaxed);
        written
    }

    /// Whether the last line could be written.
    pub fn is_writable(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    /// Make the reserve again if it was used, and see whether lines can be written again.
    pub fn mend(&self) -> io::Result<()> {
        self.keep_reserve()?;
        // An empty line is read over.
        if self.is_writable() { Ok(()) } else { self.write_line(b"\n") }
    }

    fn append(&self, mut line: Vec<u8>) -> io::Result<()> {
        // Opened each time: it may have been put aside since the last one.
        let mut file = data::append(&self.path)?;
        if !is_whole(&mut file)? {
            // A line that a crash or a full disk cut short must not swallow this one.
            line.insert(0, b'\n');
        }
        file.write_all(&line)?;
        file.sync_data()
    }

    fn reserve(&self) -> PathBuf {
        self.path.with_file_name("journal.reserve")
    }

    /// Keep some disk for what has to be written when there is no other.
    pub fn keep_reserve(&self) -> io::Result<()> {
        let kept = fs::metadata(self.reserve()).map_or(0, |file| file.len());
        if kept < RESERVE {
            data::replace(&self.reserve(), &vec![0; RESERVE as usize])
        } else {
            Ok(())
        }
    }

    /// Bytes so far.
    pub fn length(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.path)?.len())
    }

    /// What was written after the first `length` bytes.
    pub fn since(&self, length: u64) -> io::Result<Vec<Entry>> {
        let mut file = fs::File::open(&self.path)?;
        file.seek(SeekFrom::Start(length))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(parse(&text))
    }

    /// Whether this execution was left to the server. Each side writes first and reads then: of a shim that says who
    /// it is and an agent that gives it up at the same time, at least one sees the other.
    pub fn gave_up(&self, wanted: ExecutionId) -> io::Result<bool> {
        let entries = self.read()?;
        let claim = entries.iter().find_map(|entry| {
            let Fact::Claimed { execution, claim_id, .. } = &entry.fact else { return None };
            (*execution == wanted).then_some(claim_id)
        });
        Ok(entries.iter().any(|entry| {
            matches!(&entry.fact, Fact::Abandoned { claim_id, .. } if Some(claim_id) == claim)
        }))
    }

    /// Everything in it.
    pub fn read(&self) -> io::Result<Vec<Entry>> {
        read(&self.path)
    }

    /// Its name: the first line's, which is lost with the journal.
    pub fn id(&self) -> io::Result<String> {
        let named = self.read()?.into_iter().find_map(|entry| {
            if let Fact::Opened { journal_id } = entry.fact { Some(journal_id) } else { None }
        });
        named.ok_or_else(|| io::Error::other("the journal has lost its first line"))
    }
}

fn is_whole(file: &mut fs::File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == [b'\n'])
}

/// Read a journal; a line that a crash cut short is left out.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    Ok(parse(&fs::read(path)?))
}

fn parse(text: &[u8]) -> Vec<Entry> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// A line as it is on disk, and what it says.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub text: String,
    pub entry: Entry,
}

/// Everything that was ever written, oldest first.
pub fn read_all(data: &Data) -> io::Result<Vec<Line>> {
    let mut aside: Vec<PathBuf> = fs::read_dir(data.root())?
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("journal.") && name.ends_with(".ndjson") && name != "journal.ndjson"
        })
        .collect();
    // Their names are times.
    aside.sort_unstable();
    aside.push(data.path("journal.ndjson"));
    let mut lines = Vec::new();
    for path in aside {
        let text = fs::read(&path)?;
        lines.extend(text.split(|byte| *byte == b'\n').filter_map(|line| {
            let entry = serde_json::from_slice(line).ok()?;
            Some(Line { text: String::from_utf8(line.to_vec()).ok()?, entry })
        }));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> (tempfile::TempDir, Data, Journal) {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let journal = Journal::open(&data).unwrap();
        (dir, data, journal)
    }

    #[test]
    fn a_journal_keeps_its_name_and_its_lines() {
        let (_dir, data, journal) = journal();
        let fact = Fact::Disabled { reason: "holiday".into() };
        journal.write(fact.clone()).unwrap();
        let again = Journal::open(&data).unwrap();
        assert_eq!(again.id().unwrap(), journal.id().unwrap());
        assert_eq!(again.read().unwrap().last().unwrap().fact, fact);
    }

    #[test]
    fn a_line_that_a_crash_cut_short_takes_nothing_with_it() {
        let (_dir, data, journal) = journal();
        data::append(&journal.path).unwrap().write_all(br#"{"at":"2026-01-01T00:00:0"#).unwrap();
        let again = Journal::open(&data).unwrap();
        again.write(Fact::Enabled {}).unwrap();
        let facts: Vec<_> = again.read().unwrap().into_iter().map(|entry| entry.fact).collect();
        assert_eq!(facts.len(), 2);
        assert_eq!(facts[1], Fact::Enabled {});
    }

    #[test]
    fn a_journal_that_took_no_line_is_tried_again_and_has_its_reserve_back() {
        // given a disk that takes nothing
        let (_dir, data, journal) = journal();
        let aside = data.path("aside");
        fs::rename(&journal.path, &aside).unwrap();
        fs::create_dir(&journal.path).unwrap();
        assert!(journal.is_writable());
        assert!(journal.write(Fact::Enabled {}).is_err());
        assert!(journal.mend().is_err() && !journal.is_writable());
        // when it takes lines again
        fs::remove_dir(&journal.path).unwrap();
        fs::rename(&aside, &journal.path).unwrap();
        // then that is noticed, and nothing was said by it
        journal.mend().unwrap();
        assert!(journal.is_writable());
        assert_eq!(journal.read().unwrap().len(), 1);
        assert_eq!(fs::metadata(journal.reserve()).unwrap().len(), RESERVE);
    }

    #[test]
    fn a_line_of_a_later_version_is_read_over() {
        let (_dir, _data, journal) = journal();
        let line = b"{\"at\":\"2026-01-01T00:00:00Z\",\"entry\":\"danced\",\"to\":1}\n";
        data::append(&journal.path).unwrap().write_all(line).unwrap();
        assert_eq!(journal.read().unwrap()[1].fact, Fact::Unknown);
    }

    #[test]
    fn a_long_journal_is_put_aside_and_still_read() {
        let (_dir, data, journal) = journal();
        journal.turn().unwrap();
        let reason = "x".repeat(1024 * 1024);
        for _ in 0..5 {
            journal.write(Fact::Disabled { reason: reason.clone() }).unwrap();
        }
        let id = journal.id().unwrap();
        journal.turn().unwrap();
        assert_eq!(journal.read().unwrap().len(), 1);
        assert_eq!(journal.id().unwrap(), id);
        journal.write(Fact::Enabled {}).unwrap();
        assert_eq!(read_all(&data).unwrap().len(), 8);
    }
}
