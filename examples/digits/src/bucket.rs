//! Gradient buckets: which layer's gradient lies where, and when a bucket is complete.

use std::ops::Range;

/// Where the gradient of one layer lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Index of the bucket, in the order in which the buckets are completed.
    pub bucket: usize,
    /// Elements of the bucket that belong to the layer.
    pub range: Range<usize>,
    /// Whether the backward of this layer completes the bucket.
    pub completes: bool,
}

/// How the gradients of a model are cut into buckets, last layer first because its gradient is ready first.
#[derive(Debug, Clone)]
pub struct BucketPlan {
    /// By layer, from 1.
    places: Vec<Place>,
    /// Elements of each bucket.
    lengths: Vec<usize>,
    /// The lowest layer of each bucket.
    lowest: Vec<usize>,
}

impl BucketPlan {
    /// A plan for layers of `layer_lengths` gradient elements, layer 1 first.
    ///
    /// Without `bytes_max` each layer has its own bucket. With it, successive layers share a bucket while
    /// they fit in
    /// `bytes_max` bytes; a layer is never cut, so one that is larger has a bucket to itself.
    pub fn new(layer_lengths: &[usize], bytes_max: Option<usize>) -> Self {
        let elements_max = bytes_max.map_or(0, |bytes| bytes / size_of::<f32>());
        let (mut lengths, mut lowest): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut reversed: Vec<Place> = Vec::new();
        for (index, length) in layer_lengths.iter().enumerate().rev() {
            match lengths.last_mut() {
                Some(filled) if *filled + length <= elements_max => {
                    if let (Some(above), Some(lowest)) = (reversed.last_mut(), lowest.last_mut()) {
                        above.completes = false;
                        *lowest = index + 1;
                    }
                    *filled += length;
                }
                _ => {
                    lengths.push(*length);
                    lowest.push(index + 1);
                }
            }
            let (bucket, end) = (lengths.len() - 1, lengths[lengths.len() - 1]);
            reversed.push(Place { bucket, range: end - length..end, completes: true });
        }
        reversed.reverse();
        Self { places: reversed, lengths, lowest }
    }

    /// Where the gradient of `layer` (from 1) lies.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn place(&self, layer: usize) -> &Place {
        &self.places[layer - 1]
    }

    /// Elements of each bucket, in the order in which the buckets are completed.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The number a bucket bears in spans: that of the lowest layer in it.
    ///
    /// # Panics
    /// If there is no such bucket.
    pub fn number(&self, bucket: usize) -> usize {
        self.lowest[bucket]
    }
}

#[cfg(test)]
mod tests {
    use super::{BucketPlan, Place};

    #[test]
    fn one_bucket_per_layer_from_the_last() {
        // Proves that by default the last layer's gradient is bucket 0 and bears its layer's number.
        let plan = BucketPlan::new(&[30, 20, 10], None);
        assert_eq!(plan.lengths(), [10, 20, 30]);
        assert_eq!((0..3).map(|bucket| plan.number(bucket)).collect::<Vec<_>>(), [3, 2, 1]);
        assert_eq!(*plan.place(2), Place { bucket: 1, range: 0..20, completes: true });
    }

    #[test]
    fn sizes_around_the_limit() {
        // Proves that layers share a bucket up to the limit, the limit included, and are never cut.
        let layout = |elements: usize| BucketPlan::new(&[30, 20, 10], Some(elements * 4)).lengths().to_vec();
        assert_eq!(layout(1), [10, 20, 30]);
        assert_eq!(layout(29), [10, 20, 30]);
        assert_eq!(layout(30), [30, 30]);
        assert_eq!(layout(50), [30, 30]);
        assert_eq!(layout(60), [60]);
        let plan = BucketPlan::new(&[30, 20, 10], Some(30 * 4));
        assert_eq!(*plan.place(3), Place { bucket: 0, range: 0..10, completes: false });
        assert_eq!(*plan.place(2), Place { bucket: 0, range: 10..30, completes: true });
        assert_eq!((plan.number(0), plan.number(1)), (2, 1));
    }

    #[test]
    fn every_element_has_one_place() {
        // Proves that for any limit the places tile the buckets and exactly the lowest layer completes each.
        let layers = [7, 1, 12, 5, 5, 3];
        for limit in 0..160 {
            let plan = BucketPlan::new(&layers, Some(limit));
            let mut filled = vec![0; plan.lengths().len()];
            for layer in (1..=layers.len()).rev() {
                let place = plan.place(layer);
                assert_eq!((place.range.start, place.range.len()), (filled[place.bucket], layers[layer - 1]));
                filled[place.bucket] = place.range.end;
                assert_eq!(place.completes, plan.number(place.bucket) == layer);
            }
            assert_eq!(filled, plan.lengths());
        }
    }
}
