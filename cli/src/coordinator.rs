//! `ringccl coordinator`: the daemon, and what is asked of a running one.

mod ask;
mod daemon;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use coordinator_lite::{Endpoint, Key, Secret};
use ringccl::settings::Vars;

/// FakeGPU's variables, read where no flag says otherwise.
const ADDRESS_VARIABLE: &str = "FAKEGPU_COORDINATOR_ADDR";
const TRANSPORT_VARIABLE: &str = "FAKEGPU_COORDINATOR_TRANSPORT";
/// The transport of a daemon that is told an address only, as FakeGPU's.
const TRANSPORT: &str = "unix";
/// Proof of belonging to the job, 64 hex digits.
const SECRET_VARIABLE: &str = "RINGCCL_SECRET";
/// More than a secret, its line end and some blanks.
const SECRET_FILE_BYTES_MAX: u64 = 256;

/// Options of `ringccl coordinator`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, flatten_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Print the answer of a running coordinator to PING
    Ping(AskArgs),
    /// Print what a running coordinator knows: groups, communicators, connections
    Status(StatusArgs),
    /// End a running coordinator; jobs that have started go on
    Shutdown(AskArgs),
}

/// Where a coordinator is.
#[derive(clap::Args)]
struct Place {
    /// Where it listens: `unix:PATH` or `tcp:HOST:PORT`
    #[arg(long, value_name = "ENDPOINT", conflicts_with_all = ["transport", "address"])]
    listen: Option<String>,
    /// `unix` or `tcp` [env: FAKEGPU_COORDINATOR_TRANSPORT] [default: unix]
    #[arg(long, value_name = "TRANSPORT")]
    transport: Option<String>,
    /// Path of the socket, or HOST:PORT [env: FAKEGPU_COORDINATOR_ADDR]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// File with the secret of the job, 64 hex digits, readable by its owner only [env: RINGCCL_SECRET]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

#[derive(clap::Args)]
struct DaemonArgs {
    #[command(flatten)]
    place: Place,
    /// Make a secret and write it there, with mode 0600; the file must not exist
    #[arg(long, value_name = "FILE", conflicts_with = "secret_file")]
    new_secret_file: Option<PathBuf>,
    /// Let ranks of this user join without a secret; Unix sockets only
    #[arg(long)]
    trust_uid: bool,
}

#[derive(clap::Args)]
struct AskArgs {
    #[command(flatten)]
    place: Place,
    /// How long to wait for the answer, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = crate::run::seconds, default_value = "5")]
    timeout: Duration,
}

#[derive(clap::Args)]
struct StatusArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the daemon to its end, or asks a running one.
pub(crate) fn main(args: Args) -> Result<ExitCode> {
    match args.action {
        None => daemon::main(&args.daemon),
        Some(Action::Ping(args)) => ask::ping(&args),
        Some(Action::Status(StatusArgs { ask, json })) => ask::status(&ask, json),
        Some(Action::Shutdown(args)) => ask::shutdown(&args),
    }
}

/// A variable that is set to something.
fn variable(name: &str) -> Result<Option<String>> {
    let vars = Vars::of_process();
    let Some(value) = vars.get(name) else { return Ok(None) };
    match value.to_str() {
        Some(value) => Ok(Some(value.to_owned())),
        None => bail!("{name} is not UTF-8; set it again or unset it"),
    }
}

impl Place {
    fn endpoint(&self) -> Result<Endpoint> {
        if let Some(text) = &self.listen {
            return Ok(text.parse()?);
        }
        let address = match &self.address {
            Some(address) => address.clone(),
            None => variable(ADDRESS_VARIABLE)?.with_context(|| {
                format!("where? give --listen unix:PATH or tcp:HOST:PORT, or set {ADDRESS_VARIABLE}")
            })?,
        };
        let transport = match &self.transport {
            Some(transport) => transport.clone(),
            None => variable(TRANSPORT_VARIABLE)?.unwrap_or_else(|| TRANSPORT.into()),
        };
        Ok(Endpoint::from_parts(&transport, &address)?)
    }

    /// The secret that the user has given, if any.
    fn secret(&self) -> Result<Option<Secret>> {
        if let Some(path) = &self.secret_file {
            return read_secret(path).map(Some);
        }
        let text = variable(SECRET_VARIABLE)?;
        text.map(|text| Secret::from_hex(&text).with_context(|| format!("bad {SECRET_VARIABLE}"))).transpose()
    }

    /// What an operator shows: the secret if there is one, else the user id.
    fn key(&self) -> Result<Key> {
        Ok(self.secret()?.map_or(Key::SameUser, Key::Secret))
    }
}

/// Reads a secret from a file that others cannot read.
fn read_secret(path: &Path) -> Result<Secret> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read the secret file `{shown}`"))?;
    let mode = file.metadata().with_context(|| format!("cannot read the secret file `{shown}`"))?.mode();
    ensure!(
        mode & 0o077 == 0,
        "others may read the secret file `{shown}` (mode {:o}); chmod 600 it",
        mode & 0o777
    );
    let mut text = String::new();
    file.take(SECRET_FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read the secret file `{shown}`"))?;
    Secret::from_hex(text.trim()).with_context(|| format!("bad secret file `{shown}`"))
}

/// Writes a secret to a new file that others cannot read.
fn write_secret(path: &Path, secret: &Secret) -> Result<()> {
    let failed = || format!("cannot write the secret file `{}`", path.display());
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).with_context(failed)?;
    writeln!(file, "{}", secret.to_hex()).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secret_files_are_private_and_survive() {
        // What is written is read back; a file that others may read, one that exists and a bad one are refused.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let secret = Secret::random().unwrap();
        write_secret(&path, &secret).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read_secret(&path).unwrap(), secret);
        assert!(write_secret(&path, &secret).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read_secret(&path).unwrap_err().to_string().contains("mode 640"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "abc").unwrap();
        assert!(read_secret(&path).unwrap_err().to_string().contains("bad secret file"));
    }
}
