//! Postgres client programs, in the version of the server that they access.
use std::{ffi::OsString, path::PathBuf, process::Stdio};

use postgres_supervisor::Binaries;
use sqlx::{
    Connection as _, PgConnection,
    postgres::{PgConnectOptions, PgSslMode},
};
use tokio::process::{Child, Command};

use super::{EmbeddedError, about};

/// Access to a database for the server and for client programs.
#[derive(Debug, Clone)]
pub struct Access {
    /// Connection options of the server.
    pub options: PgConnectOptions,
    /// Environment variables for client programs, because all users can read a command line.
    environment: Vec<(&'static str, OsString)>,
}

impl Access {
    /// Parses a database URL.
    ///
    /// # Errors
    /// [`EmbeddedError::Url`]. The message omits the URL, because it may contain a password.
    pub fn of_url(url: &str) -> Result<Access, EmbeddedError> {
        let wrong = |_| EmbeddedError::Url("expected postgres://USER@HOST/DATABASE".into());
        let options = event_log::connect::options(url).map_err(|error| wrong(error.to_string()))?;
        let mut access = Access::of(options);
        let parsed = reqwest::Url::parse(url).map_err(|error| wrong(error.to_string()))?;
        let mut set_env = |name, value: &str| access.environment.push((name, value.into()));
        if let Some(password) = parsed.password() {
            let password = percent_encoding::percent_decode_str(password).decode_utf8();
            set_env("PGPASSWORD", &password.map_err(|error| wrong(error.to_string()))?);
        }
        for (key, value) in parsed.query_pairs() {
            match &*key {
                "password" => set_env("PGPASSWORD", &value),
                "sslrootcert" | "ssl-root-cert" | "ssl-ca" => set_env("PGSSLROOTCERT", &value),
                "sslcert" | "ssl-cert" => set_env("PGSSLCERT", &value),
                "sslkey" | "ssl-key" => set_env("PGSSLKEY", &value),
                _ => {}
            }
        }
        Ok(access)
    }

    /// Access without a password.
    pub fn of(options: PgConnectOptions) -> Access {
        let host = match options.get_socket() {
            Some(directory) => directory.clone().into_os_string(),
            None => options.get_host().into(),
        };
        let ssl_mode = match options.get_ssl_mode() {
            PgSslMode::Disable => "disable",
            PgSslMode::Allow => "allow",
            PgSslMode::Prefer => "prefer",
            PgSslMode::Require => "require",
            PgSslMode::VerifyCa => "verify-ca",
            PgSslMode::VerifyFull => "verify-full",
        };
        let environment = vec![
            ("PGHOST", host),
            ("PGPORT", options.get_port().to_string().into()),
            ("PGUSER", options.get_username().into()),
            ("PGDATABASE", options.get_database().unwrap_or(options.get_username()).into()),
            ("PGSSLMODE", ssl_mode.into()),
        ];
        Access { options, environment }
    }

    /// Checks that the log of the database, if there is one, has the format that this program
    /// reads.
    ///
    /// # Errors
    ///
    /// [`EmbeddedError::Log`] for another format, or [`EmbeddedError::Setup`] if a database
    /// operation fails.
    pub async fn check_format(&self) -> Result<(), EmbeddedError> {
        let mut connection = self.connect().await?;
        event_log::migrate::check_format(&mut connection).await?;
        Ok(connection.close().await?)
    }

    pub async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        PgConnection::connect_with(&self.options).await
    }
}

/// Client programs of one major version.
#[derive(Debug, Clone)]
pub struct Tools {
    directory: PathBuf,
}

impl Tools {
    /// Finds the programs for the server of a connection, in the same directories as the binaries
    /// of the private Postgres.
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub async fn of(server: &mut PgConnection) -> Result<(Tools, u32), EmbeddedError> {
        let version = "select current_setting('server_version_num')::int / 10000";
        let major: i32 = sqlx::query_scalar(version).fetch_one(server).await?;
        let major = u32::try_from(major).unwrap_or(0);
        // The search waits for programs that print their versions.
        let search = tokio::task::spawn_blocking(move || Binaries::clients(major)).await;
        let directory = search.map_err(std::io::Error::other).map_err(about("PATH"))??;
        Ok((Tools { directory }, major))
    }

    /// Starts a program with access to a database. The program is killed when the returned value is
    /// dropped.
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub fn start(
        &self,
        program: &'static str,
        access: &Access,
        configure: impl FnOnce(&mut Command),
    ) -> Result<RunningTool, EmbeddedError> {
        let mut command = Command::new(self.directory.join(program));
        command.env("LC_ALL", "C").env_remove("PGOPTIONS").env_remove("PGSERVICE");
        command.envs(access.environment.iter().map(|(name, value)| (name, value)));
        configure(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.kill_on_drop(true).spawn().map_err(about(program))?;
        Ok(RunningTool { program, child })
    }
}

pub struct RunningTool {
    program: &'static str,
    child: Child,
}

impl RunningTool {
    /// Waits until the program ends.
    ///
    /// # Errors
    /// [`EmbeddedError::Tool`] with the first lines of its error output.
    pub async fn end(self) -> Result<(), EmbeddedError> {
        let program = self.program;
        let done = self.child.wait_with_output().await.map_err(about(program))?;
        if done.status.success() {
            return Ok(());
        }
        let output = String::from_utf8_lossy(&done.stderr);
        let lines: Vec<_> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let first = lines.iter().take(3).copied().collect::<Vec<_>>().join(" · ");
        Err(EmbeddedError::Tool { program, output: format!("{} ({first})", done.status) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_for_the_environment_and_never_in_a_message() {
        let access = Access::of_url("postgres://me:p%40ss@db.example:6000/stead?sslmode=require");
        let shown = format!("{:?}", access.unwrap().environment);
        assert!(shown.contains(r#"("PGPASSWORD", "p@ss")"#), "{shown}");
        assert!(shown.contains(r#"("PGHOST", "db.example")"#), "{shown}");
        assert!(shown.contains(r#"("PGSSLMODE", "require")"#), "{shown}");
        let wrong = Access::of_url("postgres://me:secret@db:port/stead").unwrap_err().to_string();
        assert!(!wrong.contains("secret"), "{wrong}");
        let socket = Access::of_url("postgres://o@%2Frun%2Fpg:5432/stead").unwrap();
        assert!(format!("{:?}", socket.environment).contains(r#"("PGHOST", "/run/pg")"#));
    }
}
