//! In which order NCCL's ring adds up each element: a model written from NCCL's source, without a line of RingCCL.
//!
//! It does what NCCL 2.30 does, in its two halves: the host cuts the buffer into channels and chunks
//! (`scheduleCollTasksToPlan`, `calcCollChunking` in src/enqueue.cc), and the kernels of all ranks pass messages around
//! the ring (`runRing` in src/device/all_reduce.h, reduce.h, reduce_scatter.h), here with the ranks whose inputs are in
//! a message instead of the sums.

/// NCCL's protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proto {
    Ll,
    Ll128,
    Simple,
}

/// The collectives that reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    AllReduce,
    Reduce { root: u32 },
    ReduceScatter,
}

/// What the order depends on.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) op: Op,
    /// Elements as the call has them: of the buffer, or of a block of a reduce-scatter.
    pub(crate) count: usize,
    /// Bytes of an element.
    pub(crate) size: usize,
    /// The ranks in the order of the ring.
    pub(crate) ring: Vec<u32>,
    pub(crate) channels: usize,
    pub(crate) proto: Proto,
    /// Bytes of the buffer of a connection in this protocol.
    pub(crate) buffer: usize,
}

/// Elements whose inputs are added up in the same order: `ranks[0]` plus `ranks[1]`, plus `ranks[2]`, and so on.
///
/// They count in the buffer of the call that has something of everything: for a reduce-scatter, of all blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) ranks: Vec<u32>,
}

/// The runs of all elements in the order of the buffer.
pub(crate) fn runs(shape: &Shape) -> Vec<Run> {
    let chunk = chunk_elements(shape);
    let (mut at, mut runs) = (0, vec![]);
    for part in channel_counts(shape) {
        match shape.op {
            Op::AllReduce => all_reduce(shape, at, part, chunk, &mut runs),
            Op::Reduce { root } => reduce(shape, at, part, chunk, root, &mut runs),
            Op::ReduceScatter => reduce_scatter(shape, at, part, chunk, &mut runs),
        }
        at += part;
    }
    assert_eq!(at, shape.count, "the channels have other elements than the call: {shape:?}");
    runs.retain(|run: &Run| run.len > 0);
    runs.sort_by_key(|run| run.offset);
    let mut end = 0;
    for run in &runs {
        assert_eq!(run.offset, end, "elements are left out or done twice: {shape:?}");
        end += run.len;
    }
    runs
}

fn round_up(number: usize, to: usize) -> usize {
    number.div_ceil(to) * to
}

/// How many elements each channel gets.
///
/// Work is handed out in cells that make 32 KiB of traffic; one byte of payload makes 2 bytes of traffic in an
/// all-reduce, one per rank in a reduce-scatter, and four times that in LL.
fn channel_counts(shape: &Shape) -> Vec<usize> {
    if shape.count == 0 {
        return vec![];
    }
    let mut weight = match shape.op {
        Op::AllReduce => 2,
        Op::ReduceScatter => shape.ring.len(),
        Op::Reduce { .. } => 1,
    };
    if shape.proto == Proto::Ll {
        weight *= 4;
    }
    let payload = shape.count * shape.size;
    let cell = round_up(32768usize.div_ceil(weight), 16);
    let mut left = payload.div_ceil(cell);
    let mut cells = vec![];
    if shape.channels == 1 {
        cells.push(left);
    } else {
        let fair = round_up((payload * weight).max(32768) / shape.channels, 16);
        let quota = left.min(fair.div_ceil(cell * weight));
        cells.push(quota);
        left -= quota;
        let others = shape.channels - 1;
        if left.div_ceil(quota) > others {
            // Fair shares do not suffice, because they were rounded down: what is left is shared out anew.
            let quota = left / others;
            cells.extend(vec![quota; others - 1]);
            cells.push(quota + left % others);
        } else {
            while left > 0 {
                cells.push(quota.min(left));
                left -= quota.min(left);
            }
        }
    }
    let elements = cell / shape.size;
    let excess = cells.iter().sum::<usize>() * elements - shape.count;
    let mut counts: Vec<usize> = cells.into_iter().map(|cells| cells * elements).collect();
    *counts.last_mut().unwrap() -= excess;
    counts
}

