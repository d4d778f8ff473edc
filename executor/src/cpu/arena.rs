//! The rank's memory: one allocation that buffers are ranges of. Streams of a rank touch it from several threads at once;
//! that they never touch one range together is what [`Checked`] proves, and why only this file and its callers in the
//! walk use `unsafe`.
//!
//! [`Checked`]: meshwright_ir::program::Checked
#![allow(unsafe_code)]

use meshwright_ir::Bytes;
use meshwright_ir::program::Buffer;
use std::cell::UnsafeCell;

/// fp32 words, zero at first.
pub(super) struct Arena {
    words: Box<[UnsafeCell<f32>]>,
}

// SAFETY: shared access goes through `get` and `get_mut`, whose callers hold the program's proof that no two threads use
// overlapping ranges at once unless both only read.
unsafe impl Sync for Arena {}

impl Arena {
    pub(super) fn new(size: Bytes) -> Self {
        let zeros = vec![0f32; size.0.div_ceil(4) as usize].into_boxed_slice();
        // SAFETY: UnsafeCell<f32> has the layout of f32.
        let words = unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [UnsafeCell<f32>]) };
        Self { words }
    }

    fn start(&self, buffer: &Buffer) -> *mut f32 {
        let (from, words) = ((buffer.offset.0 / 4) as usize, buffer.elements as usize);
        self.words[from..from + words].as_ptr() as *mut f32
    }

    /// The elements of a buffer.
    ///
    /// # Safety
    /// No thread may write any of them while the slice lives.
    pub(super) unsafe fn get(&self, buffer: &Buffer) -> &[f32] {
        // SAFETY: the range was checked by `start`; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts(self.start(buffer), buffer.elements as usize) }
    }

    /// The elements of a buffer, to be written.
    ///
    /// # Safety
    /// No other reference to any of them may be used while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn get_mut(&self, buffer: &Buffer) -> &mut [f32] {
        // SAFETY: the range was checked by `start`; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start(buffer), buffer.elements as usize) }
    }

    /// A run of buffers that follow each other without a gap, as one slice to be written.
    ///
    /// # Safety
    /// As for [`Arena::get_mut`], for all of them.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn run_mut(&self, first: &Buffer, words: usize) -> &mut [f32] {
        let from = (first.offset.0 / 4) as usize;
        let start = self.words[from..from + words].as_ptr() as *mut f32;
        // SAFETY: the range was checked by the slice above; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(start, words) }
    }

    /// The elements of a buffer while no step runs.
    pub(super) fn exclusive(&mut self, buffer: &Buffer) -> &mut [f32] {
        // SAFETY: `&mut self` excludes every other reference.
        unsafe { self.get_mut(buffer) }
    }

    /// A copy of a buffer while no step runs.
    pub(super) fn copy_of(&self, buffer: &Buffer) -> Vec<f32> {
        // SAFETY: the arena's owner calls this between steps only, when no stream thread exists.
        unsafe { self.get(buffer) }.to_vec()
    }
}

/// The ids that a slice of words holds.
pub(super) fn ids(words: &[f32]) -> &[u32] {
    // SAFETY: u32 and f32 have one size and alignment, and every bit pattern is valid in both.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

/// The ids that a slice of words holds, to be written.
pub(super) fn ids_mut(words: &mut [f32]) -> &mut [u32] {
    // SAFETY: as for `ids`, and the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len()) }
}
