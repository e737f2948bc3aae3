//! Whose database it is: that of a data directory's private Postgres, or one that somebody else runs.
use std::path::{Path, PathBuf};

use api::postgres::{Access, DataLock, Embedded, EmbeddedError, LockError};
use clap::Args;

use crate::{failure::Failure, serve::data_directory};

#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The server's data directory [default: as for `stead serve`]
    #[arg(long, env = "STEAD_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Database URL, with the role that owns the tables [default: the private Postgres of the data directory]
    #[arg(long, env = "DATABASE_OWNER_URL", value_name = "URL", hide_env_values = true)]
    pub(crate) database_owner_url: Option<String>,
}

impl Place {
    /// The data directory.
    pub(crate) fn data(&self) -> Result<PathBuf, Failure> {
        data_directory(self.data.as_ref()).map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Work on the database as the owner of its tables, beside a server that runs, or with its Postgres started for
    /// that.
    pub(crate) async fn owned<T, E>(
        &self,
        data: &Path,
        work: impl AsyncFnOnce(Access) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<EmbeddedError> + From<LockError>,
    {
        if let Some(url) = &self.database_owner_url {
            return checked(Access::of_url(url)?, work).await;
        }
        if !Embedded::is_in(data) {
            return Err(EmbeddedError::NoCluster { data: data.display().to_string() }.into());
        }
        match DataLock::take(data) {
            // A server is at work, and its Postgres with it.
            Err(LockError::InUse { .. }) => {
                checked(Access::of(Embedded::running(data).await?), work).await
            }
            Err(other) => Err(other.into()),
            Ok(_alone) => {
                let postgres = Embedded::start_for_owner(data).await?;
                let done = checked(Access::of(postgres.owner()), work).await;
                postgres.stop().await?;
                done
            }
        }
    }
}

/// Does the work if the log has the format that this program reads.
async fn checked<T, E: From<EmbeddedError>>(
    access: Access,
    work: impl AsyncFnOnce(Access) -> Result<T, E>,
) -> Result<T, E> {
    access.check_format().await?;
    work(access).await
}
