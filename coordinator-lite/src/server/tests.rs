use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;
use crate::messages::{Reply, Request};
use crate::proof::{Nonce, Side, Talk};
use crate::wire::{self, Reader};
use crate::{Deadlines, Hello, Member, Refusal, Session, Welcome, join};

mod sessions;
mod unix;

const WAIT: Duration = Duration::from_secs(20);

fn server() -> Server {
    Server::bind("127.0.0.1:0".parse().unwrap(), Secret::from_bytes([7; 32])).unwrap()
}

fn hello(rank: u32, nranks: u32) -> Hello {
    Hello { group: "world".into(), rank, nranks, member: Member::current("node0", rank).unwrap() }
}

/// Joins on a thread of its own.
fn join_thread(server: &Server, hello: Hello, wait: Duration) -> JoinHandle<Result<Welcome, Error>> {
    let id = server.unique_id();
    thread::spawn(move || join(id.addr(), id.secret(), hello, wait))
}

fn assert_works(server: &Server) {
    let threads: Vec<_> = (0..2).map(|rank| join_thread(server, hello(rank, 2), WAIT)).collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap().unwrap().members.len(), 2);
    }
}

/// Everything that the server sends until it closes.
fn read_all(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let mut bytes = Vec::new();
    // A reset after the answer counts as closed.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn sixty_four_ranks_join_quickly() {
    // All ranks get the same job and the members in rank order, far below the 0.3 s allowed.
    let server = server();
    let hellos: Vec<_> = (0..64).map(|rank| hello(rank, 64)).collect();
    let started = Instant::now();
    let threads: Vec<_> = hellos.into_iter().map(|hello| join_thread(&server, hello, WAIT)).collect();
    let welcomes: Vec<Welcome> = threads.into_iter().map(|t| t.join().unwrap().unwrap()).collect();
    let took = started.elapsed();
    assert!(welcomes.iter().all(|w| *w == welcomes[0]));
    assert!(welcomes[0].members.iter().enumerate().all(|(i, m)| m.local_rank as usize == i));
    assert!(welcomes[0].job.len() == 16 && u64::from_str_radix(&welcomes[0].job, 16).is_ok());
    println!("64 ranks joined in {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_name_can_be_used_again_with_another_job() {
    // A second communicator of the same name is a new instance.
    let server = server();
    let id = server.unique_id();
    let first = join(id.addr(), id.secret(), hello(0, 1), WAIT).unwrap();
    let second = join(id.addr(), id.secret(), hello(0, 1), WAIT).unwrap();
    assert_ne!(first.job, second.job);
}

#[test]
fn ranks_may_start_before_the_server() {
    // A refused connection is tried again; the port is known before the server listens on it.
    let addr = server().local_addr();
    let secret = Secret::from_bytes([7; 32]);
    let early = thread::spawn(move || join(addr, &Secret::from_bytes([7; 32]), hello(0, 1), WAIT));
    let server = Server::bind(addr, secret).unwrap();
    assert_eq!(early.join().unwrap().unwrap().members.len(), 1);
    drop(server);
}

#[test]
fn nobody_listening_is_an_error_that_names_the_address() {
    // The deadline holds for connecting as well.
    let addr = server().local_addr();
    let error = join(addr, &Secret::from_bytes([7; 32]), hello(0, 1), Duration::from_millis(30)).unwrap_err();
    assert!(
        matches!(error, Error::Unreachable { .. }) && error.to_string().contains(&addr.to_string()),
        "{error}"
    );
}

#[test]
fn a_busy_port_is_named_with_the_remedy() {
    // The second server on a port gets an error instead of half of the ranks.
    let first = server();
    let error = Server::bind(first.local_addr(), Secret::random().unwrap()).unwrap_err();
    assert!(matches!(error, Error::PortBusy(_)));
    assert!(error.to_string().contains(&first.local_addr().port().to_string()), "{error}");
    assert!(matches!(
        Server::bind("203.0.113.1:0".parse().unwrap(), Secret::random().unwrap()).unwrap_err(),
        Error::Bind { .. }
    ));
}

#[test]
fn a_wrong_secret_is_refused_and_hurts_nobody() {
    // The stranger learns that the secret is wrong; rank 0's place is still free.
    let server = server();
    let stranger = Secret::from_bytes([8; 32]);
    let error = join(server.local_addr(), &stranger, hello(0, 2), WAIT).unwrap_err();
    assert!(matches!(error, Error::WrongSecret { .. }), "{error}");
    assert!(!error.to_string().contains("0808"));
    assert_works(&server);
}

#[test]
fn the_missing_ranks_are_named_at_the_deadline() {
    // The list comes from the server, which alone knows it, to every rank that waits.
    let server = server();
    let patient = join_thread(&server, hello(3, 4), WAIT);
    let hasty = join_thread(&server, hello(1, 4), Duration::from_millis(300));
    for thread in [hasty, patient] {
        let error = thread.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("2 of 4 ranks missing") && error.contains("0, 2"), "{error}");
    }
}

