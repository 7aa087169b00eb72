//! Lines of NCCL's log that speak of graphs.

use super::graph::{Graph, PathType, Pattern};

/// Reads the `Pattern` part of a log line; what stands before it, such as host and process, is passed over.
///
/// `None` if the line has no such part.
///
/// # Errors
///
/// What is wrong with the part, and how NCCL prints it.
pub fn pattern_line(line: &str) -> Option<Result<Graph, String>> {
    let (_, rest) = line.split_once("Pattern ")?;
    Some(read_pattern(rest).ok_or_else(|| {
        "write the line as NCCL prints it, such as `Pattern 4, crossNic 0, nChannels 8, bw 24.000000/24.000000, type \
         NVL/PIX, sameChannels 0`"
            .to_owned()
    }))
}

fn read_pattern(text: &str) -> Option<Graph> {
    let mut parts = text.split(',').map(str::trim);
    let pattern = Pattern::from_id(parts.next()?.parse().ok()?)?;
    let mut named = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::trim);
    let cross_nic = named("crossNic")?.parse().ok().filter(|nic| *nic <= 2)?;
    let channels = named("nChannels")?.parse().ok()?;
    let (bw_intra, bw_inter) = named("bw")?.split_once('/')?;
    let (type_intra, type_inter) = named("type")?.split_once('/')?;
    let same_channels = match named("sameChannels")? {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    Some(Graph {
        pattern,
        channels,
        bw_intra: bandwidth(bw_intra)?,
        bw_inter: bandwidth(bw_inter)?,
        type_intra: type_intra.parse::<PathType>().ok()?,
        type_inter: type_inter.parse::<PathType>().ok()?,
        same_channels,
        cross_nic,
    })
}

/// A bandwidth as it is printed: digits with at most one point.
fn bandwidth(text: &str) -> Option<f32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse().ok()).flatten()
}

/// The line that NCCL prints for a graph.
pub fn show_pattern(graph: &Graph) -> String {
    format!(
        "Pattern {}, crossNic {}, nChannels {}, bw {:.6}/{:.6}, type {}/{}, sameChannels {}",
        graph.pattern.id(),
        graph.cross_nic,
        graph.channels,
        graph.bw_intra,
        graph.bw_inter,
        graph.type_intra,
        graph.type_inter,
        u8::from(graph.same_channels)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_lines_return() {
        // A line with its prefix is read, and printed again as it was.
        let text = "Pattern 3, crossNic 2, nChannels 8, bw 48.000000/24.000000, type NVL/PXN, sameChannels 1";
        let graph = pattern_line(&format!("node1:77:91 [3] NCCL INFO {text}")).unwrap().unwrap();
        assert_eq!(show_pattern(&graph), text);
        assert!(pattern_line("NCCL INFO Channel 00/12 : 0 1 2 3").is_none());
    }

    #[test]
    fn other_pattern_lines_are_refused() {
        // One field wrong at a time.
        for text in [
            "Pattern ",
            "Pattern 9, crossNic 0, nChannels 8, bw 1/1, type NVL/PIX, sameChannels 0",
            "Pattern 4, crossNic 3, nChannels 8, bw 1/1, type NVL/PIX, sameChannels 0",
            "Pattern 4, crossNic 0, nChannels -8, bw 1/1, type NVL/PIX, sameChannels 0",
            "Pattern 4, crossNic 0, nChannels 8, bw inf/1, type NVL/PIX, sameChannels 0",
            "Pattern 4, crossNic 0, nChannels 8, bw 1/1e9, type NVL/PIX, sameChannels 0",
            "Pattern 4, crossNic 0, nChannels 8, bw 1/1, type NVX/PIX, sameChannels 0",
            "Pattern 4, crossNic 0, nChannels 8, bw 1/1, type NVL/PIX, sameChannels 2",
            "Pattern 4, crossNic 0, nChannels 8, bw 1/1, type NVL/PIX",
        ] {
            let refused = pattern_line(text).unwrap().unwrap_err();
            assert!(refused.contains("sameChannels 0"), "{text}");
        }
    }
}
