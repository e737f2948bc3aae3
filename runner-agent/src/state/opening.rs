//! Decision about the state with which a job begins. Both functions are pure: the caller reads all
//! inputs first, and carries out the decision afterwards.
//!
//! ```text
//! next      state that an earlier job wrote to this host's disk, and whose upload did not end: promoted, or set aside
//! host      newest state on this host, after that; pending until the server has it
//! server    newest version of the server; jobs wait until the server responds
//!
//! host ＼ server   none      same    older, and the host continues it   newer                                   else
//! none            Nothing   –       –                                  Download                                –
//! uploaded        Upload    Use     Upload                             Download                                Diverged
//! pending         Upload    Use     Upload                             Download if this host wrote it too,     Diverged
//!                                                                      else Diverged
//! ```
//!
//! Newer means a higher fence, then a higher serial, as on the server.
use schemas::runner::{StateHead, StateUpload};

use super::KnownState;

/// Decision on a state whose upload did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It becomes the newest state of this host.
    Promote,
    /// It is not the newest state, or a decision of a user that was not carried out.
    SetAside,
}

/// State with which a job begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// The component has no state.
    Nothing,
    /// The copy of this host, which the server has.
    Use,
    /// The copy of this host, which the server must get first.
    Upload,
    /// The version of the server.
    Download,
    /// Host and server have states that exclude each other. A user decides.
    Diverged,
    /// An execution that began later has written a state.
    Superseded,
}

/// Everything that the decision depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Situation<'a> {
    pub host: Option<&'a StateHead>,
    /// True if the server has not acknowledged the state of the host.
    pub is_pending: bool,
    pub server: Option<&'a StateHead>,
    /// Newest state that the journal of this host knows.
    pub known: &'a KnownState,
    /// Fence of the execution. `None` for a job that only reads the state of another component.
    pub fence: Option<schemas::manifest::Fence>,
}

/// Returns true if both are the same write of the same state, under any fence.
pub(super) fn is_same(one: &StateHead, other: &StateHead) -> bool {
    (&one.lineage, one.serial, &one.digest) == (&other.lineage, other.serial, &other.digest)
}

/// Returns true if `new` may follow `former` without a decision of a user.
pub(super) fn continues(new: &StateHead, former: &StateHead) -> bool {
    match new.lineage == former.lineage {
        true => new.serial > former.serial,
        false => former.is_empty,
    }
}

fn is_newer(one: &StateHead, other: &StateHead) -> bool {
    (one.fence, one.serial) > (other.fence, other.serial)
}

/// Decides about a state whose upload did not end. It is complete: the caller has decrypted it.
pub(super) fn next(
    next: &StateUpload,
    host: Option<&StateHead>,
    server: Option<&StateHead>,
) -> Next {
    let promotes = match next.is_decided {
        // A decision that did not reach the server can be repeated, and its file still exists.
        true => server.is_some_and(|server| is_same(server, &next.head)),
        false => host.is_none_or(|host| is_newer(&next.head, host)),
    };
    match promotes {
        true => Next::Promote,
        false => Next::SetAside,
    }
}

/// Decides which state a job begins with.
pub(super) fn decide(situation: &Situation<'_>) -> Opening {
    let Situation { host, is_pending, server, known, fence } = *situation;
    let Some(server) = server else {
        // The server never had the state, or was restored from a backup.
        return host.map_or(Opening::Nothing, |_| Opening::Upload);
    };
    if fence.is_some_and(|fence| server.fence > fence) {
        return Opening::Superseded;
    }
    let Some(host) = host else { return Opening::Download };
    if is_same(host, server) {
        return Opening::Use;
    }
    if !is_newer(server, host) {
        return match continues(host, server) {
            true => Opening::Upload,
            false => Opening::Diverged,
        };
    }
    let goes_back = host.lineage == server.lineage && server.serial <= host.serial;
    // The journal names each state that this host wrote, also if its disk could not store it.
    let is_own = known.newest.lineage.as_ref() == Some(&server.lineage)
        && known.newest.serial == server.serial
        && known.digest.as_ref() == Some(&server.digest);
    match goes_back || (is_pending && !is_own) {
        true => Opening::Diverged,
        false => Opening::Download,
    }
}

