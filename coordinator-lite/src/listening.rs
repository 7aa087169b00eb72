//! Who listens on a port of this host: for the message about a coordinator that takes connections and says nothing.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// How long looking through the processes may take.
const LOOK_FOR: Duration = Duration::from_millis(300);
/// What the kernel's table of sockets calls one that listens.
const LISTENS: &str = "0A";

/// A process that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Its process id.
    pub pid: u32,
    /// Whether it is stopped, by a signal or by a debugger, and so cannot answer.
    pub is_stopped: bool,
}

/// The process that listens at `addr`, if it is one of this host that this process may look into.
///
/// What is found may have changed at once.
pub fn listening(addr: SocketAddr) -> Option<Listening> {
    // Only an address of this host can be bound; the same port of another host says nothing.
    UdpSocket::bind((addr.ip(), 0)).ok()?;
    let table = match addr {
        SocketAddr::V4(_) => ["/proc/net/tcp", "/proc/net/tcp6"],
        SocketAddr::V6(_) => ["/proc/net/tcp6", "/proc/net/tcp"],
    };
    let inode = table.iter().find_map(|path| inode(&fs::read_to_string(path).ok()?, addr))?;
    let pid = holder(&format!("socket:[{inode}]"))?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program may hold anything, so the state is looked for behind its end.
    let is_stopped = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']));
    Some(Listening { pid, is_stopped })
}

/// The inode of the socket that listens at `addr`, by the kernel's table.
fn inode(table: &str, addr: SocketAddr) -> Option<u64> {
    let port = format!("{:04X}", addr.port());
    let lines = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (ip, found) = fields.next()?.split_once(':')?;
        // Behind the remote end and the state: queues, timer, retries, user and time-out.
        let is_listening = fields.nth(1)? == LISTENS;
        let inode = fields.nth(5)?.parse().ok()?;
        (is_listening && found == port && (ip == hex(addr.ip()) || ip.bytes().all(|b| b == b'0')))
            .then_some(inode)
    });
    lines.max()
}

/// An address as the table writes it: words of four bytes, each as this machine reads it.
fn hex(ip: IpAddr) -> String {
    let words = |bytes: &[u8]| {
        let (words, _) = bytes.as_chunks::<4>();
        words.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect()
    };
    match ip {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    }
}

/// The first process that has a descriptor of this name.
fn holder(name: &str) -> Option<u32> {
    let until = Instant::now() + LOOK_FOR;
    let pids =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.take_while(|_| Instant::now() < until).find(|pid| {
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        open.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listener_of_this_process_is_found() {
        // By its own address, and by a wildcard's; nothing is found once it is closed, or at another host.
        for bound in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(bound).unwrap();
            let addr = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
            let expected = Listening { pid: std::process::id(), is_stopped: false };
            assert_eq!(listening(addr), Some(expected), "{bound}");
            assert_eq!(listening(SocketAddr::from(([192, 0, 2, 1], addr.port()))), None);
            drop(listener);
            assert_eq!(listening(addr), None);
        }
    }

    #[test]
    fn the_kernels_table_is_read() {
        // Connections of the same port, other ports and broken lines are passed over.
        let table =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 0100007F:8A2C 01 00000000:00000000 00:00000000 00000000     0        0 11 1
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 22 1
   2: 0200007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 33 1
   3: 00000000:1F92 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 44 1
   4: 0100007F:1F93 00000000:0000 0A
   nonsense\n";
        let at = |port: u16| inode(table, SocketAddr::from(([127, 0, 0, 1], port)));
        // The words above are those of a little-endian machine.
        let near = cfg!(target_endian = "little").then_some(22);
        assert_eq!((at(8080), at(8081), at(8082), at(8083), at(1)), (near, None, Some(44), None, None));
        assert_eq!(inode("", SocketAddr::from(([127, 0, 0, 1], 8080))), None);
    }
}
