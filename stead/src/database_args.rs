//! Database options: the private Postgres of a data directory, or an external database.
use std::path::{Path, PathBuf};

use api::postgres::{Access, DataLock, Embedded, EmbeddedError, LockError};
use clap::Args;
use cli::failure::Failure;

use crate::serve::data_directory;

#[derive(Debug, Args)]
pub(crate) struct DatabaseArgs {
    /// The server's data directory [default: as for `stead serve`]
    #[arg(long, env = "STEAD_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Database URL of the role that owns the tables [default: the private Postgres of the data
    /// directory]
    #[arg(long, env = "DATABASE_OWNER_URL", value_name = "URL", hide_env_values = true)]
    pub(crate) database_owner_url: Option<String>,
}

impl DatabaseArgs {
    pub(crate) fn data(&self) -> Result<PathBuf, Failure> {
        data_directory(self.data.as_ref()).map_err(|error| Failure::Usage(error.to_string()))
    }

    /// Runs `work` on the database as the owner of its tables. Without a database URL, uses the
    /// private Postgres of the running server, or starts it until `work` ends.
    pub(crate) async fn as_owner<T, E>(
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
            // Another process holds the lock, usually a server, whose Postgres then runs.
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

/// Runs `work` if this program can read the format of the log.
async fn checked<T, E: From<EmbeddedError>>(
    access: Access,
    work: impl AsyncFnOnce(Access) -> Result<T, E>,
) -> Result<T, E> {
    access.check_format().await?;
    work(access).await
}