#[cfg(test)]
mod tests {
    use schemas::manifest::Fence;

    use super::*;
    use crate::state::StateMark;

    /// Version with this fence position, lineage and serial. Its digest names lineage and serial.
    fn head(position: u64, lineage: &str, serial: u64) -> StateHead {
        let digest = format!("{lineage}{serial}");
        let fence = Fence { epoch: 1, position };
        StateHead { lineage: lineage.into(), serial, fence, digest, is_empty: false }
    }

    fn with_other_content(head: StateHead) -> StateHead {
        StateHead { digest: "other".into(), ..head }
    }

    fn empty(head: StateHead) -> StateHead {
        StateHead { is_empty: true, ..head }
    }

    fn knows(head: &StateHead) -> KnownState {
        let newest = StateMark { lineage: Some(head.lineage.clone()), serial: head.serial };
        KnownState { newest, digest: Some(head.digest.clone()), ..KnownState::default() }
    }

    fn upload(head: StateHead, is_decided: bool) -> StateUpload {
        StateUpload { head, written_by: None, is_decided }
    }

    const FENCE: Fence = Fence { epoch: 1, position: 90 };

    fn opening(host: Option<(&StateHead, bool)>, server: Option<&StateHead>) -> Opening {
        opening_with(host, server, &KnownState::default())
    }

    fn opening_with(
        host: Option<(&StateHead, bool)>,
        server: Option<&StateHead>,
        known: &KnownState,
    ) -> Opening {
        let (host, is_pending) = (host.map(|(host, _)| host), host.is_some_and(|host| host.1));
        decide(&Situation { host, is_pending, server, known, fence: Some(FENCE) })
    }

    /// Servers that the tests combine with a host that has serial 7 of the lineage `l`, written
    /// under fence 50.
    fn servers() -> Vec<(&'static str, StateHead)> {
        vec![
            ("same", head(50, "l", 7)),
            ("same under another fence", head(60, "l", 7)),
            ("same under an earlier fence", head(40, "l", 7)),
            ("earlier serial", head(40, "l", 6)),
            ("earlier serial of the same execution", head(50, "l", 6)),
            ("later serial", head(60, "l", 8)),
            ("later serial of the same execution", head(50, "l", 8)),
            ("later serial under an earlier fence", head(40, "l", 8)),
            ("earlier serial under a later fence", head(60, "l", 6)),
            ("same serial, other content", with_other_content(head(50, "l", 7))),
            ("same serial, other content, later", with_other_content(head(60, "l", 7))),
            ("other lineage, earlier", head(40, "m", 1)),
            ("other lineage, earlier and empty", empty(head(40, "m", 1))),
            ("other lineage, later", head(60, "m", 1)),
        ]
    }

    #[test]
    fn each_combination_of_host_and_server_has_its_opening() {
        use Opening::{Diverged, Download, Use};
        let host = head(50, "l", 7);
        // In the order of the servers: uploaded, pending.
        let expected = [
            (Use, Use),
            (Use, Use),
            (Use, Use),
            (Opening::Upload, Opening::Upload),
            (Opening::Upload, Opening::Upload),
            (Download, Diverged),
            (Download, Diverged),
            (Diverged, Diverged),
            (Diverged, Diverged),
            (Diverged, Diverged),
            (Diverged, Diverged),
            (Diverged, Diverged),
            (Opening::Upload, Opening::Upload),
            (Download, Diverged),
        ];
        for ((name, server), (uploaded, pending)) in servers().into_iter().zip(expected) {
            assert_eq!(opening(Some((&host, false)), Some(&server)), uploaded, "{name}, uploaded");
            assert_eq!(opening(Some((&host, true)), Some(&server)), pending, "{name}, pending");
            assert_eq!(opening(None, Some(&server)), Download, "{name}, no host");
        }
        assert_eq!(servers().len(), expected.len());
        assert_eq!(opening(None, None), Opening::Nothing);
        // A server that was restored from a backup gets the state again.
        assert_eq!(opening(Some((&host, false)), None), Opening::Upload);
        assert_eq!(opening(Some((&host, true)), None), Opening::Upload);
    }

