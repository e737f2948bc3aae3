//! Version of Helm.

use std::{fmt, time::Duration};

use stead_plugin_kubernetes::failure::{Failure, Outcome};
use tokio::sync::OnceCell;

use crate::helm::{Helm, Limits, args, refs};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Version of one process, which runs one job.
static VERSION: OnceCell<Version> = OnceCell::const_new();

/// Major and minor version of Helm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32, u32);

/// First version with everything that the plugin uses.
const OLDEST: Version = Version(3, 14);

impl Version {
    /// Newest version whose flags the plugin knows.
    pub const NEWEST: Version = Version(4, 0);

    pub fn has_server_side_apply(self) -> bool {
        self >= Version(4, 0)
    }

    /// Returns whether install and upgrade can adopt objects.
    pub fn can_adopt(self) -> bool {
        self >= Version(3, 17)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Returns the version of Helm.
///
/// # Errors
/// Helm is not installed, or too old.
pub async fn of(helm: &Helm) -> Outcome<Version> {
    VERSION
        .get_or_try_init(|| async {
            let command = args(["version", "--short"]);
            let output = helm.run_offline(&refs(&command), Limits::of(TIMEOUT)).await?;
            parse(&String::from_utf8_lossy(&output.stdout))
        })
        .await
        .copied()
}

fn parse(text: &str) -> Outcome<Version> {
    let text = text.trim();
    let mut numbers = text.trim_start_matches('v').split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return Err(Failure::failed(format!(
            "cannot read the version of helm from {text:?}; install Helm 3.14 or later, or Helm 4"
        )));
    };
    let version = Version(major, minor);
    match version >= OLDEST {
        true => Ok(version),
        false => Err(Failure::tool_missing(format!(
            "helm {text} is too old; install Helm 3.14 or later, or Helm 4"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_numbers() {
        assert_eq!(parse("v4.3.0\n").unwrap(), Version(4, 3));
        assert_eq!(parse("v3.14.2+gc309b6f").unwrap(), Version(3, 14));
        assert!(parse("v3.9.0").unwrap_err().message.contains("too old"));
        assert!(parse("usage: helm").unwrap_err().message.contains("cannot read the version"));
        assert!(!Version(3, 16).can_adopt() && Version(3, 17).can_adopt());
        assert!(Version(4, 0).can_adopt());
    }
}
