//! The same collectives in groups, by slices, in place and by pointers, and in streams with buffers that move along.

use super::reference::{Mold, Shape, Value};
use super::{each, numbers, seed, shapes};
use half::{bf16, f16};
use ringccl::{Communicator, Config, Error, Group, Pending, ReduceOp, Stream};

/// The buffers of one shape in a group: those of the form with two slices, of the one in place, of the one by pointers.
struct Room<T> {
    input: Vec<T>,
    apart: Vec<T>,
    in_place: Vec<T>,
    raw: Vec<T>,
}

impl<T: Value> Room<T> {
    fn new(shape: &Shape, rank: usize) -> Self {
        let (input, n, one) = (shape.input::<T>(rank), shape.counts.len(), shape.counts[rank]);
        let output = vec![T::MARK; shape.wanted::<T>(rank).output.len()];
        let in_place = match shape.mold {
            // A buffer of all blocks of which only the own one is filled.
            Mold::AllGather => {
                let mut all = vec![T::MARK; n * one];
                all[rank * one..][..one].copy_from_slice(&input);
                all
            }
            _ => input.clone(),
        };
        Self { input, apart: output.clone(), in_place, raw: output }
    }

    /// Adds the call of `shape` in each form that it has.
    fn add<'a>(
        &'a mut self,
        group: &mut Group<'a>,
        comm: &mut Communicator,
        shape: &Shape,
    ) -> Result<(), Error> {
        let Self { input, apart, in_place, raw } = self;
        let (op, counts, dtype) = (shape.op, &shape.counts, T::DTYPE);
        let one = counts[comm.rank()];
        let (from, to): (*const u8, *mut u8) = (input.as_ptr().cast(), raw.as_mut_ptr().cast());
        // SAFETY: input and output are as long as the collective wants them, do not overlap, and live as long as the
        // group; it may read the input for both forms at once.
        unsafe {
            match shape.mold {
                Mold::Broadcast(root) => group.broadcast_raw(comm, from, to, one, dtype, root),
                Mold::Reduce(root) => group.reduce_raw(comm, from, to, one, dtype, op, root),
                Mold::AllGather => group.all_gather_raw(comm, from, to, one, dtype),
                Mold::ReduceScatter => group.reduce_scatter_raw(comm, from, to, one, dtype, op),
                Mold::AllToAll => group.all_to_all_raw(comm, from, to, one, dtype),
                Mold::Gather(root) => group.gather_raw(comm, from, to, one, dtype, root),
                Mold::Scatter(root) => group.scatter_raw(comm, from, to, one, dtype, root),
                Mold::AllGatherV => group.all_gather_v_raw(comm, from, to, counts, dtype),
                Mold::ReduceScatterV => group.reduce_scatter_v_raw(comm, from, to, counts, dtype, op),
            }?;
        }
        match shape.mold {
            Mold::Broadcast(root) => {
                group.broadcast_from(comm, input, apart, root)?.broadcast(comm, in_place, root)
            }
            Mold::Reduce(root) => {
                group.reduce(comm, input, apart, op, root)?.reduce_in_place(comm, in_place, op, root)
            }
            Mold::AllGather => group.all_gather(comm, input, apart)?.all_gather_in_place(comm, in_place),
            Mold::ReduceScatter => {
                group.reduce_scatter(comm, input, apart, op)?.reduce_scatter_in_place(comm, in_place, op)
            }
            Mold::AllToAll => group.all_to_all(comm, input, apart)?.all_to_all_in_place(comm, in_place),
            Mold::Gather(root) => group.gather(comm, input, apart, root),
            Mold::Scatter(root) => group.scatter(comm, input, apart, root),
            Mold::AllGatherV => group.all_gather_v(comm, input, apart, counts),
            Mold::ReduceScatterV => group.reduce_scatter_v(comm, input, apart, counts, op),
        }?;
        Ok(())
    }

    fn compare(&self, shape: &Shape, rank: usize) {
        let wanted = shape.wanted::<T>(rank);
        let what = |form: &str| format!("{shape:?} of {:?}, {form} in a group, rank {rank}", T::DTYPE);
        wanted.compare(&self.apart, || what("apart"));
        wanted.compare(&self.raw, || what("raw"));
        assert!(self.input == shape.input::<T>(rank), "{}: the input has changed", what("apart"));
        if !matches!(shape.mold, Mold::Gather(_) | Mold::Scatter(_) | Mold::AllGatherV | Mold::ReduceScatterV)
        {
            shape.wanted_in_place(rank, &wanted).compare(&self.in_place, || what("in place"));
        }
    }
}

