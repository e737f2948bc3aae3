//! The journal: what this runner was asked, did and refused, one JSON line each, on disk before it counts.
//!
//! ```text
//! claiming ─▶ claimed ─▶ spawning ─▶ spawned ─▶ exited ─▶ stated ─▶ reported
//!     │           └─▶ refused ─▶ stated ─▶ reported
//!     └─▶ not_claimed                        (abandoned: no longer ours)
//! ```
//!
//! The supervisor, each shim and the customer's commands append to one file, one after the other: each holds the lock
//! `journal.lock` while it looks up the last link and writes the next line with one write. It is the customer's record:
//! nothing in it is secret, and nothing of it is ever removed. When the file has become long, it is put aside under the
//! time of that moment and a new one is begun, whose first line goes on with the chain. The new file begins with what is
//! still needed: entries of claims that are not over, and what is known of each component's state.
mod examine;
mod export;
mod fact;
mod frame;
mod head;
mod position;
mod read;

use std::{
    fs,
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use domain::ids::ExecutionId;

pub use self::{
    examine::{Chain, Examined, Wrong, examine, examine_all, examine_current},
    export::{Exported, export, verify},
    fact::{Entry, Fact, Stop},
    frame::Link,
    head::{Heads, open as open_head, sign as sign_head},
    position::Position,
    read::{Line, files, read, read_all, texts},
};
use crate::{
    data::{self, Data},
    host,
};

/// A journal that is open for writing.
#[derive(Debug, Clone)]
pub struct Journal {
    data: Data,
    path: PathBuf,
    /// The last line could not be written.
    broken: Arc<AtomicBool>,
}

/// Disk that is kept for the journal when everything else has filled it.
const RESERVE: u64 = 1024 * 1024;
/// A journal longer than this is put aside when nothing is open.
const LONG: u64 = 4 * 1024 * 1024;
/// How long a line waits for the one that another process is writing. That one may have been stopped: to wait for ever
/// would stop everybody.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);
/// The last link is looked for in so much of the file's end first.
const TAIL: u64 = 16 * 1024;

impl Journal {
    /// The journal of this directory, begun if there is none.
    pub fn open(data: &Data) -> io::Result<Self> {
        let path = data.path("journal.ndjson");
        let journal = Journal { data: data.clone(), path, broken: Arc::default() };
        let lock = journal.lock()?;
        if data::append(&journal.path)?.seek(SeekFrom::End(0))? == 0 {
            let journal_id = ulid::Ulid::new().to_string();
            let genesis = Link::genesis(&journal_id);
            let first = Entry { at: host::now(), fact: Fact::Opened { journal_id } };
            journal.append(&frame::seal(&first, &genesis)?.0)?;
            data::sync_parent(&journal.path)?;
        }
        drop(lock);
        Ok(journal)
    }

    /// Put a long journal aside. The new file begins with the facts that `carried` finds in the entries so far.
    pub fn turn(&self, carried: impl FnOnce(Vec<Entry>) -> Vec<Fact>) -> io::Result<()> {
        let _one_at_a_time = self.lock()?;
        if fs::metadata(&self.path)?.len() < LONG {
            return Ok(());
        }
        let mut lines = Vec::new();
        let last = self.end(&mut lines)?;
        if !lines.is_empty() {
            self.append(&lines.join(&b'\n'))?;
        }
        let first = Fact::Opened { journal_id: self.id()? };
        let (mut text, mut link) = (Vec::new(), last);
        for fact in [first].into_iter().chain(carried(self.read()?)) {
            let (line, next) = frame::seal(&Entry { at: host::now(), fact }, &link)?;
            text.extend_from_slice(&line);
            text.push(b'\n');
            link = next;
        }
        if text.len() as u64 > LONG / 2 {
            // Too much is open: the next file would be long again at once.
            return Ok(());
        }
        // At every moment one of the two is there under its name, and no line is in neither.
        fs::hard_link(
            &self.path,
            self.path.with_file_name(format!("journal.{}.ndjson", ulid::Ulid::new())),
        )?;
        data::replace(&self.path, &text)
    }

    /// Write a fact; when this returns it survives any crash.
    pub fn write(&self, fact: Fact) -> io::Result<()> {
        let written = self.write_next(&Entry { at: host::now(), fact });
        self.broken.store(written.is_err(), Ordering::Relaxed);
        written
    }

    fn write_next(&self, entry: &Entry) -> io::Result<()> {
        let _one_at_a_time = self.lock()?;
        let mut lines = Vec::new();
        let last = self.end(&mut lines)?;
        lines.push(frame::seal(entry, &last)?.0);
        self.append_somehow(&lines.join(&b'\n'))
    }

    /// The last link. What has to be written before the next entry so that there is one is put into `lines`.
    fn end(&self, lines: &mut Vec<Vec<u8>>) -> io::Result<Link> {
        if let Some(link) = self.last_link()? {
            return Ok(link);
        }
        // A program that knows of no chain has written since it was there, or has begun this journal.
        let (last, unlinked) = examine::unlinked(read::each(&self.data)?)?;
        // A journal that lost its name is written all the same: the customer's switch is in it.
        let journal_id = self.id().unwrap_or_default();
        let last = last.unwrap_or_else(|| Link::genesis(&journal_id));
        let fact = examine::begun(journal_id, &unlinked);
        let (line, link) = frame::seal(&Entry { at: host::now(), fact }, &last)?;
        lines.push(line);
        Ok(link)
    }

    /// The link of the last whole line. `None`: that line is in no chain.
    fn last_link(&self) -> io::Result<Option<Link>> {
        let mut file = fs::File::open(&self.path)?;
        let length = file.seek(SeekFrom::End(0))?;
        let mut window = TAIL;
        loop {
            let from = length.saturating_sub(window);
            file.seek(SeekFrom::Start(from))?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            for line in text.rsplit(|byte| *byte == b'\n') {
                if let Some((_, link)) = frame::open(line) {
                    return Ok(Some(link));
                }
                // What a crash cut short says nothing. The window may begin within a line: that says nothing either.
                if serde_json::from_slice::<Entry>(line).is_ok() {
                    return Ok(None);
                }
            }
            if from == 0 {
                return Ok(None);
            }
            window = window.saturating_mul(8);
        }
    }

    /// Keep all others out, for as long as the answer lives. The kernel gives it back when a process dies.
    fn lock(&self) -> io::Result<fs::File> {
        let file = data::append(&self.path.with_file_name("journal.lock"))?;
        let until = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(fs::TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(LOOK),
                Err(fs::TryLockError::WouldBlock) => {
                    let why = "another process holds the journal and does not go on";
                    return Err(io::Error::new(ErrorKind::TimedOut, why));
                }
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    fn append_somehow(&self, lines: &[u8]) -> io::Result<()> {
        match self.append(lines) {
            // The reserve is for exactly this; it is made again when there is room.
            Err(error)
                if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
            {
                data::remove(&self.reserve()).and_then(|()| self.append(lines))
            }
            written => written,
        }
    }

    /// Whether the last line could be written.
    pub fn is_writable(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    /// Make the reserve again if it was used, and see whether lines can be written again.
    pub fn mend(&self) -> io::Result<()> {
        self.keep_reserve()?;
        if self.is_writable() {
            return Ok(());
        }
        // An empty line is read over.
        let written = self.lock().and_then(|_held| self.append_somehow(b""));
        self.broken.store(written.is_err(), Ordering::Relaxed);
        written
    }

    fn append(&self, lines: &[u8]) -> io::Result<()> {
        // Opened each time: it may have been put aside since the last one.
        let mut file = data::append(&self.path)?;
        // A line that a crash or a full disk cut short must not swallow this one.
        let cut_short: &[u8] = if is_whole(&mut file)? { b"" } else { b"\n" };
        file.write_all(&[cut_short, lines, b"\n"].concat())?;
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

    /// Whether this execution was left to the server. Each side writes first and reads then: of a shim that says who
    /// it is and an agent that gives it up at the same time, at least one sees the other.
    pub fn gave_up(&self, wanted: ExecutionId) -> io::Result<bool> {
        let entries = self.read()?;
        let claim = entries.iter().find_map(|entry| {
            let Fact::Claimed { execution, claim_id, .. } = &entry.fact else { return None };
            (*execution == wanted).then_some(claim_id)
        });
        if claim.is_none() && read::files(&self.data)?.len() > 1 {
            // It was not carried over from the file before, so nobody waits for it any more.
            return Ok(true);
        }
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

#[cfg(test)]
mod tests;
