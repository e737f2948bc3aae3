//! Line of the journal on disk, with its link in the chain.
//!
//! ```text
//! {"at":"2026-…","entry":"claimed", … ,"n":17,"chain":"<64 hexadecimal digits>"}
//! └────────────── the entry's bytes ───────┘                                   └┘
//! ```
//!
//! The hash covers the line without its last member, byte for byte. The link comes last, so an
//! incomplete line has no link and is not an entry.
use std::io;

use proof::{Hash, journal::next};
use serde::Serialize;

use super::Entry;

const NUMBER: &[u8] = b",\"n\":";
const LINK: &[u8] = b",\"chain\":\"";
const END: &[u8] = b"\"}";
const HEX: usize = 64;

/// Number of an entry, and the hash of all entries up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Number of the entry, from 1; 0 before the first entry.
    pub number: u64,
    /// Hash of the chain up to this entry, `chain_n`.
    pub chain: Hash,
}

impl Link {
    /// Returns the link before the first entry of a journal.
    pub fn genesis(journal_id: &str) -> Self {
        Link { number: 0, chain: proof::journal::genesis(journal_id) }
    }

    /// Returns the link of the next entry, which has these bytes.
    pub fn then(&self, entry: &[u8]) -> Self {
        Link { number: self.number + 1, chain: next(&self.chain, entry) }
    }
}

/// Encodes the entry that follows the link `after`. Returns the line without its line end, and the
/// link of the entry.
pub fn encode(entry: &Entry, after: &Link) -> io::Result<(Vec<u8>, Link)> {
    #[derive(Serialize)]
    struct Numbered<'e> {
        #[serde(flatten)]
        entry: &'e Entry,
        n: u64,
    }
    let mut line = serde_json::to_vec(&Numbered { entry, n: after.number + 1 })?;
    let link = after.then(&line);
    line.pop();
    line.extend_from_slice(LINK);
    line.extend_from_slice(hex::encode(link.chain).as_bytes());
    line.extend_from_slice(END);
    Ok((line, link))
}

/// Returns the hashed bytes of a line and its link. Returns `None` if the line is not in a chain.
pub fn decode(line: &[u8]) -> Option<(Vec<u8>, Link)> {
    let rest = line.strip_suffix(END)?;
    let (rest, digits) = rest.split_at_checked(rest.len().checked_sub(HEX)?)?;
    let mut chain = [0; 32];
    // Only lower case is accepted. A second spelling of the same bytes would allow an undetected
    // change.
    let is_lower = |digit: &u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit);
    if !digits.iter().all(is_lower) || hex::decode_to_slice(digits, &mut chain).is_err() {
        return None;
    }
    let entry = rest.strip_suffix(LINK)?;
    let at = entry.windows(NUMBER.len()).rposition(|window| window == NUMBER)?;
    let number = std::str::from_utf8(&entry[at + NUMBER.len()..]).ok()?.parse().ok()?;
    Some(([entry, b"}"].concat(), Link { number, chain }))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::journal::JournalEvent;

    /// Compares with lines that another implementation of the specification wrote.
    #[test]
    fn a_line_has_the_bytes_of_its_specification() {
        let vectors = include_str!("../../../proof/tests/vectors/journal.json");
        let vectors: Value = serde_json::from_str(vectors).unwrap();
        let mut last = Link::genesis(vectors["journal_id"].as_str().unwrap());
        for row in vectors["entries"].as_array().unwrap() {
            let line = row["line"].as_str().unwrap();
            let (bytes, link) = decode(line.as_bytes()).unwrap();
            assert_eq!(bytes, row["entry"].as_str().unwrap().as_bytes());
            assert_eq!(last.then(&bytes), link);
            let entry: Entry = serde_json::from_str(line).unwrap();
            assert_eq!(encode(&entry, &last).unwrap(), (line.as_bytes().to_vec(), link));
            last = link;
        }
        assert_eq!(last.number, 3);
    }

    #[test]
    fn a_truncated_line_has_no_link() {
        let entry = Entry { at: crate::host::now(), event: JournalEvent::Enabled {} };
        let (line, _) = encode(&entry, &Link::genesis("J")).unwrap();
        for cut in 0..line.len() {
            assert_eq!(decode(&line[..cut]), None, "{cut}");
        }
        assert!(decode(&line).is_some());
    }
}
