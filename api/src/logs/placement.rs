//! Placement of a chunk in a stream whose first bytes are stored.
use std::ops::Range;

/// Overlap of a chunk with the stored stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placement {
    /// Range of the stream that is already stored and must equal the chunk's bytes. Empty for most
    /// chunks.
    pub overlap: Range<u64>,
    /// Number of the chunk's bytes in that range. The rest is new.
    pub known: usize,
}

/// The chunk starts after the end of the stored stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    /// Number of stored bytes, which is the offset of the next chunk.
    pub have: u64,
}

/// Places a chunk of `length` bytes at offset `start` in a stream with `have` stored bytes.
pub(super) fn place_chunk(have: u64, start: u64, length: usize) -> Result<Placement, Gap> {
    if start > have {
        return Err(Gap { have });
    }
    let known = usize::try_from(have - start).unwrap_or(usize::MAX).min(length);
    Ok(Placement { overlap: start..start + known as u64, known })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn chunk_at_the_end_is_new() {
        assert_eq!(place_chunk(10, 10, 5), Ok(Placement { overlap: 10..10, known: 0 }));
    }

    #[test]
    fn chunk_after_the_end_leaves_a_gap() {
        assert_eq!(place_chunk(10, 11, 5), Err(Gap { have: 10 }));
    }

    #[test]
    fn chunk_that_was_sent_before_has_no_new_bytes() {
        assert_eq!(place_chunk(10, 2, 5), Ok(Placement { overlap: 2..7, known: 5 }));
    }

    #[test]
    fn chunk_across_the_end_has_known_and_new_bytes() {
        assert_eq!(place_chunk(10, 8, 5), Ok(Placement { overlap: 8..10, known: 2 }));
    }

    /// Generates chunks of one text in any order and size, some with a changed byte.
    fn chunks() -> impl Strategy<Value = Vec<(usize, usize, bool)>> {
        prop::collection::vec((0..64usize, 0..24usize, prop::bool::weighted(0.2)), 0..80)
    }

    proptest! {
        #[test]
        fn stored_bytes_are_a_prefix_of_the_written_bytes(chunks in chunks()) {
            let written: Vec<u8> = (0..64).collect();
            let mut stored: Vec<u8> = vec![];
            for (start, length, spoiled) in chunks {
                let mut chunk = written[start..(start + length).min(64)].to_vec();
                let before = stored.clone();
                match place_chunk(stored.len() as u64, start as u64, chunk.len()) {
                    Err(gap) => prop_assert_eq!(gap.have as usize, stored.len()),
                    Ok(placement) => {
                        let (from, to) = (placement.overlap.start, placement.overlap.end);
                        if spoiled && placement.known > 0 {
                            chunk[placement.known - 1] ^= 1;
                        }
                        let equal = stored[from as usize..to as usize] == chunk[..placement.known];
                        prop_assert_eq!(equal, !(spoiled && placement.known > 0));
                        if equal {
                            stored.extend(&chunk[placement.known..]);
                        }
                    }
                }
                prop_assert_eq!(&written[..stored.len()], &stored[..]);
                prop_assert!(stored.starts_with(&before));
            }
        }
    }
}
