//! Journal of this runner: claims, actions and refusals, one JSON line each. A line is on disk when
//! [`Journal::write`] returns.
//!
//! ```text
//! claiming ─▶ claimed ─▶ spawning ─▶ spawned ─▶ exited ─▶ statement_signed ─▶ reported
//!     │           └─▶ refused ─▶ statement_signed ─▶ reported
//!     └─▶ claim_rejected                     (abandoned: left to the server)
//! ```
//!
//! The supervisor, each shim and the customer's commands append to one file. Each holds the lock
//! `journal.lock` while it reads the last link and writes the next line with one write.
//!
//! The journal is the customer's record. The runner never removes entries. A long file is rotated:
//! it gets a name with the time, and a new file begins. The first line of the new file continues
//! the chain. After that line come copies of the entries that are still needed: those of open
//! claims, and the known state of each component.
mod event;
mod examine;
mod export;
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
    event::{Entry, JournalEvent, Stop},
    examine::{Chain, ChainError, VerifiedJournal, examine, examine_all, examine_current},
    export::{Exported, export, verify},
    frame::Link,
    head::{Heads, open as open_head, sign as sign_head},
    position::Position,
    read::{Line, files, read, read_all, texts},
};
use crate::{
    data::{self, Data},
    host, ids,
};

/// Journal that is open for writing.
#[derive(Debug, Clone)]
pub struct Journal {
    data: Data,
    path: PathBuf,
    /// True if the last write failed.
    broken: Arc<AtomicBool>,
}

/// Bytes of disk space that are reserved for entries on a full disk.
const RESERVE: u64 = 1024 * 1024;
/// Length in bytes from which a journal file is rotated.
const ROTATION_BYTES: u64 = 4 * 1024 * 1024;
/// Longest wait for the lock. A suspended process must not block other writers indefinitely.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_INTERVAL: Duration = Duration::from_millis(2);
/// Bytes at the end of the file that the search for the last link reads first.
const TAIL: u64 = 16 * 1024;

impl Journal {
    /// Opens the journal of this directory. Writes the first line if the file is absent or empty.
    pub fn open(data: &Data) -> io::Result<Self> {
        let path = data.path("journal.ndjson");
        let journal = Journal { data: data.clone(), path, broken: Arc::default() };
        let lock = journal.lock()?;
        if data::append(&journal.path)?.seek(SeekFrom::End(0))? == 0 {
            let journal_id = ids::new_ulid().to_string();
            let genesis = Link::genesis(&journal_id);
            let first = Entry { at: host::now(), event: JournalEvent::Opened { journal_id } };
            journal.append(&frame::encode(&first, &genesis)?.0)?;
            data::sync_parent(&journal.path)?;
        }
        drop(lock);
        Ok(journal)
    }

    /// Rotates the journal file if it has at least [`ROTATION_BYTES`]. `carried` selects the
    /// entries that the new file repeats. Does not rotate if they exceed half of that size.
    pub fn rotate(&self, carried: impl FnOnce(Vec<Entry>) -> Vec<JournalEvent>) -> io::Result<()> {
        let _one_at_a_time = self.lock()?;
        if fs::metadata(&self.path)?.len() < ROTATION_BYTES {
            return Ok(());
        }
        let mut lines = Vec::new();
        let last = self.end(&mut lines)?;
        if !lines.is_empty() {
            self.append(&lines.join(&b'\n'))?;
        }
        let first = JournalEvent::Opened { journal_id: self.id()? };
        let (mut text, mut link) = (Vec::new(), last);
        for event in [first].into_iter().chain(carried(self.read()?)) {
            let (line, next) = frame::encode(&Entry { at: host::now(), event }, &link)?;
            text.extend_from_slice(&line);
            text.push(b'\n');
            link = next;
        }
        if text.len() as u64 > ROTATION_BYTES / 2 {
            // Too many entries are still needed: the next file would be rotated again at once.
            return Ok(());
        }
        // Link before the replacement: `journal.ndjson` exists at all times, and every line is in
        // one of the two files.
        fs::hard_link(
            &self.path,
            self.path.with_file_name(format!("journal.{}.ndjson", ids::new_ulid())),
        )?;
        data::replace(&self.path, &text)
    }

    /// Writes an entry. After a successful return, the entry survives a crash.
    pub fn write(&self, event: JournalEvent) -> io::Result<()> {
        let written = self.write_next(&Entry { at: host::now(), event });
        self.broken.store(written.is_err(), Ordering::Relaxed);
        written
    }

    fn write_next(&self, entry: &Entry) -> io::Result<()> {
        let _one_at_a_time = self.lock()?;
        let mut lines = Vec::new();
        let last = self.end(&mut lines)?;
        lines.push(frame::encode(entry, &last)?.0);
        self.append_with_reserve(&lines.join(&b'\n'))
    }

