//! The multilayer perceptron: its parameters, one forward pass and one backward pass, layer by layer.

use std::ops::Range;

use crate::data::Dataset;
use crate::hash::Fnv;
use crate::linalg;
use crate::rng::Rng;

/// Layer widths of the digits model: 64 pixels, two hidden layers, 10 classes.
///
/// Wide enough that the backward of a layer (25 us and more for a batch of 16) outlasts the wake-up of the
/// worker that starts the exchange of the bucket above; half of it would be enough for the accuracy.
pub const WIDTHS: [usize; 4] = [crate::data::PIXELS, 256, 128, crate::data::CLASSES];

/// A perceptron with rectified hidden layers, all parameters in one flat slice.
///
/// Layer `k` of `1..=layers()` has `inputs x outputs` weights followed by `outputs` biases.
#[derive(Debug, Clone)]
pub struct Mlp {
    params: Vec<f32>,
    layers: Vec<Layer>,
}

#[derive(Debug, Clone)]
struct Layer {
    inputs: usize,
    outputs: usize,
    range: Range<usize>,
}

impl Layer {
    /// The weights and the bias within the values (parameters or gradient) of this layer.
    fn parts<'a>(&self, values: &'a [f32]) -> (&'a [f32], &'a [f32]) {
        values.split_at(self.inputs * self.outputs)
    }
}

impl Mlp {
    /// A model with the given widths, input first; weights uniform as He et al. (2015) propose, biases 0.
    ///
    /// # Panics
    /// If there are fewer than two widths or one is 0.
    pub fn new(widths: &[usize], rng: &mut Rng) -> Self {
        assert!(widths.len() >= 2 && widths.iter().all(|width| *width > 0), "layer widths {widths:?}");
        let (mut params, mut layers) = (Vec::new(), Vec::new());
        for pair in widths.windows(2) {
            let (inputs, outputs) = (pair[0], pair[1]);
            let start = params.len();
            let limit = (6.0 / inputs as f32).sqrt();
            params.extend((0..inputs * outputs).map(|_| rng.symmetric(limit)));
            params.resize(params.len() + outputs, 0.0);
            layers.push(Layer { inputs, outputs, range: start..params.len() });
        }
        Self { params, layers }
    }

    /// Number of layers with weights.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Where the parameters of `layer` (from 1) lie in [`Mlp::params`].
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn layer_range(&self, layer: usize) -> Range<usize> {
        self.layers[layer - 1].range.clone()
    }

    /// All parameters, layer 1 first.
    pub fn params(&self) -> &[f32] {
        &self.params
    }

    /// All parameters, layer 1 first, for change.
    pub fn params_mut(&mut self) -> &mut [f32] {
        &mut self.params
    }

    /// A hash of the exact bits of all parameters.
    pub fn fingerprint(&self) -> u64 {
        Fnv::default().floats(&self.params).finish()
    }
}

/// One batch on its way through a model: activations going up, their gradient coming down.
///
/// The calls follow one another as [`Pass::forward`], [`Pass::loss`], then [`Pass::backward_layer`] for each
/// layer from the last to 1. The buffers are reused from batch to batch.
#[derive(Debug, Default)]
pub struct Pass {
    labels: Vec<u8>,
    /// `activations[0]` is the batch, `activations[k]` the output of layer `k` (`batch x outputs`).
    activations: Vec<Vec<f32>>,
    /// The gradient of the mean loss by the output of the layer whose backward is next.
    delta: Vec<f32>,
    spare: Vec<f32>,
}

impl Pass {
    /// Takes the images `rows` of `data` through all layers.
    ///
    /// # Panics
    /// If a row is not in `data` or the images do not have the model's width.
    pub fn forward(&mut self, model: &Mlp, data: &Dataset, rows: &[usize]) {
        self.activations.resize_with(model.layers() + 1, Vec::new);
        self.labels.clear();
        self.labels.extend(rows.iter().map(|row| data.label(*row)));
        self.activations[0].clear();
        self.activations[0].extend(rows.iter().flat_map(|row| data.image(*row)));
        for (index, layer) in model.layers.iter().enumerate() {
            let (below, above) = self.activations.split_at_mut(index + 1);
            let (weights, bias) = layer.parts(&model.params[layer.range.clone()]);
            let output = &mut above[0];
            output.resize(rows.len() * layer.outputs, 0.0);
            linalg::affine(&below[index], weights, bias, output);
            if index + 1 < model.layers() {
                output.iter_mut().for_each(|value| *value = value.max(0.0));
            }
        }
    }

    /// Whether the model's answer (the first largest output) is right, for each image of the batch.
    pub fn correct(&self) -> usize {
        let answers = self.outputs().map(|outputs| {
            let mut best = 0;
            for (class, value) in outputs.iter().enumerate() {
                if *value > outputs[best] {
                    best = class;
                }
            }
            best
        });
        answers.zip(&self.labels).filter(|(answer, label)| *answer == usize::from(**label)).count()
    }

    fn outputs(&self) -> impl Iterator<Item = &[f32]> {
        let logits = self.activations.last().map_or(&[][..], Vec::as_slice);
        logits.chunks_exact((logits.len() / self.labels.len().max(1)).max(1))
    }