    #[test]
    fn a_newer_version_of_this_host_supersedes_its_pending_copy() {
        let host = head(50, "l", 7);
        for server in [head(50, "l", 8), head(60, "l", 8), head(60, "m", 1)] {
            let known = knows(&server);
            let pending = Some((&host, true));
            assert_eq!(opening_with(pending, Some(&server), &known), Opening::Download);
            // Another host wrote the same serial.
            let foreign = with_other_content(server);
            assert_eq!(opening_with(pending, Some(&foreign), &known), Opening::Diverged);
        }
        // A state that goes back is never one of this host.
        let older = head(60, "l", 6);
        assert_eq!(
            opening_with(Some((&host, true)), Some(&older), &knows(&older)),
            Opening::Diverged
        );
    }

    #[test]
    fn only_a_writer_is_superseded_by_a_later_execution() {
        let (host, later) = (head(50, "l", 7), head(91, "l", 8));
        for host in [None, Some((&host, false)), Some((&host, true))] {
            assert_eq!(opening(host, Some(&later)), Opening::Superseded);
        }
        let known = &KnownState::default();
        let (host, server) = (Some(&host), Some(&later));
        let reads = Situation { host, is_pending: false, server, known, fence: None };
        assert_eq!(decide(&reads), Opening::Download);
    }

    /// A job never begins with a state while a later one is known, and never replaces a state that
    /// only this host has.
    #[test]
    fn no_combination_goes_back() {
        let [host, of_later_job] = [50, 95].map(|position| head(position, "l", 7));
        let hosts = [host.clone(), empty(host), of_later_job, head(70, "m", 2)];
        let with_empty = |(name, server): (&'static str, StateHead)| {
            [(name, server.clone()), (name, empty(server))]
        };
        let servers: Vec<_> = servers().into_iter().flat_map(with_empty).collect();
        for host in &hosts {
            for is_pending in [false, true] {
                for (name, server) in servers.clone() {
                    for known in [KnownState::default(), knows(&server), knows(host)] {
                        let opening = opening_with(Some((host, is_pending)), Some(&server), &known);
                        let what = format!("{name}, {host:?}, {is_pending}, {known:?}");
                        match opening {
                            Opening::Use => assert!(is_same(host, &server), "{what}"),
                            Opening::Upload => assert!(
                                is_newer(host, &server) && continues(host, &server),
                                "{what}"
                            ),
                            Opening::Download => {
                                let goes_back =
                                    server.lineage == host.lineage && server.serial <= host.serial;
                                assert!(is_newer(&server, host) && !goes_back, "{what}");
                                assert!(!is_pending || known == knows(&server), "{what}");
                            }
                            Opening::Diverged => assert!(!is_same(host, &server), "{what}"),
                            Opening::Nothing | Opening::Superseded => panic!("{what}: {opening:?}"),
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_state_whose_upload_did_not_end_is_promoted_if_it_is_the_newest() {
        let (host, later) = (head(50, "l", 7), head(50, "l", 8));
        let promotes = |upload: &StateUpload, host: Option<&StateHead>, server| {
            next(upload, host, server) == Next::Promote
        };
        // In the order: written by a job, decided by a user.
        for (server, by_job, by_user) in
            [(None, true, false), (Some(&host), true, false), (Some(&later), true, true)]
        {
            for host in [None, Some(&host)] {
                assert_eq!(promotes(&upload(later.clone(), false), host, server), by_job);
                assert_eq!(promotes(&upload(later.clone(), true), host, server), by_user);
            }
        }
        // An earlier one never replaces the state of the host, unless a user decided so.
        let earlier = head(40, "l", 6);
        for server in [None, Some(&host), Some(&earlier)] {
            assert!(!promotes(&upload(earlier.clone(), false), Some(&host), server));
        }
        assert!(promotes(&upload(earlier.clone(), true), Some(&host), Some(&earlier)));
    }
}
