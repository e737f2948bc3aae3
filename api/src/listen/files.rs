//! Limit of open files, and the connections that fit into it.
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::{info, warn};

/// Maximum number of connections per listener, regardless of the limit of files.
const MAX_CONNECTIONS: u64 = 16_000;
/// Files that the program itself needs: runtime, standard streams, archives, keys.
const OWN_FILES: u64 = 64;
/// Minimum number of connections per listener.
const MIN_CONNECTIONS: u64 = 8;

/// Maximum number of connections of each listener. A listener cannot use the share of the other
/// listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    pub control: usize,
    pub runner: usize,
}

impl Shares {
    /// Divides a limit of open files. After the program's own files and the database connections, a
    /// quarter is reserved for files that requests open. A quarter of the rest is for the Control
    /// API, because its callers stay only for a short time.
    pub(crate) fn of(files: u64, database: u64) -> Shares {
        let left = files.saturating_sub(OWN_FILES + database);
        let connections = left - left / 4;
        let share = |part: u64| {
            usize::try_from(part.clamp(MIN_CONNECTIONS, MAX_CONNECTIONS)).unwrap_or(usize::MAX)
        };
        Shares { control: share(connections / 4), runner: share(connections - connections / 4) }
    }
}

/// Raises the soft limit of open files to the hard limit. Returns the effective limit.
pub(crate) fn raise_limit() -> u64 {
    let (soft, hard) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(error) => {
            warn!(error = %error, "Cannot read the limit of open files; assuming 1024");
            return 1024;
        }
    };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => {
            info!(soft, hard, "Raised the limit of open files from soft to hard");
            hard
        }
        Err(error) => {
            warn!(soft, hard, error = %error, "Cannot raise the limit of open files");
            soft
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_and_database_fit_into_the_limit_of_files() {
        for files in [256_u64, 1_024, 4_096, 20_000, 65_536, 1 << 20] {
            let shares = Shares::of(files, 40);
            let all = (shares.control + shares.runner) as u64;
            assert!(all + 40 + OWN_FILES <= files, "{files}: {shares:?}");
            assert!(shares.runner > shares.control || files > 65_536, "{files}: {shares:?}");
        }
        assert_eq!(Shares::of(1_024, 40), Shares { control: 172, runner: 518 });
        assert_eq!(Shares::of(1 << 20, 40), Shares { control: 16_000, runner: 16_000 });
        assert_eq!(Shares::of(0, 40), Shares { control: 8, runner: 8 });
    }

    #[test]
    fn soft_limit_is_raised_to_the_hard_limit() {
        let limit = raise_limit();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (limit, limit));
    }
}