    /// The cross entropy of the softmax of the outputs, summed over the batch; prepares the backward pass of
    /// the *mean* loss.
    pub fn loss(&mut self) -> f64 {
        let mut delta = std::mem::take(&mut self.delta);
        delta.clear();
        let (mut total, scale) = (0.0, 1.0 / self.labels.len() as f32);
        for (outputs, label) in self.outputs().zip(&self.labels) {
            let label = usize::from(*label);
            // Shifted by the largest output, so that no exponential overflows.
            let max = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = outputs.iter().map(|value| (value - max).exp()).sum();
            total += f64::from(sum.ln() - (outputs[label] - max));
            delta.extend(outputs.iter().enumerate().map(|(class, value)| {
                let wanted = if class == label { 1.0 } else { 0.0 };
                ((value - max).exp() / sum - wanted) * scale
            }));
        }
        self.delta = delta;
        total
    }

    /// Writes the gradient of the mean loss by the parameters of `layer` (from 1) into `gradient`, weights
    /// then bias, and steps down to the layer below.
    ///
    /// # Panics
    /// If the layers are not visited from the last to the first, or `gradient` has not the layer's length.
    pub fn backward_layer(&mut self, model: &Mlp, layer: usize, gradient: &mut [f32]) {
        let shape = &model.layers[layer - 1];
        let input = &self.activations[layer - 1];
        let (weights, bias) = gradient.split_at_mut(shape.inputs * shape.outputs);
        linalg::affine_gradient(input, &self.delta, weights, bias);
        if layer == 1 {
            return;
        }
        let (weights, _) = shape.parts(&model.params[shape.range.clone()]);
        self.spare.resize(input.len(), 0.0);
        linalg::input_gradient(&self.delta, weights, shape.outputs, &mut self.spare);
        // The rectifier passes the gradient on where it passed the value on.
        for (delta, activation) in self.spare.iter_mut().zip(input) {
            if *activation <= 0.0 {
                *delta = 0.0;
            }
        }
        std::mem::swap(&mut self.delta, &mut self.spare);
    }
}

#[cfg(test)]
mod tests {
    use super::{Mlp, Pass, WIDTHS};
    use crate::data::Dataset;
    use crate::rng::Rng;

    fn gradient(model: &Mlp, data: &Dataset, rows: &[usize]) -> Vec<f32> {
        let mut pass = Pass::default();
        pass.forward(model, data, rows);
        pass.loss();
        let mut gradient = vec![f32::NAN; model.params().len()];
        for layer in (1..=model.layers()).rev() {
            pass.backward_layer(model, layer, &mut gradient[model.layer_range(layer)]);
        }
        gradient
    }

    #[test]
    fn gradient_equals_finite_differences() {
        // Proves that the hand-written backward pass is the derivative of the loss, in every layer.
        let data = Dataset::built_in().unwrap();
        let rows = [0, 5, 17, 300, 301];
        let mut model = Mlp::new(&[64, 9, 7, 10], &mut Rng::new(4));
        let exact = gradient(&model, &data, &rows);
        let mut pass = Pass::default();
        let mut mean_loss = |model: &Mlp| {
            pass.forward(model, &data, &rows);
            pass.loss() / rows.len() as f64
        };
        for layer in 1..=model.layers() {
            let (mut error, mut norm) = (0.0, 0.0);
            for index in model.layer_range(layer) {
                let (value, step) = (model.params()[index], 2e-3);
                model.params_mut()[index] = value + step;
                let above = mean_loss(&model);
                model.params_mut()[index] = value - step;
                let below = mean_loss(&model);
                model.params_mut()[index] = value;
                let numeric = (above - below) / (2.0 * f64::from(step));
                error += (numeric - f64::from(exact[index])).powi(2);
                norm += numeric.powi(2);
            }
            let relative = (error / norm).sqrt();
            assert!(relative < 5e-3, "layer {layer}: relative error {relative}");
        }
    }

    #[test]
    fn mean_of_halves_is_the_whole() {
        // Proves what data parallelism rests on: the gradient of a batch is the mean of those of its halves.
        let data = Dataset::built_in().unwrap();
        let model = Mlp::new(&WIDTHS, &mut Rng::new(4));
        let rows: Vec<usize> = (40..56).collect();
        let whole = gradient(&model, &data, &rows);
        let (left, right) = (gradient(&model, &data, &rows[..8]), gradient(&model, &data, &rows[8..]));
        for ((whole, left), right) in whole.iter().zip(left).zip(right) {
            assert!((whole - (left + right) / 2.0).abs() <= 1e-6);
        }
    }

    #[test]
    fn buffers_do_not_leak_between_batches() {
        // Proves that a pass that was used for a larger batch gives the same bits as a new one.
        let data = Dataset::built_in().unwrap();
        let model = Mlp::new(&WIDTHS, &mut Rng::new(4));
        let (mut used, mut fresh) = (Pass::default(), Pass::default());
        used.forward(&model, &data, &[1, 2, 3, 4, 5]);
        used.loss();
        used.forward(&model, &data, &[7, 8]);
        fresh.forward(&model, &data, &[7, 8]);
        assert_eq!(used.loss().to_bits(), fresh.loss().to_bits());
        assert_eq!(used.correct(), fresh.correct());
    }
}