fn in_a_group<T: Value>(comm: &mut Communicator, shapes: &[Shape]) {
    let rank = comm.rank();
    let mut rooms: Vec<Room<T>> = shapes.iter().map(|shape| Room::new(shape, rank)).collect();
    let mut group = Group::new();
    for (room, shape) in rooms.iter_mut().zip(shapes) {
        room.add(&mut group, comm, shape).unwrap();
    }
    group.run().unwrap();
    rooms.iter().zip(shapes).for_each(|(room, shape)| room.compare(shape, rank));
}

/// What a stream gives for `shape`, if it has that collective.
fn queue<T: Value>(stream: &Stream, comm: &mut Communicator, shape: &Shape) -> Option<Pending<Vec<T>>> {
    let (input, op) = (shape.input::<T>(comm.rank()), shape.op);
    let pending = match shape.mold {
        Mold::Broadcast(root) => stream.broadcast(comm, input, root),
        Mold::Reduce(root) => stream.reduce(comm, input, op, root),
        Mold::AllGather => stream.all_gather(comm, input),
        Mold::ReduceScatter => stream.reduce_scatter(comm, input, op),
        Mold::AllToAll => stream.all_to_all(comm, input),
        Mold::Gather(_) | Mold::Scatter(_) | Mold::AllGatherV | Mold::ReduceScatterV => return None,
    };
    Some(pending.unwrap())
}

fn in_a_stream<T: Value>(comm: &mut Communicator, stream: &Stream, shapes: &[Shape]) {
    let rank = comm.rank();
    let pending: Vec<_> = shapes.iter().map(|shape| queue::<T>(stream, comm, shape)).collect();
    for (pending, shape) in pending.into_iter().zip(shapes).filter_map(|(one, shape)| Some((one?, shape))) {
        let result = pending.wait().unwrap();
        let wanted = shape.wanted::<T>(rank);
        let what = || format!("{shape:?} of {:?} in a stream, rank {rank}", T::DTYPE);
        match shape.mold {
            // Others get back what they gave.
            Mold::Reduce(root) if root != rank => assert!(result == shape.input::<T>(rank), "{}", what()),
            _ => wanted.compare(&result, what),
        }
    }
}

/// Random shapes of every kind, all in one group and in all forms that they have, and then in a stream, give what the
/// definitions say.
#[test]
fn groups_and_streams_do_the_same() {
    let mut seed = seed();
    for n in [1, 2, 3, 5] {
        for chunk_bytes in [256, 1 << 20] {
            seed += 1;
            each(&Config { chunk_bytes, ..Config::new(n as u32) }, n, |mut comm| {
                let (mut draw, stream) = (numbers(seed), Stream::new());
                for round in 0..12 {
                    let op = ReduceOp::BUILTIN[draw(5)];
                    let shapes = shapes(n, op, &mut draw);
                    match round % 4 {
                        0 => in_a_group::<f32>(&mut comm, &shapes),
                        1 => in_a_group::<i64>(&mut comm, &shapes),
                        2 => in_a_group::<f16>(&mut comm, &shapes),
                        _ => in_a_group::<bf16>(&mut comm, &shapes),
                    }
                    match round % 2 {
                        0 => in_a_stream::<f64>(&mut comm, &stream, &shapes),
                        _ => in_a_stream::<i32>(&mut comm, &stream, &shapes),
                    }
                }
                comm.finalize().unwrap();
            });
        }
    }
}

type Wrong = (&'static str, fn(&mut Group<'static>, &mut Communicator) -> Option<Error>);

/// A wrong call of each form, and a part of what it is refused with.
const WRONG: [Wrong; 9] = [
    ("4 ranks cannot share", |group, comm| group.all_gather_in_place::<f32>(comm, leak(5)).err()),
    ("the receive buffer has 5", |group, comm| group.all_gather(comm, leak::<f32>(1), leak(5)).err()),
    ("root 9 is not a rank", |group, comm| {
        group.reduce_in_place::<i32>(comm, leak(1), ReduceOp::Sum, 9).err()
    }),
    ("integers", |group, comm| group.all_reduce_in_place::<f32>(comm, leak(1), ReduceOp::BitAnd).err()),
    ("2 counts for 4 ranks", |group, comm| group.all_gather_v::<f32>(comm, leak(1), leak(2), &[1, 1]).err()),
    ("there is no rank 4", |group, comm| group.recv_tagged::<i32>(comm, leak(1), Some(4), 3).err()),
    ("add up to the 3 elements", |group, comm| {
        group.all_to_all_v::<i32>(comm, leak(3), &[1, 1, 1, 1], leak(4), &[1; 4]).err()
    }),
    ("bytes that memory can have", |group, comm| {
        let (from, to) = (std::ptr::dangling(), std::ptr::dangling_mut());
        // SAFETY: the call is refused, so that nothing is read or written.
        unsafe { group.all_to_all_raw(comm, from, to, usize::MAX / 8, ringccl::DType::F64).err() }
    }),
    ("at most the", |group, comm| {
        let (from, to) = (std::ptr::dangling(), std::ptr::dangling_mut());
        // SAFETY: as above.
        unsafe { group.all_to_all_v_raw(comm, from, &[1 << 62; 4], to, &[0; 4], ringccl::DType::F32).err() }
    }),
];