    /// Returns the last link of the chain. If the last line has no link, adds a line that starts or
    /// continues the chain to `lines`, which the caller must write first.
    fn end(&self, lines: &mut Vec<Vec<u8>>) -> io::Result<Link> {
        if let Some(link) = self.last_link()? {
            return Ok(link);
        }
        // A program without the hash chain wrote the last lines, or began this journal.
        let (last, unlinked) = examine::unlinked(read::each(&self.data)?)?;
        // A journal without an id is still written: the customer must be able to record that the
        // runner is disabled.
        let journal_id = self.id().unwrap_or_default();
        let last = last.unwrap_or_else(|| Link::genesis(&journal_id));
        let event = examine::chain_started(journal_id, &unlinked);
        let (line, link) = frame::encode(&Entry { at: host::now(), event }, &last)?;
        lines.push(line);
        Ok(link)
    }

    /// Returns the link of the last complete line. Returns `None` if that line is not in the chain,
    /// or if no line is complete.
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
                if let Some((_, link)) = frame::decode(line) {
                    return Ok(Some(link));
                }
                // An incomplete line is skipped. The window may also begin within a line.
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

    /// Locks the journal until the returned file is closed. The kernel releases the lock when a
    /// process dies.
    fn lock(&self) -> io::Result<fs::File> {
        let file = data::append(&self.path.with_file_name("journal.lock"))?;
        let until = Instant::now() + LOCK_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(fs::TryLockError::WouldBlock) if Instant::now() < until => {
                    thread::sleep(LOCK_INTERVAL)
                }
                Err(fs::TryLockError::WouldBlock) => {
                    let why = "cannot lock the journal: another process holds the lock; retry, and end that process if it hangs";
                    return Err(io::Error::new(ErrorKind::TimedOut, why));
                }
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    fn append_with_reserve(&self, lines: &[u8]) -> io::Result<()> {
        match self.append(lines) {
            // On a full disk, deletes the reserve file to free space for the lines. `keep_reserve`
            // writes the file again.
            Err(error)
                if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
            {
                data::remove(&self.reserve()).and_then(|()| self.append(lines))
            }
            written => written,
        }
    }

    /// Returns true unless the last write failed.
    pub fn is_writable(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    /// Restores the reserve. After a failed write, also checks whether lines can be written again.
    pub fn recover(&self) -> io::Result<()> {
        self.keep_reserve()?;
        if self.is_writable() {
            return Ok(());
        }
        // Readers skip an empty line.
        let written = self.lock().and_then(|_held| self.append_with_reserve(b""));
        self.broken.store(written.is_err(), Ordering::Relaxed);
        written
    }

    fn append(&self, lines: &[u8]) -> io::Result<()> {
        // The file is opened for each write, because it may have been rotated.
        let mut file = data::append(&self.path)?;
        // After a crash or on a full disk, the last line may be incomplete. Do not append to it.
        let cut_short: &[u8] = if ends_with_newline(&mut file)? { b"" } else { b"\n" };
        file.write_all(&[cut_short, lines, b"\n"].concat())?;
        file.sync_data()
    }

    fn reserve(&self) -> PathBuf {
        self.path.with_file_name("journal.reserve")
    }

    /// Reserves disk space for entries on a full disk.
    pub fn keep_reserve(&self) -> io::Result<()> {
        let size = fs::metadata(self.reserve()).map_or(0, |file| file.len());
        if size < RESERVE {
            data::replace(&self.reserve(), &vec![0; RESERVE as usize])
        } else {
            Ok(())
        }
    }

    /// Returns whether the agent abandoned this execution, or its claim is no longer open. Shim and
    /// agent each write their own entry before they read. If shim and agent write at the same time,
    /// at least one of them sees both entries.
    pub fn is_abandoned(&self, execution_id: ExecutionId) -> io::Result<bool> {
        let entries = self.read()?;
        let claim = entries.iter().find_map(|entry| {
            let JournalEvent::Claimed { execution, claim_id, .. } = &entry.event else {
                return None;
            };
            (*execution == execution_id).then_some(claim_id)
        });
        if claim.is_none() && read::files(&self.data)?.len() > 1 {
            // The claim was not copied from the previous file, so it is no longer open.
            return Ok(true);
        }
        Ok(entries.iter().any(|entry| {
            matches!(&entry.event, JournalEvent::Abandoned { claim_id, .. } if Some(claim_id) == claim)
        }))
    }

    /// Returns all entries of the current file.
    pub fn read(&self) -> io::Result<Vec<Entry>> {
        read(&self.path)
    }

    /// Returns the journal id, which is in the first line.
    pub fn id(&self) -> io::Result<String> {
        let id = self.read()?.into_iter().find_map(|entry| {
            if let JournalEvent::Opened { journal_id } = entry.event {
                Some(journal_id)
            } else {
                None
            }
        });
        id.ok_or_else(|| io::Error::other("cannot read the journal id: the first line is missing"))
    }
}

fn ends_with_newline(file: &mut fs::File) -> io::Result<bool> {
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
