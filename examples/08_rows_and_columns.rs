//! Split: six ranks as a grid of two rows and three columns, with a communicator for each row and column.
//!
//! ```sh
//! cargo build --release --package ringccl --example 08_rows_and_columns
//! ringccl run -n 6 -- target/release/examples/08_rows_and_columns
//! ```

use ringccl::{Communicator, Error, ReduceOp};

const COLUMNS: usize = 3;

/// This rank's communicator among those of the same colour.
fn part(world: &mut Communicator, colour: usize) -> Result<Communicator, Error> {
    let mine = world.split(Some(colour as u32), 0)?;
    Ok(mine.expect("a rank with a colour is in a communicator"))
}

fn main() -> Result<(), Error> {
    let mut world = Communicator::from_env()?;
    let rank = world.rank();
    let (row, column) = (rank / COLUMNS, rank % COLUMNS);
    // Ranks of one colour are together; equal keys leave them in the order that they have in the world.
    let mut in_row = part(&mut world, row)?;
    let mut in_column = part(&mut world, column)?;

    // Tensor parallel in rows, data parallel in columns: partial sums meet in the row, gradients in the column.
    let (mut activation, mut gradient) = ([rank as f32], [rank as f32 * 10.0]);
    in_row.all_reduce_in_place(&mut activation, ReduceOp::Sum)?;
    in_column.all_reduce_in_place(&mut gradient, ReduceOp::Avg)?;
    println!(
        "rank {rank}: {} of {} in row {row}, {} of {} in column {column}: {} and {}",
        in_row.rank(),
        in_row.nranks(),
        in_column.rank(),
        in_column.nranks(),
        activation[0],
        gradient[0]
    );

    // A rank without a colour takes part in the split and is in none of the parts.
    let corners = world.split((rank.is_multiple_of(5)).then_some(0), 0)?;
    if let Some(mut corners) = corners {
        let mut sum = [rank as i32];
        corners.all_reduce_in_place(&mut sum, ReduceOp::Sum)?;
        println!("rank {rank} is a corner: {}", sum[0]);
        corners.finalize()?;
    }
    in_row.finalize()?;
    in_column.finalize()?;
    world.finalize()
}