/// Proves and sends an init by hand, and keeps the connection.
fn silent_member(server: &Server, hello: Hello) -> TcpStream {
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    let rank = Nonce([1; 32]);
    say(&mut stream, &Request::Hello { nonce: rank, same_user: false });
    let Reply::Challenge { nonce: coordinator, .. } = hear(&mut stream) else { panic!("a challenge is due") };
    let talk = Talk { rank, coordinator };
    let proof = talk.prove(server.unique_id().secret(), Side::Rank);
    say(&mut stream, &Request::Prove { proof });
    say(&mut stream, &Request::Init { wait_ms: 20_000, hello });
    stream
}

/// Waits until `count` ranks of the only group are here.
fn wait_until_here(server: &Server, count: u32) {
    let started = Instant::now();
    let key = server.unique_id().secret().into();
    let here =
        || crate::status(server.endpoint(), &key, WAIT).unwrap().waiting.first().map(|group| group.here);
    while here() != Some(count) {
        assert!(started.elapsed() < WAIT, "waited in vain for {count} ranks");
    }
}

fn say(stream: &mut TcpStream, request: &Request) {
    wire::write_message(stream, request, wire::REQUEST_BYTES_MAX).unwrap();
}

/// The next reply, within the deadline.
fn hear(stream: &mut TcpStream) -> Reply {
    stream.set_read_timeout(Some(WAIT)).unwrap();
    Reader::new(wire::REPLY_BYTES_MAX).poll(stream).unwrap().expect("a reply within the deadline")
}

#[test]
fn a_rank_that_dies_while_waiting_is_named_to_the_others() {
    // The others do not wait for the deadline: the closed connection is enough.
    let server = server();
    let started = Instant::now();
    let dying = silent_member(&server, hello(1, 3));
    let other = join_thread(&server, hello(0, 3), WAIT);
    wait_until_here(&server, 2);
    drop(dying);
    let error = other.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::Vanished { rank: 1, .. })), "{error}");
    assert!(started.elapsed() < WAIT);
}

#[test]
fn garbage_gets_an_answer_and_hurts_nobody() {
    // HTTP, 4 GiB, another version, bad JSON: refused one by one while a member waits unharmed.
    let server = server();
    let member = join_thread(&server, hello(0, 2), WAIT);
    let mut huge = wire::encode(&0u8, 10).unwrap();
    huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut newer = wire::encode(&0u8, 10).unwrap();
    newer[4..6].copy_from_slice(&9u16.to_le_bytes());
    let text = wire::encode(&"hello", 10).unwrap();
    let cases: [(&[u8], &str); 5] = [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "ERROR the commands are"),
        (b"RST", "starts with"),
        (&huge, "over the limit of 4096"),
        (&newer, "\"theirs\":9"),
        (&text, "cannot be read"),
    ];
    for (bytes, expected) in cases {
        let mut stream = TcpStream::connect(server.local_addr()).unwrap();
        stream.write_all(bytes).unwrap();
        let answer = String::from_utf8_lossy(&read_all(stream)).into_owned();
        assert!(answer.contains(expected), "{answer}");
    }
    let last = join_thread(&server, hello(1, 2), WAIT);
    assert!(member.join().unwrap().is_ok() && last.join().unwrap().is_ok());
}

#[test]
fn half_open_and_slow_peers_do_not_delay_others() {
    // Twenty peers that say nothing or half a header stay connected while a group joins.
    let server = server();
    let silent: Vec<_> = (0..20)
        .map(|i| {
            let mut stream = TcpStream::connect(server.local_addr()).unwrap();
            stream.write_all(&b"RCRV\x02\x00\x00\x00\xff"[..i % 9]).unwrap();
            stream
        })
        .collect();
    let started = Instant::now();
    assert_works(&server);
    assert!(started.elapsed() < Duration::from_secs(4), "the silent peers' own deadline is 5 s");
    drop(silent);
    assert_works(&server);
}

