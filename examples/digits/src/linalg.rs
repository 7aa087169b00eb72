//! The loops of the model: plain, single-threaded, in one fixed order of additions.
//!
//! All matrices are row-major and contiguous. Weights are `inputs x outputs`, so that the inner loop of the
//! forward pass and of the weight gradient runs along a contiguous row and the compiler vectorises it. No
//! operation is left to a thread or a library, hence the same inputs give the same bits on every run.

/// Partial sums of [`dot`]; a fixed number, so that the order of additions does not depend on the machine.
const LANES: usize = 8;

/// `y += factor * x`.
fn add_scaled(y: &mut [f32], factor: f32, x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += factor * x;
    }
}

/// The scalar product, summed in eight lanes that are added in order at the end.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let mut sum: f32 = lanes.iter().sum();
    for (a, b) in a_rest.iter().zip(b_rest) {
        sum += a * b;
    }
    sum
}

/// `y = x * weights + bias` for a batch: `x` is `batch x inputs`, `weights` is `inputs x outputs`, `bias` has
/// `outputs` elements, `y` is `batch x outputs`.
///
/// # Panics
/// If a length does not fit the others.
pub fn affine(x: &[f32], weights: &[f32], bias: &[f32], y: &mut [f32]) {
    let outputs = bias.len();
    let inputs = weights.len() / outputs;
    let batch = y.len() / outputs;
    assert_eq!((x.len(), weights.len(), y.len()), (batch * inputs, inputs * outputs, batch * outputs));
    for row in y.chunks_exact_mut(outputs) {
        row.copy_from_slice(bias);
    }
    // The row of weights is the outer loop: it stays in cache while the whole batch uses it.
    for (input, weights) in weights.chunks_exact(outputs).enumerate() {
        for (x, y) in x.chunks_exact(inputs).zip(y.chunks_exact_mut(outputs)) {
            add_scaled(y, x[input], weights);
        }
    }
}

/// The gradient of [`affine`] by its weights and bias: `weights = xᵀ * dy` (`inputs x outputs`) and `bias` =
/// the sum of the rows of `dy` (`batch x outputs`). Overwrites both.
///
/// # Panics
/// If a length does not fit the others.
pub fn affine_gradient(x: &[f32], dy: &[f32], weights: &mut [f32], bias: &mut [f32]) {
    let outputs = bias.len();
    let inputs = weights.len() / outputs;
    let batch = dy.len() / outputs;
    assert_eq!((x.len(), weights.len(), dy.len()), (batch * inputs, inputs * outputs, batch * outputs));
    weights.fill(0.0);
    bias.fill(0.0);
    for dy in dy.chunks_exact(outputs) {
        add_scaled(bias, 1.0, dy);
    }
    for (input, weights) in weights.chunks_exact_mut(outputs).enumerate() {
        for (x, dy) in x.chunks_exact(inputs).zip(dy.chunks_exact(outputs)) {
            add_scaled(weights, x[input], dy);
        }
    }
}

/// The gradient of [`affine`] by its input: `dx = dy * weightsᵀ`, with `dy` `batch x outputs`, `weights`
/// `inputs x outputs` and `dx` `batch x inputs`.
///
/// # Panics
/// If a length does not fit the others.
pub fn input_gradient(dy: &[f32], weights: &[f32], outputs: usize, dx: &mut [f32]) {
    let inputs = weights.len() / outputs;
    let batch = dy.len() / outputs;
    assert_eq!((dx.len(), weights.len(), dy.len()), (batch * inputs, inputs * outputs, batch * outputs));
    for (dy, dx) in dy.chunks_exact(outputs).zip(dx.chunks_exact_mut(inputs)) {
        for (weights, dx) in weights.chunks_exact(outputs).zip(dx) {
            *dx = dot(dy, weights);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{affine, affine_gradient, input_gradient};

    /// Small integers, so that every order of additions gives the same exact result.
    fn matrix(rows: usize, columns: usize, salt: usize) -> Vec<f32> {
        (0..rows * columns).map(|i| ((i * 7 + salt * 3) % 11) as f32 - 5.0).collect()
    }

    #[test]
    fn equal_the_definition() {
        // Proves that the three loops equal the naive triple loop for sizes around the lane count.
        for (batch, inputs, outputs) in [(1, 1, 1), (3, 2, 7), (2, 9, 8), (4, 8, 9), (5, 17, 16), (2, 3, 33)]
        {
            let (x, w) = (matrix(batch, inputs, 1), matrix(inputs, outputs, 2));
            let (bias, dy) = (matrix(1, outputs, 3), matrix(batch, outputs, 4));
            let (mut y, mut dx) = (vec![9.0; batch * outputs], vec![9.0; batch * inputs]);
            let (mut dw, mut db) = (vec![9.0; inputs * outputs], vec![9.0; outputs]);
            affine(&x, &w, &bias, &mut y);
            affine_gradient(&x, &dy, &mut dw, &mut db);
            input_gradient(&dy, &w, outputs, &mut dx);
            for o in 0..outputs {
                assert_eq!(db[o], (0..batch).map(|b| dy[b * outputs + o]).sum::<f32>());
                for b in 0..batch {
                    let sum: f32 = (0..inputs).map(|i| x[b * inputs + i] * w[i * outputs + o]).sum();
                    assert_eq!(y[b * outputs + o], bias[o] + sum);
                }
                for i in 0..inputs {
                    let sum: f32 = (0..batch).map(|b| x[b * inputs + i] * dy[b * outputs + o]).sum();
                    assert_eq!(dw[i * outputs + o], sum);
                }
            }
            for b in 0..batch {
                for i in 0..inputs {
                    let sum: f32 = (0..outputs).map(|o| dy[b * outputs + o] * w[i * outputs + o]).sum();
                    assert_eq!(dx[b * inputs + i], sum);
                }
            }
        }
    }
}