/// Elements of a chunk: what one call of a primitive passes on.
fn chunk_elements(shape: &Shape) -> usize {
    let step = shape.buffer / 8;
    let (bytes, grain) = match (shape.proto, shape.op) {
        (Proto::Simple, Op::Reduce { .. }) => (step, 512),
        (Proto::Simple, _) => (4 * step, 512),
        // Half of a line is flags.
        (Proto::Ll, _) => (step / 2, 16),
        // One word in 16 is a flag; 256 words of a warp are the grain.
        (Proto::Ll128, _) => (step / 16 * 15, (256 - 256 / 16) * 8),
    };
    assert!(bytes >= grain, "no grain fits: {shape:?}");
    bytes / grain * (grain / shape.size)
}

/// A message: which elements, and whose inputs are in them.
type Message = (usize, usize, Vec<u32>);

/// What the rank at `position` sends on after it has added its input to what came.
fn add(came: Message, own: (usize, usize), rank: u32) -> Message {
    assert_eq!((came.0, came.1), own, "the ranks are at different chunks");
    let mut ranks = came.2;
    ranks.push(rank);
    (own.0, own.1, ranks)
}

fn all_reduce(shape: &Shape, start: usize, part: usize, chunk: usize, runs: &mut Vec<Run>) {
    let n = shape.ring.len();
    let mut done = 0;
    while done < part {
        let left = part - done;
        // A last loop with less than a chunk for each has smaller ones, aligned to 16 bytes.
        let length = if left < n * chunk { round_up(left.div_ceil(n), 16 / shape.size) } else { chunk };
        let place = |number: usize| {
            let from = number * length;
            (start + done + from, length.min(left.saturating_sub(from)))
        };
        // Step 0: everybody sends the chunk before its own position.
        let mut sent: Vec<Message> = (0..n)
            .map(|position| {
                let (offset, len) = place((position + n - 1) % n);
                (offset, len, vec![shape.ring[position]])
            })
            .collect();
        for step in 2..=n {
            sent = (0..n)
                .map(|position| {
                    let came = sent[(position + n - 1) % n].clone();
                    add(came, place((position + n - step) % n), shape.ring[position])
                })
                .collect();
        }
        runs.extend(sent.into_iter().map(|(offset, len, ranks)| Run { offset, len, ranks }));
        done += n * length;
    }
}

fn reduce(shape: &Shape, start: usize, part: usize, chunk: usize, root: u32, runs: &mut Vec<Run>) {
    let n = shape.ring.len();
    let last = shape.ring.iter().position(|rank| *rank == root).unwrap();
    let mut done = 0;
    while done < part {
        let place = (start + done, chunk.min(part - done));
        // The rank behind the root sends first.
        let mut message: Message = (place.0, place.1, vec![shape.ring[(last + 1) % n]]);
        for step in 2..=n {
            message = add(message, place, shape.ring[(last + step) % n]);
        }
        runs.push(Run { offset: message.0, len: message.1, ranks: message.2 });
        done += chunk;
    }
}

fn reduce_scatter(shape: &Shape, start: usize, part: usize, chunk: usize, runs: &mut Vec<Run>) {
    let n = shape.ring.len();
    let mut done = 0;
    while done < part {
        let len = chunk.min(part - done);
        let place = |position: usize| (shape.ring[position % n] as usize * shape.count + start + done, len);
        let mut sent: Vec<Message> = (0..n)
            .map(|position| {
                let (offset, len) = place(position + n - 1);
                (offset, len, vec![shape.ring[position]])
            })
            .collect();
        for step in 2..=n {
            sent = (0..n)
                .map(|position| {
                    let came = sent[(position + n - 1) % n].clone();
                    add(came, place(position + n - step), shape.ring[position])
                })
                .collect();
        }
        runs.extend(sent.into_iter().map(|(offset, len, ranks)| Run { offset, len, ranks }));
        done += chunk;
    }
}