fn leak<T: Value>(len: usize) -> &'static mut [T] {
    vec![T::MARK; len].leak()
}

/// Whichever form a wrong call has, it is refused as the blocking one, fails the group by the same text, and the
/// communicator goes on.
#[test]
fn a_wrong_call_of_any_form_fails_its_group() {
    each(&Config::new(4), 4, |mut comm| {
        for (told, call) in WRONG {
            let mut group = Group::new();
            group.barrier(&mut comm).unwrap();
            let error = call(&mut group, &mut comm).unwrap();
            let text = error.to_string();
            assert!(
                matches!(error, Error::Argument { .. }) && text.contains(told),
                "`{told}` is not in: {text}"
            );
            let whole = group.run().unwrap_err();
            assert!(
                matches!(whole, Error::GroupRefused { .. }) && whole.to_string().ends_with(&text),
                "{whole}"
            );
        }
        comm.barrier().unwrap();
        comm.finalize().unwrap();
    });
}

/// Tagged messages, receives from any rank and uneven exchanges, twice each in one group or stream.
#[test]
fn messages_in_groups_and_streams() {
    each(&Config::new(3), 3, |mut comm| {
        let (rank, n) = (comm.rank(), comm.nranks());
        let (left, right) = ((rank + n - 1) % n, (rank + 1) % n);
        for len in [1, 300, 70_000] {
            let sent = vec![rank as i64; len];
            let (mut any, mut tagged, mut shifted) = (vec![9; len], vec![9; len], vec![9; len]);
            let counts: Vec<usize> = (0..n).map(|to| (rank + to) % 3 * len).collect();
            let parts = vec![rank as i64; counts.iter().sum()];
            let (mut one, mut other) = (vec![9; parts.len()], vec![9; parts.len()]);
            let mut group = Group::new();
            // The tags are received in another order than they are sent in.
            let source = group.recv_tagged(&mut comm, &mut any, None, 8).unwrap();
            let known = group.recv_tagged(&mut comm, &mut tagged, Some(left), 7).unwrap();
            assert!(source.rank().is_none());
            group.send_tagged(&mut comm, &sent, right, 7).unwrap();
            group.send_tagged(&mut comm, &sent, left, 8).unwrap();
            group.send_recv(&mut comm, &sent, right, &mut shifted, left).unwrap();
            group.all_to_all_v(&mut comm, &parts, &counts, &mut one, &counts).unwrap();
            // SAFETY: both buffers have the sum of the counts, do not overlap and live as long as the group.
            unsafe {
                let (from, to) = (parts.as_ptr().cast(), other.as_mut_ptr().cast());
                group.all_to_all_v_raw(&mut comm, from, &counts, to, &counts, ringccl::DType::I64).unwrap();
            }
            group.run().unwrap();
            assert_eq!((source.rank(), known.rank()), (Some(right), Some(left)));
            assert_eq!(
                (any, tagged, shifted),
                (vec![right as i64; len], vec![left as i64; len], vec![left as i64; len])
            );
            let wanted: Vec<_> = (0..n).flat_map(|from| vec![from as i64; (from + rank) % 3 * len]).collect();
            assert_eq!((&one, &other), (&wanted, &wanted));

            let streams = [Stream::new(), Stream::new()];
            let received = streams[0].recv_tagged(&mut comm, vec![0i64; len], None, 5).unwrap();
            let plain = streams[0].recv(&mut comm, vec![0i64; len], right).unwrap();
            let sends = [
                streams[1].send_tagged(&mut comm, sent.clone(), right, 5).unwrap(),
                streams[1].send(&mut comm, sent.clone(), left).unwrap(),
            ];
            let (buffer, from) = received.wait().unwrap();
            assert_eq!((buffer, from), (vec![left as i64; len], left));
            assert_eq!(plain.wait().unwrap(), vec![right as i64; len]);
            assert!(sends.map(|sent| sent.wait().unwrap()).iter().all(|back| *back == sent));
        }
        comm.finalize().unwrap();
    });
}
