//! Order of the versions of one component.
use schemas::{manifest::Fence, runner::StateHead};

/// Permission to store another lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaces {
    /// Only after an empty state.
    EmptyState,
    /// A user decided it.
    AnyState,
}

/// Place of a new version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// After the newest version.
    New,
    /// The newest version has the same content.
    Repeated,
}

/// Reason to reject a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// A later execution has begun or stored a version.
    OlderFence,
    /// The newest version has a higher serial.
    OlderSerial { newest: u64 },
    /// The newest version has the same serial and other content.
    OtherContent { serial: u64 },
    /// The newest version has another lineage and is not empty.
    OtherLineage { newest: String },
}

/// Places a new version after the newest one. `begun` is the fence of the newest execution that may
/// write.
pub(super) fn place(
    newest: Option<&StateHead>,
    begun: Option<Fence>,
    new: &StateHead,
    replaces: Replaces,
) -> Result<Place, Conflict> {
    #[cfg(feature = "fault-injection")]
    let is_checked = !proof::fault_injection::has(proof::fault_injection::Fault::StateWithoutFence);
    #[cfg(not(feature = "fault-injection"))]
    let is_checked = true;
    let begun = begun.max(newest.map(|newest| newest.fence));
    if is_checked && begun.is_some_and(|begun| new.fence < begun) {
        return Err(Conflict::OlderFence);
    }
    let Some(newest) = newest else { return Ok(Place::New) };
    if new.lineage != newest.lineage {
        return match replaces {
            Replaces::EmptyState if !newest.is_empty => {
                Err(Conflict::OtherLineage { newest: newest.lineage.clone() })
            }
            Replaces::EmptyState | Replaces::AnyState => Ok(Place::New),
        };
    }
    match new.serial.cmp(&newest.serial) {
        std::cmp::Ordering::Less => Err(Conflict::OlderSerial { newest: newest.serial }),
        std::cmp::Ordering::Equal if new.digest == newest.digest => Ok(Place::Repeated),
        std::cmp::Ordering::Equal => Err(Conflict::OtherContent { serial: new.serial }),
        std::cmp::Ordering::Greater => Ok(Place::New),
    }
}

#[cfg(test)]
mod tests {
    use schemas::manifest::Fence;

    use super::*;

    fn head(position: u64, lineage: &str, serial: u64, digest: &str) -> StateHead {
        let (lineage, digest) = (lineage.to_owned(), digest.to_owned());
        let fence = Fence { epoch: 1, position };
        StateHead { lineage, serial, fence, digest, is_empty: false }
    }

    #[test]
    fn versions_are_ordered_by_fence_and_then_by_serial() {
        let newest = head(20, "l", 7, "d");
        let place = |new: &StateHead| place(Some(&newest), None, new, Replaces::EmptyState);
        assert_eq!(place(&head(20, "l", 8, "e")), Ok(Place::New));
        assert_eq!(place(&head(30, "l", 8, "e")), Ok(Place::New));
        assert_eq!(place(&head(20, "l", 7, "d")), Ok(Place::Repeated));
        assert_eq!(place(&head(30, "l", 7, "d")), Ok(Place::Repeated));
        assert_eq!(place(&head(30, "l", 7, "e")), Err(Conflict::OtherContent { serial: 7 }));
        assert_eq!(place(&head(30, "l", 6, "c")), Err(Conflict::OlderSerial { newest: 7 }));
        // A former host may have written more, but its claim is older.
        for (serial, digest) in [(9, "f"), (7, "d")] {
            assert_eq!(place(&head(19, "l", serial, digest)), Err(Conflict::OlderFence));
        }
        let restored = Fence { epoch: 2, position: 1 };
        assert_eq!(place(&StateHead { fence: restored, ..head(0, "l", 8, "e") }), Ok(Place::New));
    }

    #[test]
    fn an_execution_that_has_stored_nothing_yet_precedes_no_earlier_one() {
        let (newest, begun) = (head(20, "l", 7, "d"), Some(Fence { epoch: 1, position: 30 }));
        for newest in [Some(&newest), None] {
            let place =
                |position| place(newest, begun, &head(position, "l", 8, "e"), Replaces::EmptyState);
            assert_eq!(place(29), Err(Conflict::OlderFence));
            assert_eq!(place(30), Ok(Place::New));
        }
    }

    #[test]
    fn another_lineage_follows_an_empty_state_or_a_decision_only() {
        let mut newest = head(20, "l", 7, "d");
        let new = head(20, "m", 1, "e");
        let other = Err(Conflict::OtherLineage { newest: "l".into() });
        assert_eq!(place(Some(&newest), None, &new, Replaces::EmptyState), other);
        assert_eq!(place(Some(&newest), None, &new, Replaces::AnyState), Ok(Place::New));
        newest.is_empty = true;
        assert_eq!(place(Some(&newest), None, &new, Replaces::EmptyState), Ok(Place::New));
        // A decision permits no older version of the same lineage: a restored state gets the next serial.
        let older = place(Some(&newest), None, &head(20, "l", 6, "c"), Replaces::AnyState);
        assert_eq!(older, Err(Conflict::OlderSerial { newest: 7 }));
    }
}
