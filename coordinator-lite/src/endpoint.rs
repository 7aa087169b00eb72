//! Where a coordinator listens: `unix:PATH` or `tcp:HOST:PORT`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::Error;

/// Largest size of a socket's path in bytes: the kernel's 108 with the zero behind it.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Largest size of an endpoint's text: a scheme, a host name of 253 bytes and a port, or a path.
const TEXT_BYTES_MAX: usize = 270;

/// Address of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Absolute path of a Unix socket.
    Unix(PathBuf),
    /// Address and port of a TCP socket; port 0 only to listen on any free one.
    Tcp(SocketAddr),
}

impl Endpoint {
    /// The endpoint of a Unix socket.
    ///
    /// # Errors
    ///
    /// [`Error::Endpoint`] unless the path is absolute, has at most [`SOCKET_PATH_BYTES_MAX`] bytes, no zero
    /// byte and a file name at its end.
    pub fn unix(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let bytes = path.as_os_str().as_bytes();
        let refuse = |why| Err(Error::Endpoint { text: shown(&path.to_string_lossy()), why });
        if !path.is_absolute() {
            return refuse("the path of a Unix socket must start with `/`");
        }
        if bytes.len() > SOCKET_PATH_BYTES_MAX {
            return refuse("the path of a Unix socket may have 107 bytes at most");
        }
        if bytes.contains(&0) {
            return refuse("the path holds a zero byte");
        }
        if path.file_name().is_none() || bytes.ends_with(b"/") {
            return refuse("the path must end in the socket's own name");
        }
        Ok(Self::Unix(path))
    }

    /// The endpoint that FakeGPU writes as a transport (`unix` or `tcp`, in any case) and an address (a path or
    /// `host:port`).
    ///
    /// # Errors
    ///
    /// [`Error::Endpoint`] with what is wrong.
    pub fn from_parts(transport: &str, address: &str) -> Result<Self, Error> {
        match transport.to_ascii_lowercase().as_str() {
            "unix" => Self::unix(address),
            "tcp" => tcp(address),
            _ => Err(Error::Endpoint { text: shown(transport), why: "the transport is `unix` or `tcp`" }),
        }
    }

    /// `unix` or `tcp`.
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Unix(_) => "unix",
            Self::Tcp(_) => "tcp",
        }
    }

    /// The path of a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Unix(path) => Some(path),
            Self::Tcp(_) => None,
        }
    }

    /// The address of a TCP socket.
    pub fn addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(addr) => Some(*addr),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(addr: SocketAddr) -> Self {
        Self::Tcp(addr)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A path may hold any bytes; what is shown stays on one line.
            Self::Unix(path) => write!(f, "unix:{}", path.to_string_lossy().escape_debug()),
            Self::Tcp(addr) => write!(f, "tcp:{addr}"),
        }
    }
}

/// Reads `unix:PATH` or `tcp:HOST:PORT`; a host name is looked up, and its first address counts.
impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some(("unix", path)) => Self::unix(path),
            Some(("tcp", address)) => tcp(address),
            _ => Err(Error::Endpoint {
                text: shown(text),
                why: "an endpoint is `unix:PATH` with an absolute path, or `tcp:HOST:PORT`",
            }),
        }
    }
}

fn tcp(address: &str) -> Result<Endpoint, Error> {
    let refuse = |why| Error::Endpoint { text: shown(address), why };
    if address.len() > TEXT_BYTES_MAX {
        return Err(refuse("it is too long for a host and a port"));
    }
    if let Ok(addr) = address.parse() {
        return Ok(Endpoint::Tcp(addr));
    }
    let (host, port) = address.rsplit_once(':').ok_or_else(|| refuse("the port is missing: HOST:PORT"))?;
    // `+5` would be a number to Rust.
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refuse("the port is a number from 0 to 65535"));
    }
    let port: u16 = port.parse().map_err(|_| refuse("the port is a number from 0 to 65535"))?;
    let host_is_sane = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if host.is_empty() || !host.chars().all(host_is_sane) {
        return Err(refuse("the host is a name or an address (IPv6 in brackets)"));
    }
    let mut found = (host, port).to_socket_addrs().map_err(|_| refuse("the host name is not known here"))?;
    found.next().map(Endpoint::Tcp).ok_or_else(|| refuse("the host name has no address"))
}

/// Text from outside, cut and without control characters.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(120).flat_map(char::escape_debug).collect();
    if text.chars().nth(120).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn endpoints_survive_their_text() {
        // What is shown is read back as the same endpoint, for paths and both address families.
        for text in
            ["unix:/run/a.sock", "unix:/a b:c", "tcp:127.0.0.1:0", "tcp:10.1.2.3:65535", "tcp:[::1]:7"]
        {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), text);
            assert_eq!(&text[..text.find(':').unwrap()], endpoint.transport());
        }
        let named: Endpoint = "tcp:localhost:80".parse().unwrap();
        assert!(
            named.addr().is_some_and(|a| a.ip().is_loopback() && a.port() == 80) && named.path().is_none()
        );
    }

    #[test]
    fn bad_endpoints_say_what_is_wrong() {
        // Each mistake has its own reason, on one line.
        let long = format!("unix:/{}", "x".repeat(SOCKET_PATH_BYTES_MAX));
        let cases = [
            ("", "an endpoint is"),
            ("/tmp/x", "an endpoint is"),
            ("udp:1.2.3.4:5", "an endpoint is"),
            ("unix:relative", "must start with `/`"),
            ("unix:", "must start with `/`"),
            ("unix:/", "own name"),
            ("unix:/tmp/", "own name"),
            ("unix:/tmp/..", "own name"),
            ("unix:/a\0b", "zero byte"),
            (long.as_str(), "107 bytes"),
            ("tcp:127.0.0.1", "port is missing"),
            ("tcp:127.0.0.1:", "number from 0"),
            ("tcp:127.0.0.1:65536", "number from 0"),
            ("tcp:127.0.0.1:+5", "number from 0"),
            ("tcp::5", "host is a name"),
            ("tcp:a b:5", "host is a name"),
            ("tcp:::1:5:x", "number from 0"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{text:?}: {error}");
        }
        let exact = format!("/{}", "x".repeat(SOCKET_PATH_BYTES_MAX - 1));
        assert!(Endpoint::unix(exact).is_ok());
    }

    #[test]
    fn fakegpu_names_endpoints_in_two_parts() {
        // Transport and address, as its flags and variables have them.
        assert_eq!(Endpoint::from_parts("unix", "/tmp/s").unwrap().to_string(), "unix:/tmp/s");
        assert_eq!(Endpoint::from_parts("TCP", "127.0.0.1:9").unwrap().to_string(), "tcp:127.0.0.1:9");
        assert!(Endpoint::from_parts("shm", "/tmp/s").unwrap_err().to_string().contains("`unix` or `tcp`"));
    }

    proptest! {
        #[test]
        fn hostile_text_never_panics(path in ".*", port in any::<u32>()) {
            // Only texts that are refused before any look-up of names are tried here.
            let _ = format!("unix:{path}").parse::<Endpoint>();
            let _ = format!("tcp:!{path}:{port}").parse::<Endpoint>();
            let _ = Endpoint::from_parts(&path, "x");
        }
    }
}
