//! Finds pieces of secret values that tools wrap or space out. `base64` and PEM break their text
//! every 76 or 64 columns, and `od` and `xxd` put spaces between bytes.
//!
//! No pattern of a complete value matches such a line. So the line is decoded and searched for
//! pieces of the values.
use std::{collections::HashSet, ops::Range};

/// Number of consecutive bytes of a value that are unlikely to be a coincidence.
const PIECE: usize = 8;

/// All pieces of all values.
#[derive(Debug, Default)]
pub struct Pieces(HashSet<[u8; PIECE]>);

/// Encoding of bytes as text.
#[derive(Clone, Copy)]
struct Coding {
    /// Returns the numeric value of a digit, or `None` for another character.
    digit: fn(u8) -> Option<u8>,
    /// Test for characters that may be between digits.
    between: fn(u8) -> bool,
    /// Bits per digit.
    bits: usize,
}

const BASE64: Coding = Coding { digit: sextet, between: |_| false, bits: 6 };
const HEX: Coding = Coding { digit: nibble, between: |byte| byte == b' ', bits: 4 };

impl Pieces {
    pub fn of<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let pieces = |value: &'a str| value.as_bytes().windows(PIECE);
        let pieces = values.into_iter().flat_map(pieces);
        Pieces(pieces.filter_map(|piece| piece.try_into().ok()).collect())
    }

    /// Returns the ranges of a text that contain pieces of values, in order and without overlap.
    pub fn find(&self, text: &[u8]) -> Vec<Range<usize>> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for coding in [BASE64, HEX] {
            self.search(coding, text, &mut found);
        }
        found.sort_unstable_by_key(|range: &Range<usize>| range.start);
        found.dedup_by(|next, before| {
            let touches = next.start <= before.end;
            if touches {
                before.end = before.end.max(next.end);
            }
            touches
        });
        found
    }

    fn search(&self, coding: Coding, text: &[u8], found: &mut Vec<Range<usize>>) {
        let mut digits: Vec<(usize, u8)> = Vec::new();
        for (at, byte) in text.iter().enumerate() {
            match (coding.digit)(*byte) {
                Some(digit) => digits.push((at, digit)),
                None if (coding.between)(*byte) => {}
                None => {
                    self.search_run(coding, &digits, found);
                    digits.clear();
                }
            }
        }
        self.search_run(coding, &digits, found);
    }

    /// Searches one run of digits, in which bytes may begin at any digit.
    fn search_run(&self, coding: Coding, digits: &[(usize, u8)], found: &mut Vec<Range<usize>>) {
        let bits = coding.bits;
        if digits.len() * bits < PIECE * 8 {
            return;
        }
        // Number of digits after which a byte begins at a digit again.
        let period = if bits == 6 { 4 } else { 2 };
        for skipped in 0..period {
            let Some(digits) = digits.get(skipped..) else { return };
            let bytes = decode(bits, digits);
            for (at, piece) in bytes.windows(PIECE).enumerate() {
                if <[u8; PIECE]>::try_from(piece).is_ok_and(|piece| self.0.contains(&piece)) {
                    let (first, last) = (at * 8 / bits, ((at + PIECE) * 8 - 1) / bits);
                    if let (Some((first, _)), Some((last, _))) =
                        (digits.get(first), digits.get(last))
                    {
                        found.push(*first..last + 1);
                    }
                }
            }
        }
    }
}

fn decode(bits: usize, digits: &[(usize, u8)]) -> Vec<u8> {
    let (mut bytes, mut bit_buffer, mut count) = (Vec::new(), 0_u32, 0);
    for (_, digit) in digits {
        bit_buffer = (bit_buffer << bits) | u32::from(*digit);
        count += bits;
        if count >= 8 {
            count -= 8;
            bytes.extend((bit_buffer >> count).to_le_bytes().first());
            bit_buffer &= (1 << count) - 1;
        }
    }
    bytes
}

fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

fn nibble(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::*;
    use crate::shim::redact::{HeldBack, MARK, Redactor};

    /// Returns 300 bytes, as in a session token.
    fn token() -> String {
        (0..10_u32)
            .map(|part| hex::encode(proof::sha256(&part.to_be_bytes()))[..30].to_owned())
            .collect()
    }

    fn shown(redactor: &Redactor, text: &str) -> String {
        let mut held_back = HeldBack::default();
        let mut all = Vec::new();
        for line in text.lines() {
            all.extend(redactor.line(&mut held_back, line.as_bytes(), false));
        }
        all.extend(redactor.flush(&mut held_back));
        String::from_utf8(all).unwrap()
    }

    fn wrapped(text: &str, columns: usize) -> String {
        let lines = text.as_bytes().chunks(columns).map(String::from_utf8_lossy);
        lines.map(|line| format!("  {line}\n")).collect()
    }

    /// Returns whether eight consecutive bytes of the value can be recovered from the output.
    fn leaks(value: &str, shown: &str) -> bool {
        !Pieces::of([value]).find(shown.as_bytes()).is_empty()
    }

    #[test]
    fn a_value_is_found_in_wrapped_base64() {
        let value = token();
        let redactor = Redactor::new([value.as_str()]);
        for columns in [76, 64] {
            for before in ["", "x", "user:", "a longer beginning of the line than others: "] {
                let text = wrapped(&STANDARD.encode(format!("{before}{value} and after")), columns);
                assert!(leaks(&value, &text));
                let clean = shown(&redactor, &text);
                assert!(!leaks(&value, &clean), "{columns} columns after {before:?}: {clean}");
                assert!(clean.matches(MARK).count() >= 5, "{clean}");
            }
        }
    }

    #[test]
    fn a_value_is_found_in_a_hex_dump() {
        let value = token();
        let redactor = Redactor::new([value.as_str()]);
        let bytes: Vec<String> = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        let od: String =
            bytes.chunks(16).map(|line| format!("0000020 {}\n", line.join(" "))).collect();
        let pairs: Vec<String> = bytes.chunks(2).map(|pair| pair.concat()).collect();
        let xxd: String =
            pairs.chunks(8).map(|line| format!("00000010: {}\n", line.join(" "))).collect();
        for text in [od, xxd] {
            assert!(leaks(&value, &text), "{text}");
            let clean = shown(&redactor, &text);
            assert!(!leaks(&value, &clean), "{clean}");
        }
    }

    #[test]
    fn other_encoded_text_is_not_redacted() {
        let redactor = Redactor::new([token().as_str(), "/usr/local/share/something"]);
        for text in [
            "/usr/lib/x86_64-linux-gnu/libcrypto.so.3 0000020 de ad be ef 00 01 02 03 04 05",
            &STANDARD.encode("nothing of it is in here, however long it may be"),
        ] {
            assert_eq!(redactor.text(text), text);
        }
    }
}
