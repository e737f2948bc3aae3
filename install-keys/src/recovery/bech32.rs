//! Bech32 (BIP 173), in which age writes its keys: a prefix, `1`, 32 bytes and a checksum.
use zeroize::Zeroizing;

use crate::derive::Secret;

const CHARACTERS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
/// Characters of 32 bytes, and of the checksum.
const LENGTH: usize = 52 + 6;

/// Decodes 32 bytes with this prefix, all in lower case. Returns `None` for any other text.
pub(super) fn decode(prefix: &str, text: &str) -> Option<Secret> {
    let data = text.strip_prefix(prefix)?.strip_prefix('1')?;
    if data.len() != LENGTH {
        return None;
    }
    let mut values = Zeroizing::new(Vec::with_capacity(LENGTH));
    for character in data.bytes() {
        let value = CHARACTERS.iter().position(|known| *known == character)?;
        values.push(u8::try_from(value).ok()?);
    }
    let checked = (prefix.bytes().map(|byte| byte >> 5))
        .chain([0])
        .chain(prefix.bytes().map(|byte| byte & 31))
        .chain(values.iter().copied());
    if checksum(checked) != 1 {
        return None;
    }
    let (mut bytes, mut length) = (Zeroizing::new([0_u8; 32]), 0);
    let (mut pending, mut bits) = (0_u32, 0);
    for value in values.iter().take(52) {
        pending = (pending << 5) | u32::from(*value);
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            *bytes.get_mut(length)? = u8::try_from(pending >> bits).ok()?;
            pending &= (1 << bits) - 1;
            length += 1;
        }
    }
    // The last character has four bits of padding.
    (length == 32 && pending == 0).then_some(bytes)
}

fn checksum(values: impl Iterator<Item = u8>) -> u32 {
    values.fold(1, |check: u32, value| {
        let top = check >> 25;
        let shifted = ((check & 0x01ff_ffff) << 5) ^ u32::from(value);
        let terms = GENERATOR.iter().enumerate().filter(|(bit, _)| (top >> bit) & 1 == 1);
        terms.fold(shifted, |check, (_, term)| check ^ term)
    })
}
