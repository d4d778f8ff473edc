//! Dropout (Srivastava et al. 2014) whose masks are pure functions of a key and an element's place: the same in every
//! layout, and when a pass is run again. A row's key is mixed in 64 bits; an element's 32 bits are two rounds of a
//! bijection of its column (`lowbias32`, Wellons 2018), which vectorises. Invariant: an element is kept when its bits are
//! at least `rate · 2^32`, and is then scaled by 1 / (1 - rate).

use crate::init::mix;

/// What one site drops in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropping {
    key: u64,
    threshold: u32,
    scale: f32,
}

impl Dropping {
    /// The dropping of a site of a block in a step of a run, at a rate in [0, 1).
    pub fn new(seed: u64, step: u64, block: u64, site: u64, rate: f64) -> Self {
        let key = [seed, step, block, site].into_iter().fold(0, |key, part| mix(key ^ mix(part)));
        let threshold = (rate * 2f64.powi(32)).round().min(f64::from(u32::MAX)) as u32;
        Self { key, threshold, scale: (1.0 / (1.0 - rate)) as f32 }
    }

    /// What kept elements are multiplied by.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// Writes the mask of a row from column `first` on: 1 where an element is kept, 0 where it is dropped. `row` is the
    /// row's place: sample and token, or sample, head and query.
    pub fn mask(&self, row: [u64; 3], first: u32, mask: &mut [f32]) {
        let key = row.into_iter().fold(self.key, |key, part| mix(key ^ mix(part)));
        fill(key as u32, (key >> 32) as u32, self.threshold, first, mask);
    }
}

simd! {
    fn fill(low: u32, high: u32, threshold: u32, first: u32, mask: &mut [f32]) {
        for (column, kept) in (first..).zip(mask) {
            let bits = scatter(scatter(column ^ low) ^ high);
            *kept = if bits >= threshold { 1.0 } else { 0.0 };
        }
    }
}

#[inline(always)]
fn scatter(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x7FEB_352D);
    let x = (x ^ (x >> 15)).wrapping_mul(0x846C_A68B);
    x ^ (x >> 16)
}

simd! {
    /// y = x · mask · scale; the gradient of the input likewise from that of the output.
    pub fn apply(x: &[f32], mask: &[f32], scale: f32, y: &mut [f32]) {
        assert_eq!((x.len(), mask.len()), (y.len(), y.len()));
        for ((y, x), mask) in y.iter_mut().zip(x).zip(mask) {
            *y = x * (mask * scale);
        }
    }
}

simd! {
    /// y = y · mask · scale.
    pub fn apply_to(mask: &[f32], scale: f32, y: &mut [f32]) {
        assert_eq!(mask.len(), y.len());
        for (y, mask) in y.iter_mut().zip(mask) {
            *y *= mask * scale;
        }
    }
}
