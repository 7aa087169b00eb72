//! Unix sockets: who is let in by user id, and what operators may ask.

use std::path::PathBuf;

use super::*;
use crate::{Key, ping, shutdown, status};

fn coordinator(trust_uid: bool) -> (tempfile::TempDir, PathBuf, Coordinator) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("coordinator");
    let endpoint = Endpoint::unix(&path).unwrap();
    let access = Access { secret: Secret::from_bytes([7; 32]), trust_uid };
    let coordinator = Coordinator::open(&endpoint, access).unwrap();
    (directory, path, coordinator)
}

fn session(coordinator: &Coordinator, key: impl Into<Key>) -> Result<Session, Error> {
    let deadlines = Deadlines { connect: WAIT, join: WAIT };
    Session::join(coordinator.endpoint(), key, hello(0, 1), deadlines).map(|joined| joined.0)
}

#[test]
fn ranks_join_over_a_unix_socket() {
    // With the secret always; with the user id alone only where the coordinator trusts it.
    let (_directory, _, strict) = coordinator(false);
    assert!(session(&strict, Secret::from_bytes([7; 32])).is_ok());
    let error = session(&strict, Secret::from_bytes([8; 32])).unwrap_err();
    assert!(matches!(error, Error::WrongSecret { .. }), "{error}");
    let error = session(&strict, Key::SameUser).unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::SecretNeeded)), "{error}");
    let (_directory, _, trusting) = coordinator(true);
    assert!(session(&trusting, Key::SameUser).is_ok());
    assert!(session(&trusting, Secret::from_bytes([7; 32])).is_ok());
}

#[test]
fn operators_of_the_same_user_need_no_secret() {
    // Ping, status and shutdown; the socket is gone afterwards and the handle hears of the end.
    let (_directory, path, coordinator) = coordinator(false);
    let endpoint = coordinator.endpoint().clone();
    assert_eq!(ping(&endpoint, WAIT).unwrap(), "OK ringccl status=ready version=1 transport=unix");
    let member = session(&coordinator, Secret::from_bytes([7; 32])).unwrap();
    let seen = status(&endpoint, &Key::SameUser, WAIT).unwrap();
    assert_eq!((seen.connections, seen.unproved, seen.pid), (2, 1, std::process::id()));
    assert_eq!((seen.communicators.len(), seen.communicators[0].active), (1, 1));
    shutdown(&endpoint, &Key::SameUser, WAIT).unwrap();
    let ended = coordinator.ended_fd().unwrap();
    let mut fds = [nix::poll::PollFd::new(ended, nix::poll::PollFlags::POLLIN)];
    assert_eq!(nix::poll::poll(&mut fds, 10_000u16).unwrap(), 1);
    assert!(!path.exists());
    member.destroy();
}

#[test]
fn a_stranger_on_tcp_may_only_ping() {
    // Status and shutdown need the secret there; the text SHUTDOWN too.
    let server = server();
    let (endpoint, secret) = (server.endpoint().clone(), server.unique_id().secret().clone());
    assert_eq!(ping(&endpoint, WAIT).unwrap(), "OK ringccl status=ready version=1 transport=tcp");
    let needed = |error: Error| assert!(matches!(error, Error::Refused(Refusal::NotProved)), "{error}");
    needed(status(&endpoint, &Key::SameUser, WAIT).unwrap_err());
    needed(shutdown(&endpoint, &Key::SameUser, WAIT).unwrap_err());
    let error = session_on_tcp(&server).unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::SecretNeeded)), "{error}");
    for text in ["SHUTDOWN\n".to_owned(), format!("SHUTDOWN {}\n", "00".repeat(32))] {
        assert!(line(&server, &text).starts_with("ERROR SHUTDOWN needs the secret"));
    }
    assert_eq!(status(&endpoint, &Key::Secret(secret.clone()), WAIT).unwrap().endpoint, endpoint.to_string());
    let answer = line(&server, &format!("SHUTDOWN {}\n", secret.to_hex()));
    assert_eq!(answer, "OK ringccl status=stopping version=1 transport=tcp\n");
}

fn session_on_tcp(server: &Server) -> Result<Session, Error> {
    let deadlines = Deadlines { connect: WAIT, join: WAIT };
    Session::join(server.endpoint(), Key::SameUser, hello(0, 1), deadlines).map(|joined| joined.0)
}

fn line(server: &Server, text: &str) -> String {
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    String::from_utf8(read_all(stream)).unwrap()
}

#[test]
fn lines_of_scripts_are_taken_however_they_end() {
    // With a line feed, with both ends of line, without any but the end of what is sent; overlong ones get a no.
    let server = server();
    for (text, ends) in [("PING\n", false), ("PING\r\n", false), ("PING", true)] {
        let mut stream = TcpStream::connect(server.local_addr()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        if ends {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        assert!(
            String::from_utf8(read_all(stream)).unwrap().starts_with("OK ringccl status=ready"),
            "{text:?}"
        );
    }
    assert!(line(&server, &"P".repeat(4096)).starts_with("ERROR the commands"));
    assert!(line(&server, "ping\n").starts_with("ERROR the commands"));
    assert!(line(&server, "PING PING\n").starts_with("ERROR the commands"));
}