#[test]
fn silent_peers_are_dropped_at_their_deadline() {
    // With the clock turned by hand: a peer that says nothing lasts 5 s, one that has proved and joined nothing
    // 10 s, a member that waits stays.
    let (listener, endpoint) = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
    let (_stop, stopped) = UnixStream::pair().unwrap();
    let rules = Rules { access: Secret::from_bytes([7; 32]).into(), uid: 0, endpoint: endpoint.clone() };
    let mut server = Loop::new(listener, stopped, rules, Entropy::new().unwrap()).unwrap();
    let addr = endpoint.addr().unwrap();
    let _silent = TcpStream::connect(addr).unwrap();
    let joining = thread::spawn(move || join(addr, &Secret::from_bytes([7; 32]), hello(0, 2), WAIT));
    let started = Instant::now();
    while server.connections.len() < 2 || server.state.groups() == 0 {
        assert!(server.turn() && started.elapsed() < WAIT);
    }
    let now = Instant::now();
    assert_eq!((server.connections.len(), server.unproved.len()), (2, 1));
    server.expire(started + event_loop::PROVE_WITHIN - Duration::from_millis(1));
    assert_eq!(server.connections.len(), 2);
    server.expire(now + event_loop::PROVE_WITHIN);
    assert_eq!((server.connections.len(), server.unproved.len(), server.state.groups()), (1, 0, 1));
    server.expire(now + 100 * event_loop::IDLE_MAX);
    assert_eq!(server.connections.len(), 1, "who waits has the deadline of its group");
    drop(server);
    assert!(joining.join().unwrap().is_err());
}

#[test]
fn a_member_that_talks_out_of_turn_leaves_its_group() {
    // Bytes behind a hello are a broken peer: the others learn that the rank is gone.
    let server = server();
    let mut rude = silent_member(&server, hello(1, 3));
    let other = join_thread(&server, hello(0, 3), WAIT);
    rude.write_all(b"more of it").unwrap();
    // Whichever came first, rank 0 ends: by the news, or as the first of a new group with rank 1.
    assert!(String::from_utf8_lossy(&read_all(rude)).contains("Malformed"));
    drop(server);
    assert!(other.join().unwrap().is_err());
}

#[test]
fn an_impostor_on_the_port_is_recognised_and_learns_nothing() {
    // A web server, one that hangs up, and one that plays coordinator without the secret: three errors, and
    // none of them hears who the rank is.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let web = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
        let (mut player, _) = listener.accept().unwrap();
        let Ok(Some(Request::Hello { nonce, .. })) = Reader::new(4096).poll(&mut player) else {
            panic!("a hello is due")
        };
        let talk = Talk { rank: nonce, coordinator: Nonce([1; 32]) };
        let proof = Some(talk.prove(&Secret::from_bytes([9; 32]), Side::Coordinator));
        let challenge = Reply::Challenge { nonce: talk.coordinator, proof };
        wire::write_message(&mut player, &challenge, wire::REPLY_BYTES_MAX).unwrap();
        let heard = read_all(player);
        // Hanging up is taken for a flooded coordinator, so it is tried again before it counts.
        let mut hung_up = 0;
        while hung_up < 21 {
            drop(listener.accept().unwrap());
            hung_up += 1;
        }
        heard
    });
    let secret = Secret::from_bytes([7; 32]);
    let error = join(addr, &secret, hello(0, 1), WAIT).unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    let error = join(addr, &secret, hello(0, 1), WAIT).unwrap_err();
    assert!(matches!(error, Error::WrongSecret { .. }), "{error}");
    let error = join(addr, &secret, hello(0, 1), WAIT).unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert_eq!(web.join().unwrap(), b"", "nothing follows a challenge that does not hold");
}

#[test]
fn a_newer_coordinator_is_recognised_by_the_rank() {
    // The rank names both wire versions.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let newer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut frame = wire::encode(&0u8, 10).unwrap();
        frame[4..6].copy_from_slice(&3u16.to_le_bytes());
        stream.write_all(&frame).unwrap();
        read_all(stream);
    });
    let error = join(addr, &Secret::from_bytes([7; 32]), hello(0, 1), WAIT).unwrap_err();
    assert!(matches!(error, Error::WireVersion { ours: 2, theirs: 3, .. }), "{error}");
    newer.join().unwrap();
}

#[test]
fn dropping_the_server_ends_its_thread_and_frees_the_port() {
    // Ranks that wait see the end at once, and the port can be bound again.
    let server = server();
    let addr = server.local_addr();
    let waiting = silent_member(&server, hello(0, 2));
    drop(server);
    assert_eq!(read_all(waiting), b"");
    assert!(Server::bind(addr, Secret::from_bytes([7; 32])).is_ok());
}
