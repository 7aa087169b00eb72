//! The address of a coordinator that runs already.

use super::env::Vars;
use super::form::{Form, Reading, shown, utf8};
use super::table::{COORDINATOR_ADDR, COORDINATOR_TRANSPORT, CoordinatorTransport};
use crate::error::Error;
use std::ffi::OsStr;
use std::path::PathBuf;

/// Where a coordinator listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorAddr {
    /// At a socket in the file system; the path is absolute.
    Unix(PathBuf),
    /// At `HOST:PORT`.
    Tcp(String),
}

/// Longest path of a socket: the kernel's structure has 108 bytes, the last of which is zero.
const SOCKET_PATH_BYTES: usize = 107;

/// An absolute path or `HOST:PORT`, with `unix:` or `tcp:` in front or without.
#[derive(Debug)]
pub(super) struct Address;

impl Form<CoordinatorAddr> for Address {
    fn read(&self, text: &OsStr) -> Result<Reading<CoordinatorAddr>, String> {
        let text = utf8(text);
        let (path, host) = match (text.strip_prefix("unix:"), text.strip_prefix("tcp:")) {
            (Some(path), _) => (Some(path), None),
            (_, Some(host)) => (None, Some(host)),
            _ if text.starts_with('/') => (Some(text), None),
            _ => (None, Some(text)),
        };
        if let Some(path) = path.filter(|path| path.starts_with('/')) {
            if path.len() > SOCKET_PATH_BYTES || path.contains('\0') {
                return Err(format!("a path of at most {SOCKET_PATH_BYTES} bytes, as sockets need"));
            }
            return Ok(Reading::Value(CoordinatorAddr::Unix(path.into())));
        }
        let port = |host: &str| host.rsplit_once(':').filter(|(host, _)| !host.is_empty())?.1.parse().ok();
        match host.filter(|host| port(host).is_some_and(|port: u16| port != 0)) {
            Some(host) => Ok(Reading::Value(CoordinatorAddr::Tcp(host.into()))),
            None => Err("the absolute path of a socket, or HOST:PORT with a port from 1 to 65535".into()),
        }
    }

    fn allowed(&self) -> String {
        "an absolute path, or `HOST:PORT`; also with `unix:` or `tcp:` in front".into()
    }
}

/// The coordinator that the variables name, if they name one.
///
/// # Errors
/// [`Error::Setting`] for a bad address or transport, and for a transport that does not fit the address.
pub fn coordinator(vars: &Vars) -> Result<Option<CoordinatorAddr>, Error> {
    let transport = COORDINATOR_TRANSPORT.find(vars)?;
    let Some(addr) = COORDINATOR_ADDR.find(vars)? else { return Ok(None) };
    let fits = |asked: CoordinatorTransport| match addr.value {
        Some(CoordinatorAddr::Unix(_)) => asked == CoordinatorTransport::Unix,
        _ => asked == CoordinatorTransport::Tcp,
    };
    match transport {
        Some(transport) if !transport.value.is_none_or(fits) => Err(Error::Setting {
            name: transport.name,
            value: transport.text,
            expected: format!("what fits {}={}; unset the transport", addr.name, shown(addr.text.as_ref())),
        }),
        _ => Ok(addr.value),
    }
}
